-- segment_of: the place in the ring of the segment with a number.
--
--   number  bigint  as awa.segment_numbers counts
--
-- Returns 0 to 5.
--
-- Locks: none. Inlined.
CREATE OR REPLACE FUNCTION awa.segment_of(number bigint) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (number % 6)::smallint;

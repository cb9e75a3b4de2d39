-- aged: the priority of a job, after it has waited.
--
--   priority  smallint          the job's own, 1 to 4
--   waited    interval          since it became due
--   ageing    double precision  seconds of waiting that count as one priority; 0: none do
--
-- Returns the priority it counts as: one less, and so earlier, for each `ageing` it has
-- waited, down to 1. Nothing is rewritten.
--
-- Locks: none. Inlined.
CREATE OR REPLACE FUNCTION awa.aged(
    priority smallint, waited interval, ageing double precision
) RETURNS double precision
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN ageing > 0
            THEN greatest(priority - floor(extract(epoch FROM waited)::float8 / ageing), 1)
            ELSE priority END;

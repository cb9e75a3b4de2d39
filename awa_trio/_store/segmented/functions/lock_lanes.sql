-- lock_lanes: take the turn of one's own at lanes.
--
--   in_queue    text        their queue
--   kinds       text[]      their kinds, ...
--   priorities  smallint[]  ... and priorities
--
-- Returns nothing.
--
-- Locks: the rows of the lanes, by kind and priority, until the end of the caller's
-- transaction, which is to be a short one of ours: who claims, and who takes a job out of a
-- lane, waits for it. The caller's settings hold here, too.
CREATE OR REPLACE FUNCTION awa.lock_lanes(in_queue text, kinds text[], priorities smallint[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    known int;
BEGIN
    LOOP
        SELECT count(*) INTO known
          FROM (SELECT FROM awa.lane_turns AS t
                 WHERE t.queue = in_queue
                   AND (t.kind, t.priority) IN (
                       SELECT l.kind, l.priority FROM unnest(kinds, priorities) AS l (kind, priority))
                 ORDER BY t.kind, t.priority FOR UPDATE OF t) AS locked;
        EXIT WHEN known = 1 AND cardinality(kinds) = 1;
        EXIT WHEN known = (SELECT count(DISTINCT (l.kind, l.priority))
                             FROM unnest(kinds, priorities) AS l (kind, priority));
        INSERT INTO awa.lane_turns (queue, kind, priority)
        SELECT DISTINCT in_queue, l.kind, l.priority
          FROM unnest(kinds, priorities) AS l (kind, priority)
         ORDER BY l.kind, l.priority
            ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;

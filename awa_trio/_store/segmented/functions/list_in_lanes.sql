-- list_in_lanes: a page of the jobs in lanes, newest first.
--
--   states ... most  as for awa.list_jobs
--
-- Returns their IDs. What waits is looked for beyond the claims, and what runs among the open
-- ones, rather than among all that has completed.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.list_in_lanes(
    states text[], kind text, queue text, tag text, before_id bigint, most int
) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    waiting bigint[];
BEGIN
    IF states IS NOT NULL AND NOT states && '{completed}' THEN
        IF states && '{running}' THEN
            RETURN QUERY
            SELECT b.id
              FROM awa.open_claims() AS c
             CROSS JOIN LATERAL unnest(c.ids) AS r (ids)
              JOIN awa.lane_jobs AS b
                ON b.segment = c.segment AND b.id >= lower(r.ids) AND b.id < upper(r.ids)
             WHERE (list_in_lanes.kind IS NULL OR b.kind = list_in_lanes.kind)
               AND (list_in_lanes.queue IS NULL OR b.queue = list_in_lanes.queue)
               AND (tag IS NULL OR tag = ANY (b.tags))
               AND (before_id IS NULL OR b.id < before_id)
             ORDER BY b.id DESC LIMIT most;
        END IF;
        IF NOT states && '{available}' THEN
            RETURN;
        END IF;
        waiting := ARRAY(
            SELECT a.id
              FROM awa.segments AS s
             CROSS JOIN LATERAL awa.segment_lanes(s.segment) AS l
             CROSS JOIN LATERAL awa.lane_cursor(s.segment, l.queue, l.kind, l.priority) AS c
             CROSS JOIN LATERAL awa.lane_ahead(
                   s.segment, l.queue, l.kind, l.priority, c.xid, c.id, c.open_xids, c.open_ids,
                   10001) AS a
             WHERE NOT s.drained
               AND (list_in_lanes.kind IS NULL OR l.kind = list_in_lanes.kind)
               AND (list_in_lanes.queue IS NULL OR l.queue = list_in_lanes.queue)
             LIMIT 10001);
        IF cardinality(waiting) <= 10000 THEN
            RETURN QUERY
            SELECT b.id FROM awa.lane_jobs AS b
             WHERE b.id = ANY (waiting) AND (tag IS NULL OR tag = ANY (b.tags))
               AND (before_id IS NULL OR b.id < before_id)
             ORDER BY b.id DESC LIMIT most;
            RETURN;
        END IF;
        -- There are so many that the newest jobs are among them.
        states := '{available}';
    END IF;
    RETURN QUERY
    SELECT s.id FROM awa.lane_states AS s
     WHERE (states IS NULL OR s.state = ANY (states))
       AND (list_in_lanes.kind IS NULL OR s.kind = list_in_lanes.kind)
       AND (list_in_lanes.queue IS NULL OR s.queue = list_in_lanes.queue)
       AND (tag IS NULL OR tag = ANY (s.tags))
       AND (before_id IS NULL OR s.id < before_id)
     ORDER BY s.id DESC LIMIT most;
END
$$;

-- backlogs: what is due in queues and not claimed, of whatever kind.
--
--   queues  text[]  which queues
--   most    int     jobs to count in each
--
-- Returns a row per queue, in the order given: how many jobs are due, `most` meaning at
-- least so many; and the seconds since the first of them was due, null if there is none.
--
-- Locks: none. Counts at most `most` jobs of each lane.
CREATE OR REPLACE FUNCTION awa.backlogs(queues text[], most int)
RETURNS TABLE (queue text, due int, oldest double precision)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.queue, least(r.due + l.due, most)::int, greatest(r.oldest, l.oldest)
      FROM awa.backlogs_of_rows(queues, most) WITH ORDINALITY AS r (queue, due, oldest, ord)
     CROSS JOIN LATERAL (
           SELECT count(*) AS due,
                  extract(epoch FROM clock_timestamp() - min(a.created_at))::float8 AS oldest
             FROM awa.ready_lanes(r.queue, NULL) AS l
            CROSS JOIN LATERAL awa.lane_cursor(l.segment, r.queue, l.kind, l.priority) AS c
            CROSS JOIN LATERAL awa.lane_ahead(
                  l.segment, r.queue, l.kind, l.priority, c.xid, c.id, c.open_xids, c.open_ids,
                  most) AS a) AS l
     ORDER BY r.ord;
END
$$;

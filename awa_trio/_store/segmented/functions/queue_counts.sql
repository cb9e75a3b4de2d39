-- queue_counts: how many jobs of queues are in the states that are not final.
--
--   queues  text[]  the queues
--   most    int     as for awa.queue_counts_of_rows, which is this function of the canonical
--                   engine; and jobs that are counted of each lane
--
-- Returns a row per queue and state that has some.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.queue_counts(queues text[], most int)
RETURNS TABLE (queue text, state text, jobs int)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT c.queue, c.state, least(sum(c.jobs), most)::int
      FROM (SELECT r.queue, r.state, r.jobs FROM awa.queue_counts_of_rows(queues, most) AS r
             UNION ALL
            SELECT q.queue, 'available', a.jobs
              FROM unnest(queues) AS q (queue)
             CROSS JOIN LATERAL awa.ready_lanes(q.queue, NULL) AS l
             CROSS JOIN LATERAL awa.lane_cursor(l.segment, q.queue, l.kind, l.priority) AS c
             CROSS JOIN LATERAL (
                   SELECT count(*)::int AS jobs FROM awa.lane_ahead(
                          l.segment, q.queue, l.kind, l.priority, c.xid, c.id, c.open_xids,
                          c.open_ids, most)) AS a
             UNION ALL
            SELECT c.queue, 'running', sum(upper(i.ids) - lower(i.ids))::int
              FROM awa.open_claims() AS o
              JOIN awa.lane_claims AS c ON c.segment = o.segment AND c.number = o.number
             CROSS JOIN LATERAL unnest(o.ids) AS i (ids)
             WHERE c.queue = ANY (queues)
             GROUP BY c.queue) AS c
     GROUP BY c.queue, c.state;
END
$$;

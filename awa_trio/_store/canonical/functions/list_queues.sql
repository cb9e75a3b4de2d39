-- list_queues: queues as people read them.
--
--   only_queues  text[]  which; null for all that have live jobs, that live workers serve, or of
--                        which something was said
--   most         int     as for awa.queue_counts
--
-- Returns a row per queue, by name: its jobs by state, as an object; the seconds since the first
-- of those that are due was; and what is said of it.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.list_queues(only_queues text[], most int)
RETURNS TABLE (
    queue text, counts jsonb, oldest double precision, paused_at timestamptz,
    draining_since timestamptz, settings jsonb, overrides jsonb
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    names text[] := ARRAY(
        SELECT DISTINCT n.queue COLLATE "C" FROM (
            SELECT unnest(only_queues) AS queue
             UNION ALL
            SELECT q.queue FROM awa.queues AS q WHERE only_queues IS NULL
             UNION ALL
            SELECT q.queue FROM awa.queue_names() AS q (queue) WHERE only_queues IS NULL
             UNION ALL
            SELECT q.queue FROM awa.served_queues(NULL) AS q (queue) WHERE only_queues IS NULL) AS n
         ORDER BY 1);
BEGIN
    RETURN QUERY
    SELECT b.queue, c.counts, b.oldest, q.paused_at, q.draining_since, q.settings,
           coalesce(q.overrides, '{}')
      FROM awa.backlogs(names, 1) AS b
      LEFT JOIN awa.queues AS q ON q.queue = b.queue
      LEFT JOIN (SELECT s.queue, jsonb_object_agg(s.state, s.jobs) AS counts
                   FROM awa.queue_counts(names, most) AS s GROUP BY s.queue) AS c
        ON c.queue = b.queue
     ORDER BY b.queue COLLATE "C";
END
$$;

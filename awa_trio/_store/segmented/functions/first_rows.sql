-- first_rows: the next jobs of a queue that are in awa.jobs.
--
--   wanted_queue  text              the queue
--   kinds         text[]            the kinds the caller can run
--   most          int               how many
--   ageing        double precision  seconds of waiting that count as one priority; 0: none do
--   at            timestamptz       the present
--
-- Returns them in the order in which awa.claim_rows would start them.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.first_rows(
    wanted_queue text, kinds text[], most int, ageing double precision, at timestamptz
) RETURNS TABLE (id bigint, priority smallint, run_at timestamptz)
LANGUAGE plpgsql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT w.id, w.priority, w.run_at
      FROM (SELECT j.id, l.priority, j.run_at
              FROM awa.lanes(wanted_queue, kinds) AS l
             CROSS JOIN LATERAL (
                   SELECT j.id, j.run_at FROM awa.jobs AS j
                    WHERE j.queue = wanted_queue AND j.kind = l.kind AND j.priority = l.priority
                      AND j.state IN ('available', 'scheduled', 'retryable')
                      AND j.ordering_key IS NULL AND j.limit_key IS NULL AND j.run_at <= at
                    ORDER BY j.run_at, j.id LIMIT most) AS j
             UNION ALL
            SELECT h.id, h.priority, h.run_at
              FROM awa.heads(wanted_queue, kinds, most, ageing, at) AS h
           ) AS w
     ORDER BY awa.aged(w.priority, at - w.run_at, ageing), w.run_at, w.id LIMIT most;
END
$$;

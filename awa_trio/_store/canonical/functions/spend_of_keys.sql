-- spend_of_keys: take tokens of limit keys for jobs that a claim has started.
--
--   of_queue  text      the queue
--   worker    bigint    who has claimed them
--   ids       bigint[]  the jobs; those that did not start, or have no limit key, count for none
--
-- Returns nothing. Nothing is to be done where the queue has no rate by key.
--
-- Locks: the caller has the queue's row. The caller's settings hold here, too.
CREATE OR REPLACE FUNCTION awa.spend_of_keys(of_queue text, worker bigint, ids bigint[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    keys text[];
    counts int[];
BEGIN
    IF NOT EXISTS (SELECT FROM awa.queues AS q
                    WHERE q.queue = of_queue AND q.key_rate IS NOT NULL) THEN
        RETURN;
    END IF;
    SELECT array_agg(s.limit_key), array_agg(s.count) INTO keys, counts
      FROM (SELECT j.limit_key, count(*)::int
              FROM awa.jobs AS j
             WHERE j.id = ANY (ids) AND j.state = 'running' AND j.worker_id = worker
               AND j.limit_key IS NOT NULL
             GROUP BY j.limit_key) AS s;
    IF keys IS NOT NULL THEN
        PERFORM awa.spend(of_queue, keys, counts);
    END IF;
END
$$;

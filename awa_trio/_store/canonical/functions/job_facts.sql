-- job_facts: what there is to know about why a job has not run.
--
--   job_id  bigint  the job
--   most    int     jobs to count ahead of it
--
-- Returns a row if there is such a job: the present; how many workers are alive, of these how
-- many serve its queue, and of these how many run its kind, those that did not say counting as
-- both; the name, the silence, the lease and the end of the worker that has it; the job that has
-- its ordering key, and the state of that; the first job of its ordering key that waits; another
-- job that holds its unique key; how many jobs of its lane are due and before it, as
-- awa.ahead_of; the seconds until the rate of its queue allows a start, null while the queue is
-- paused; and how many more with its limit key may start, null if it has none.
--
-- Locks: none. Bounded by the number of workers, and by `most`.
CREATE OR REPLACE FUNCTION awa.job_facts(job_id bigint, most int)
RETURNS TABLE (
    present timestamptz, alive int, serving int, knowing int, worker text,
    silent double precision, lease double precision, fenced boolean, taken_by bigint,
    taken_state text, head bigint, holder bigint, ahead int,
    room_in double precision, key_room int
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT clock_timestamp(), w.alive, w.serving, w.knowing, o.name,
           extract(epoch FROM clock_timestamp() - o.beat_at)::float8,
           extract(epoch FROM o.lease)::float8, o.fenced_at IS NOT NULL,
           t.id, t.state::text, h.id,
           (SELECT u.job_id FROM awa.unique_claims AS u
             WHERE u.unique_key = g.unique_key AND u.job_id <> g.id),
           awa.ahead_of(g.id, most), awa.seconds_to_room(g.queue),
           (SELECT awa.key_room(g.queue, g.limit_key, 1, q.max_per_key, q.key_rate, q.key_burst)
              FROM awa.queues AS q WHERE q.queue = g.queue AND g.limit_key IS NOT NULL)
      FROM awa.get_jobs(ARRAY[job_id]) AS g
     CROSS JOIN LATERAL (
           SELECT count(*)::int AS alive,
                  count(*) FILTER (WHERE s.serves)::int AS serving,
                  count(*) FILTER (WHERE s.serves AND s.knows)::int AS knowing
             FROM (SELECT coalesce(g.queue = ANY (w.queues), true) AS serves,
                          coalesce(g.kind = ANY (w.kinds), true) AS knows
                     FROM awa.workers AS w
                    WHERE w.fenced_at IS NULL AND w.beat_at >= clock_timestamp() - w.lease) AS s) AS w
      LEFT JOIN LATERAL (
           SELECT w.name, w.beat_at, w.lease, w.fenced_at FROM awa.workers AS w
            WHERE w.id = g.worker_id LIMIT 1) AS o ON true
      LEFT JOIN LATERAL (
           SELECT j.id, j.state FROM awa.jobs AS j
            WHERE j.queue = g.queue AND j.ordering_key = g.ordering_key
              AND j.state IN ('running', 'waiting_external') LIMIT 1) AS t ON true
      LEFT JOIN LATERAL (
           SELECT j.id FROM awa.jobs AS j
            WHERE j.queue = g.queue AND j.ordering_key = g.ordering_key
              AND j.state IN ('available', 'scheduled', 'retryable')
            ORDER BY j.run_at, j.id LIMIT 1) AS h ON true;
END
$$;

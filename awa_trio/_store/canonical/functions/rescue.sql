-- rescue: fence the workers that missed their lease, and list the attempts nobody looks after.
--
--   most             int               how many attempts to list
--   deadline_slack   double precision  seconds past its deadline in which a worker settles an
--                                      attempt itself
--   kinds            text[]            list attempts of these kinds at once, ...
--   strangers_after  double precision  ... and of others once lost for so many seconds; infinite:
--                                      never
--
-- Returns a row per attempt that its worker will not settle: the worker is fenced or
-- gone (reason "STALE_WORKER"), or the deadline has long passed ("DEADLINE"). The caller
-- settles them under the same guard as a worker would, so an attempt that was settled
-- meanwhile is left alone. Called again and again: what was missed once is found the
-- next time.
--
-- Locks: the rows of the workers it fences, FOR UPDATE, skipping those whose claim or
-- settlement is in flight; they are alive, or caught the next time.
CREATE OR REPLACE FUNCTION awa.rescue(
    most int, deadline_slack double precision, kinds text[], strangers_after double precision
)
RETURNS TABLE (
    id bigint, kind awa.label, queue awa.label, priority awa.priority, attempt smallint,
    max_attempts awa.max_attempts, args json, metadata awa.metadata, tags awa.tags,
    created_at timestamptz, run_at timestamptz, deadline awa.deadline, ordering_key awa.label,
    run_lease bigint, progress json, callback_answer json, reason text
)
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    UPDATE awa.workers AS w SET fenced_at = clock_timestamp()
     WHERE w.id IN (SELECT s.id FROM awa.workers AS s
                     WHERE s.fenced_at IS NULL AND s.beat_at < clock_timestamp() - s.lease
                     ORDER BY s.id FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    SELECT j.id, j.kind, j.queue, j.priority, j.attempt, j.max_attempts, j.args, j.metadata,
           j.tags, j.created_at, j.run_at, j.deadline, j.ordering_key, j.run_lease,
           j.progress, j.callback_answer,
           CASE WHEN l.stale THEN 'STALE_WORKER' ELSE 'DEADLINE' END
      FROM awa.jobs AS j
      LEFT JOIN awa.workers AS w ON w.id = j.worker_id
     CROSS JOIN LATERAL (
           SELECT w.id IS NULL OR w.fenced_at IS NOT NULL AS stale,
                  CASE WHEN w.id IS NULL THEN j.attempted_at
                       WHEN w.fenced_at IS NOT NULL THEN w.fenced_at
                       ELSE j.deadline_at + make_interval(secs => deadline_slack) END AS since) AS l
     WHERE j.state = 'running'
       AND (l.stale OR l.since < clock_timestamp())
       AND (j.kind = ANY (kinds)
            OR (strangers_after < 'infinity'
                AND l.since < clock_timestamp() - make_interval(secs => least(strangers_after, 1e9))))
     LIMIT most;
    -- A fenced worker's row is only needed to refuse it; once it holds nothing it may go.
    DELETE FROM awa.workers AS w
     WHERE w.fenced_at < clock_timestamp() - interval '1 day'
       AND NOT EXISTS (SELECT FROM awa.jobs AS j WHERE j.state = 'running' AND j.worker_id = w.id);
END
$$;

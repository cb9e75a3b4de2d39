-- rescue: fence the workers that missed their lease, and list what nobody looks after.
--
--   most             int               how many attempts to list
--   deadline_slack   double precision  seconds past its deadline in which a worker settles an
--                                      attempt itself
--   kinds            text[]            list attempts of these kinds at once, ...
--   strangers_after  double precision  ... and of others once lost for so many seconds; infinite:
--                                      never
--
-- Returns a row per attempt that its worker will not settle: the worker is fenced or
-- gone (reason "STALE_WORKER"), or the deadline has long passed ("DEADLINE"). And a row, with
-- its token, per job that waits for a callback and will not hear of it: the callback timed
-- out ("CALLBACK_TIMEOUT"), or the handler waited in a worker that is fenced or gone
-- ("STALE_WAITER"; of any kind at once, for nothing is lost by it).
--
-- The caller settles them under the same guard as a worker would, so what was settled or
-- answered meanwhile is left alone. Called again and again: what was missed once is found
-- the next time.
--
-- Locks: as awa.fence.
CREATE OR REPLACE FUNCTION awa.rescue(
    most int, deadline_slack double precision, kinds text[], strangers_after double precision
)
RETURNS TABLE (
    id bigint, kind awa.label, queue awa.label, priority awa.priority, attempt smallint,
    max_attempts awa.max_attempts, args json, metadata awa.metadata, tags awa.tags,
    created_at timestamptz, run_at timestamptz, deadline awa.deadline, ordering_key awa.label,
    run_lease bigint, progress json, callback_answer json, limit_key awa.label, reason text, token text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    known text[] := kinds;  -- By another name than a column of awa.workers.
BEGIN
    PERFORM awa.fence();
    RETURN QUERY
    SELECT j.id, j.kind, j.queue, j.priority, j.attempt, j.max_attempts, j.args, j.metadata,
           j.tags, j.created_at, j.run_at, j.deadline, j.ordering_key, j.run_lease,
           j.progress, j.callback_answer, j.limit_key,
           CASE WHEN l.stale THEN 'STALE_WORKER' ELSE 'DEADLINE' END, NULL::text
      FROM awa.jobs AS j
      LEFT JOIN awa.workers AS w ON w.id = j.worker_id
     CROSS JOIN LATERAL (
           SELECT w.id IS NULL OR w.fenced_at IS NOT NULL AS stale,
                  CASE WHEN w.id IS NULL THEN j.attempted_at
                       WHEN w.fenced_at IS NOT NULL THEN w.fenced_at
                       ELSE j.deadline_at + make_interval(secs => deadline_slack) END AS since) AS l
     WHERE j.state = 'running'
       AND (l.stale OR l.since < clock_timestamp())
       AND (j.kind = ANY (known)
            OR (strangers_after < 'infinity'
                AND l.since < clock_timestamp() - make_interval(secs => least(strangers_after, 1e9))))
     UNION ALL
    SELECT j.id, j.kind, j.queue, j.priority, j.attempt, j.max_attempts, j.args, j.metadata,
           j.tags, j.created_at, j.run_at, j.deadline, j.ordering_key, j.run_lease,
           j.progress, j.callback_answer, j.limit_key, 'CALLBACK_TIMEOUT', j.callback_token
      FROM awa.jobs AS j
     WHERE j.state = 'waiting_external' AND j.callback_until < clock_timestamp()
       AND (j.kind = ANY (known)
            OR (strangers_after < 'infinity'
                AND j.callback_until
                    < clock_timestamp() - make_interval(secs => least(strangers_after, 1e9))))
     UNION ALL
    SELECT j.id, j.kind, j.queue, j.priority, j.attempt, j.max_attempts, j.args, j.metadata,
           j.tags, j.created_at, j.run_at, j.deadline, j.ordering_key, j.run_lease,
           j.progress, j.callback_answer, j.limit_key, 'STALE_WAITER', j.callback_token
      FROM awa.jobs AS j
      LEFT JOIN awa.workers AS w ON w.id = j.worker_id
     WHERE j.state = 'waiting_external' AND j.worker_id IS NOT NULL
       AND (w.id IS NULL OR w.fenced_at IS NOT NULL)
       AND (j.callback_until IS NULL OR j.callback_until >= clock_timestamp())
     LIMIT most;
    -- A fenced worker's row is only needed to refuse it; once it holds nothing it may go.
    DELETE FROM awa.workers AS w
     WHERE w.fenced_at < clock_timestamp() - interval '1 day'
       AND NOT EXISTS (SELECT FROM awa.jobs AS j WHERE j.state = 'running' AND j.worker_id = w.id);
END
$$;

-- claim: give a worker the jobs it has room for, each under a new lease.
--
--   worker          bigint              the worker's ID
--   queues          text[]              the queues it serves
--   limits          int[]               how many jobs it has room for in each
--   deadlines       double precision[]  seconds an attempt may take in each; 0: no limit
--   kinds           text[]              the kinds it can run, in whatever queue
--   kind_deadlines  double precision[]  seconds an attempt of each may take; null: the queue's
--
-- Returns a row per job, in the order they are to start. No row: nothing is due, or
-- others are claiming it at this moment. Jobs of other kinds are left for whoever
-- knows them.
--
-- Locks: the worker's row; the jobs, skipping those that anyone else has locked;
-- for a job whose mask tells waiting from running, the claim of its unique key.
-- A job that needs its key back for running, and finds it taken, is cancelled.
CREATE OR REPLACE FUNCTION awa.claim(
    worker bigint, queues text[], limits int[], deadlines double precision[],
    kinds text[], kind_deadlines double precision[]
) RETURNS TABLE (
    id bigint, kind awa.label, queue awa.label, priority awa.priority, attempt smallint,
    max_attempts awa.max_attempts, args json, metadata awa.metadata, tags awa.tags,
    created_at timestamptz, run_at timestamptz, deadline double precision, ordering_key awa.label,
    run_lease bigint, progress json, callback_answer json
)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    wanted record;
    lanes int;
    lane_kinds text[];
    lane_priorities smallint[];
    lane_deadlines double precision[];
    lane_limits int[];
    ids bigint[];
    rekeyed boolean;
BEGIN
    PERFORM awa.lock_worker(worker);
    FOR wanted IN
        SELECT u.queue, u.most, u.deadline
          FROM unnest(queues, limits, deadlines) AS u (queue, most, deadline)
    LOOP
        SELECT count(*), array_agg(l.kind), array_agg(l.priority), array_agg(l.deadline),
               array_agg(wanted.most)
          INTO lanes, lane_kinds, lane_priorities, lane_deadlines, lane_limits
          FROM awa.lanes(wanted.queue, kinds, kind_deadlines) AS l;
        CONTINUE WHEN lanes = 0;
        IF lanes > 1 THEN
            -- Which lanes the next jobs come from; locking comes after, so that no
            -- more rows are locked than are claimed.
            SELECT array_agg(t.kind), array_agg(t.priority), array_agg(t.deadline),
                   array_agg(t.most::int)
              INTO lane_kinds, lane_priorities, lane_deadlines, lane_limits
              FROM (SELECT h.kind, h.priority, h.deadline, count(*) AS most
                      FROM (SELECT l.kind, l.priority, l.deadline
                              FROM unnest(lane_kinds, lane_priorities, lane_deadlines)
                                   AS l (kind, priority, deadline)
                             CROSS JOIN LATERAL (
                                   SELECT j.run_at, j.id FROM awa.jobs AS j
                                    WHERE j.queue = wanted.queue AND j.kind = l.kind
                                      AND j.priority = l.priority
                                      AND j.state IN ('available', 'scheduled', 'retryable')
                                      AND j.run_at <= clock_timestamp()
                                    ORDER BY j.run_at, j.id LIMIT wanted.most) AS w
                             ORDER BY l.priority, w.run_at, w.id LIMIT wanted.most) AS h
                     GROUP BY h.kind, h.priority, h.deadline) AS t;
        END IF;
        SELECT array_agg(w.id),
               bool_or(awa.holds(w.unique_states, w.state) <> awa.holds(w.unique_states, 'running'))
          INTO ids, rekeyed
          FROM unnest(lane_kinds, lane_priorities, lane_limits) AS l (kind, priority, most)
         CROSS JOIN LATERAL (
               SELECT j.id, j.unique_states, j.state FROM awa.jobs AS j
                WHERE j.queue = wanted.queue AND j.kind = l.kind AND j.priority = l.priority
                  AND j.state IN ('available', 'scheduled', 'retryable')
                  AND j.run_at <= clock_timestamp()
                ORDER BY j.run_at, j.id LIMIT l.most
                FOR UPDATE SKIP LOCKED) AS w;
        IF rekeyed THEN
            BEGIN
                ids := awa.rekey_claimed(ids);
            EXCEPTION WHEN lock_not_available THEN
                -- A producer's open transaction has one of the keys: the others go on.
                ids := ARRAY(SELECT j.id FROM awa.jobs AS j
                              WHERE j.id = ANY (ids) AND awa.holds(j.unique_states, j.state)
                                                       = awa.holds(j.unique_states, 'running'));
            END;
        END IF;
        RETURN QUERY
        WITH claimed AS (
            UPDATE awa.jobs AS j
               SET state = 'running', worker_id = worker, run_lease = j.run_lease + 1,
                   attempt = j.attempt + 1, attempted_at = clock_timestamp(),
                   deadline_at = clock_timestamp() + make_interval(secs => nullif(
                       coalesce(j.deadline, l.deadline, wanted.deadline), 0))
              FROM unnest(ids) AS c (id), unnest(lane_kinds, lane_deadlines) AS l (kind, deadline)
             WHERE j.id = c.id AND l.kind = j.kind
            RETURNING j.id, j.kind, j.queue, j.priority, j.attempt, j.max_attempts, j.args,
                      j.metadata, j.tags, j.created_at, j.run_at,
                      coalesce(j.deadline, l.deadline, wanted.deadline) AS deadline,
                      j.ordering_key, j.run_lease, j.progress, j.callback_answer)
        SELECT * FROM claimed AS c ORDER BY c.priority, c.run_at, c.id;
    END LOOP;
END
$$;

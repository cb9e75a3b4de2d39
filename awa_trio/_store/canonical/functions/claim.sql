-- claim: give a worker the jobs it has room for, each under a new lease.
--
--   worker          bigint              the worker's ID
--   queues          text[]              the queues it serves
--   limits          int[]               how many jobs it has room for in each
--   deadlines       double precision[]  seconds an attempt may take in each; 0: no limit
--   ageings         double precision[]  seconds of waiting in each that count as one priority;
--                                       0: none do
--   kinds           text[]              the kinds it can run, in whatever queue
--   kind_deadlines  double precision[]  seconds an attempt of each may take; null: the queue's
--   after_queues, ...                   jobs not to be looked at, as for awa.lanes. A worker that
--                                       names the last it has claimed is spared the remains of
--                                       those, and asks for all jobs now and then
--
-- Returns a row per job, in the order they are to start: by priority less what waiting
-- makes up for, then run_at, then ID. No row: nothing is due, or others are claiming it at
-- this moment. Nothing of a queue that is paused, or has nothing left of its rate. Jobs of
-- other kinds are left for whoever knows them. Of the jobs with one ordering key at most the
-- head starts, and only while none of that key runs; of those with one limit key no more than
-- its queue allows.
--
-- Locks: the worker's row; what awa.set_queue takes alone, shared; queues with limits, by name;
-- the jobs, skipping those that anyone else has locked; for a job whose mask tells waiting from
-- running, the claim of its unique key.
-- A job that needs its key back for running, and finds it taken, is cancelled. One whose key
-- an open transaction has waits on, and those behind it do not: up to 100 are passed by.
CREATE OR REPLACE FUNCTION awa.claim(
    worker bigint, queues text[], limits int[], deadlines double precision[],
    ageings double precision[], kinds text[], kind_deadlines double precision[],
    after_queues text[] DEFAULT NULL, after_kinds text[] DEFAULT NULL,
    after_priorities smallint[] DEFAULT NULL, after_run_ats timestamptz[] DEFAULT NULL,
    after_ids bigint[] DEFAULT NULL
) RETURNS TABLE (
    id bigint, kind awa.label, queue awa.label, priority awa.priority, attempt smallint,
    max_attempts awa.max_attempts, args json, metadata awa.metadata, tags awa.tags,
    created_at timestamptz, run_at timestamptz, deadline double precision, ordering_key awa.label,
    run_lease bigint, progress json, callback_answer json, limit_key awa.label
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    wanted record;
    at timestamptz;
    lanes int;
    lane_kinds text[];
    lane_priorities smallint[];
    lane_limits int[];
    lane_run_ats timestamptz[];
    lane_ids bigint[];
    heads bigint[];
    head_kinds text[];
    head_priorities smallint[];
    head_run_ats timestamptz[];
    head_leases bigint[];
    ids bigint[];
    rekeyed boolean;
    heads_rekeyed boolean;
    started int;
    total int;
    has_rate boolean;
    late boolean;
    keyed boolean;
    room int;
    patience int;
    held bigint[];
    passed bigint[];  -- over, because an open transaction has their keys
BEGIN
    PERFORM awa.lock_worker(worker);
    PERFORM pg_advisory_xact_lock_shared(awa.queues_lock());  -- Against awa.set_queue.
    FOR wanted IN
        SELECT u.queue, u.most, u.deadline, u.ageing
          FROM unnest(queues, limits, deadlines, ageings) AS u (queue, most, deadline, ageing)
         ORDER BY u.queue COLLATE "C"
    LOOP
        at := clock_timestamp();
        room := wanted.most;
        has_rate := false;
        IF EXISTS (SELECT FROM awa.queues AS q WHERE q.queue = wanted.queue) THEN
            SELECT r.room, r.has_rate INTO room, has_rate
              FROM awa.room_in_queue(wanted.queue, wanted.most) AS r;
            CONTINUE WHEN room <= 0;
        END IF;
        total := 0;
        patience := 50;
        passed := '{}';
        LOOP
            -- All of them, or those of the queue before would take up this one's room.
            heads := NULL; head_kinds := NULL; head_priorities := NULL;
            head_run_ats := NULL; head_leases := NULL;
            SELECT count(*), array_agg(l.kind), array_agg(l.priority), array_agg(room),
                   array_agg(l.after_run_at), array_agg(l.after_id)
              INTO lanes, lane_kinds, lane_priorities, lane_limits, lane_run_ats, lane_ids
              FROM awa.lanes(wanted.queue, kinds, after_queues, after_kinds, after_priorities,
                             after_run_ats, after_ids) AS l;
            SELECT EXISTS (SELECT FROM awa.jobs AS j
                            WHERE j.queue = wanted.queue
                              AND (j.ordering_key IS NOT NULL OR j.limit_key IS NOT NULL)
                              AND j.state IN ('available', 'scheduled', 'retryable')
                              AND NOT j.known_due AND j.run_at <= at),
                   EXISTS (SELECT FROM awa.jobs AS j
                            WHERE j.queue = wanted.queue AND j.ordering_key IS NOT NULL
                              AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due)
                   OR EXISTS (SELECT FROM awa.jobs AS j
                            WHERE j.queue = wanted.queue AND j.limit_key IS NOT NULL
                              AND j.ordering_key IS NULL
                              AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due)
              INTO late, keyed;
            IF late THEN
                PERFORM awa.note_due(wanted.queue, at);
            END IF;
            IF late OR keyed THEN
                SELECT array_agg(h.id), array_agg(h.kind), array_agg(h.priority),
                       array_agg(h.run_at), array_agg(h.run_lease)
                  INTO heads, head_kinds, head_priorities, head_run_ats, head_leases
                  FROM awa.heads(wanted.queue, kinds, room, wanted.ageing, at) AS h
                 WHERE h.id <> ALL (passed);
            END IF;
            EXIT WHEN lanes = 0 AND heads IS NULL;
            IF lanes > 1 OR lanes = 1 AND heads IS NOT NULL OR cardinality(heads) > room THEN
                -- Which lanes and keys the next jobs come from; locking comes after, so that
                -- no more rows are locked than are claimed.
                SELECT array_agg(g.kind) FILTER (WHERE g.head IS NULL),
                       array_agg(g.priority) FILTER (WHERE g.head IS NULL),
                       array_agg(g.most) FILTER (WHERE g.head IS NULL),
                       array_agg(g.after_run_at) FILTER (WHERE g.head IS NULL),
                       array_agg(g.after_id) FILTER (WHERE g.head IS NULL),
                       array_agg(g.head) FILTER (WHERE g.head IS NOT NULL),
                       array_agg(g.run_at) FILTER (WHERE g.head IS NOT NULL),
                       array_agg(g.run_lease) FILTER (WHERE g.head IS NOT NULL)
                  INTO lane_kinds, lane_priorities, lane_limits, lane_run_ats, lane_ids,
                       heads, head_run_ats, head_leases
                  FROM (SELECT n.kind, n.priority, n.head, count(*)::int AS most,
                               min(n.after_run_at) AS after_run_at, min(n.after_id) AS after_id,
                               min(n.run_at) AS run_at, min(n.run_lease) AS run_lease
                          FROM (SELECT * FROM (
                                    SELECT l.kind, l.priority, l.after_run_at, l.after_id,
                                           w.run_at, w.id, NULL::bigint, NULL::bigint
                                      FROM unnest(lane_kinds, lane_priorities, lane_run_ats, lane_ids)
                                           AS l (kind, priority, after_run_at, after_id)
                                     CROSS JOIN LATERAL (
                                           SELECT j.run_at, j.id FROM awa.jobs AS j
                                            WHERE j.queue = wanted.queue AND j.kind = l.kind
                                              AND j.priority = l.priority
                                              AND j.state IN ('available', 'scheduled', 'retryable')
                                              AND j.ordering_key IS NULL AND j.limit_key IS NULL AND j.run_at <= at
                                              AND (j.run_at, j.id) > (l.after_run_at, l.after_id)
                                              AND j.id <> ALL (passed)
                                            ORDER BY j.run_at, j.id LIMIT room) AS w
                                     UNION ALL
                                    SELECT h.kind, h.priority, NULL, NULL,
                                           h.run_at, h.id, h.id, h.run_lease
                                      FROM unnest(heads, head_kinds, head_priorities, head_run_ats,
                                                  head_leases)
                                           AS h (id, kind, priority, run_at, run_lease)
                                    ) AS w (kind, priority, after_run_at, after_id, run_at, id,
                                            head, run_lease)
                                 ORDER BY awa.aged(w.priority, at - w.run_at, wanted.ageing),
                                          w.run_at, w.id
                                 LIMIT room) AS n
                         GROUP BY n.kind, n.priority, n.head) AS g;
            END IF;
            SELECT array_agg(w.id),
                   bool_or(awa.holds(w.unique_states, w.state) <> awa.holds(w.unique_states, 'running'))
              INTO ids, rekeyed
              FROM unnest(lane_kinds, lane_priorities, lane_limits, lane_run_ats, lane_ids)
                   AS l (kind, priority, most, after_run_at, after_id)
             CROSS JOIN LATERAL (
                   SELECT j.id, j.unique_states, j.state FROM awa.jobs AS j
                    WHERE j.queue = wanted.queue AND j.kind = l.kind AND j.priority = l.priority
                      AND j.state IN ('available', 'scheduled', 'retryable')
                      AND j.ordering_key IS NULL AND j.limit_key IS NULL AND j.run_at <= at
                      AND (j.run_at, j.id) > (l.after_run_at, l.after_id)
                      AND j.id <> ALL (passed)
                    ORDER BY j.run_at, j.id LIMIT l.most
                    FOR UPDATE SKIP LOCKED) AS w;
            IF heads IS NOT NULL THEN
                -- Those that are as they were when they were found to be the heads of their keys.
                -- In order of their keys, so that two claims cannot wait for each other.
                SELECT array_agg(w.id ORDER BY w.ordering_key),
                       bool_or(awa.holds(w.unique_states, w.state)
                               <> awa.holds(w.unique_states, 'running'))
                  INTO heads, heads_rekeyed
                  FROM (SELECT j.id, j.unique_states, j.state, j.ordering_key
                          FROM unnest(heads, head_run_ats, head_leases) AS h (id, run_at, run_lease)
                          JOIN awa.jobs AS j ON j.id = h.id
                         WHERE j.run_at = h.run_at AND j.run_lease = h.run_lease
                           AND j.state IN ('available', 'scheduled', 'retryable')
                           FOR UPDATE OF j SKIP LOCKED) AS w;
            END IF;
            EXIT WHEN ids IS NULL AND heads IS NULL;
            started := NULL;
            IF heads IS NOT NULL THEN
                BEGIN
                    RETURN QUERY SELECT * FROM awa.start_jobs(
                        worker, ids || heads, coalesce(rekeyed, false) OR heads_rekeyed, kinds,
                        kind_deadlines, wanted.deadline, wanted.ageing, at, patience);
                    GET DIAGNOSTICS started = ROW_COUNT;
                    ids := ids || heads;
                    rekeyed := coalesce(rekeyed, false) OR heads_rekeyed;
                EXCEPTION WHEN unique_violation THEN
                    -- A job of one of the keys came before its head, and started, since the
                    -- heads were read: the keys are left for the next claim.
                END;
            END IF;
            IF started IS NULL THEN
                RETURN QUERY SELECT * FROM awa.start_jobs(
                    worker, ids, rekeyed, kinds, kind_deadlines, wanted.deadline, wanted.ageing, at,
                    patience);
                GET DIAGNOSTICS started = ROW_COUNT;
            END IF;
            total := total + started;
            IF heads IS NOT NULL THEN
                PERFORM awa.spend_of_keys(wanted.queue, worker, heads);
            END IF;
            EXIT WHEN rekeyed IS NOT TRUE;
            -- Those whose keys open transactions have: the places they leave are for others.
            held := ARRAY(SELECT j.id FROM awa.jobs AS j
                           WHERE j.id = ANY (ids) AND j.state IN ('available', 'scheduled', 'retryable'));
            room := room - started;
            passed := passed || held;
            patience := 1;
            EXIT WHEN held = '{}' OR room = 0 OR cardinality(passed) > 100;
        END LOOP;
        IF has_rate AND total > 0 THEN
            PERFORM awa.spend(wanted.queue, ARRAY[''], ARRAY[total]);
        END IF;
    END LOOP;
END
$$;

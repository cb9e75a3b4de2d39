-- settle: move jobs out of the states they are in, and insert what comes with each move.
--
-- One call is one set of plans and one transaction. A plan applies only if its guard
-- still holds; its inserts happen exactly if it applied.
--
--   worker            bigint              the worker whose attempts these are; null for others
--   patience          int                 milliseconds to wait for any one lock
--   strict            boolean             raise AW002 rather than cancel a job whose key is taken
--   job_ids           bigint[]            plans: the job
--   run_leases        bigint[]              guard: the lease it was claimed under, or read with
--   from_states       awa.job_state[]       guard: the state it is in
--   to_states         awa.job_state[]       the state it moves to
--   attempts          int[]                 attempts it has spent from then on
--   delays            double precision[]    seconds until its next start; null leaves run_at alone
--   new_errors        text[]                what to add to its errors; null for nothing
--   tokens            text[]                guard: the callback it expects, unanswered unless it is
--                                           to wait for it; null for any or none
--   answers           json[]                the callback's answer; null for none
--   progress          json[]                its progress; null leaves it alone
--   outputs           json[]                what it leaves for people to read; null for nothing
--   dead_letters      text[]                why it is a dead letter; null for none
--   parents           int[]               inserts: the number of the plan each belongs to, from 1,
--                                           ascending; null if no plan inserts anything
--   kinds ... limit_keys                    as for awa.enqueue_many
--   notify            boolean             whether to wake workers for what is inserted or may run now
--
-- Returns one row:
--   stale       int[]     the numbers of the plans that did not apply: rescued, cancelled, taken
--                         over, or settled by an earlier try whose answer was lost
--   new_ids     bigint[]  for each insert its ID; null where the plan was stale or a job holds its key
--   new_holders bigint[]  for each insert the job that holds its key, if one does; null if none does
--   losers      bigint[]  jobs that needed their unique key back and found it taken: they are
--                         cancelled instead, or completed without it
--   holders     bigint[]  for each of those, the job that holds the key
--
-- Whoever runs an attempt, or waits with it, that is settled by others is told on the
-- channel awa:cut, with the job, its lease and its new state.
--
-- A completed job never moves: nobody reopens it (ADR-046, "Guarantees", 2).
--
-- Locks, in this order: the worker's row; what awa.complete_in_lanes locks; the jobs, by ID;
-- the claims of unique keys to take, to give back or found taken, in byte order. Waits at
-- most `patience` for each.
CREATE OR REPLACE FUNCTION awa.settle(
    worker bigint, patience int, strict boolean,
    job_ids bigint[], run_leases bigint[], from_states awa.job_state[], to_states awa.job_state[],
    attempts int[], delays double precision[], new_errors text[], tokens text[], answers json[],
    progress json[], outputs json[], dead_letters text[],
    parents int[], kinds text[], queues text[], args json[], priorities smallint[],
    max_attempts smallint[], metadata json[], tags text[], run_at timestamptz[],
    unique_keys bytea[], unique_states smallint[], ordering_keys text[],
    deadlines double precision[], limit_keys text[], notify boolean,
    OUT stale int[], OUT new_ids bigint[], OUT new_holders bigint[],
    OUT losers bigint[], OUT holders bigint[]
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET lock_timeout = '250ms'
AS $$
#variable_conflict use_column
DECLARE
    done int[]; applied int[]; in_order boolean;
    releasing bigint[]; released_keys bytea[]; taking bigint[]; taken_keys bytea[];
    lost bigint[]; lost_to bigint[];
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true);
    IF worker IS NOT NULL THEN
        PERFORM awa.lock_worker(worker);
    END IF;

    done := awa.complete_in_lanes(
        worker, job_ids, run_leases, from_states, to_states, attempts, new_errors, tokens,
        outputs);
    applied := done;
    IF done IS NULL OR cardinality(done) < cardinality(job_ids) THEN
        WITH moved AS (
            UPDATE awa.jobs AS j
               SET state = CASE WHEN p.to_state = 'waiting_external' AND j.callback_until IS NULL
                                THEN 'available'  -- It was answered before it could park.
                                ELSE p.to_state END,
                   worker_id = NULL,
                   deadline_at = NULL,
                   attempt = CASE WHEN p.to_state = 'waiting_external' AND j.callback_until IS NULL
                                  THEN p.attempt - 1 ELSE p.attempt END,
                   run_at = CASE WHEN p.delay IS NULL THEN j.run_at
                                 ELSE clock_timestamp() + make_interval(secs => p.delay) END,
                   finalized_at = CASE WHEN p.to_state IN ('completed', 'failed', 'cancelled')
                                       THEN clock_timestamp() END,
                   -- A callback that was resolved, before or by this, is remembered as such.
                   callback_token = CASE WHEN p.to_state = 'waiting_external' OR j.callback_until IS NULL
                                           OR p.token IS NOT NULL AND p.to_state <> 'retryable'
                                         THEN j.callback_token END,
                   callback_until = CASE WHEN p.to_state = 'waiting_external' THEN j.callback_until END,
                   callback_answer = CASE WHEN p.to_state NOT IN ('completed', 'failed', 'cancelled')
                                          THEN coalesce(p.answer, j.callback_answer) END,
                   progress = CASE WHEN p.to_state <> 'completed' THEN coalesce(p.progress, j.progress) END,
                   output = p.output,
                   dead_letter = p.dead_letter,
                   known_due = (j.ordering_key IS NOT NULL OR j.limit_key IS NOT NULL)
                               AND p.to_state = 'available' AND coalesce(p.delay <= 0, true),
                   errors = CASE WHEN p.error IS NULL THEN j.errors
                                 ELSE awa.add_error(j.errors, p.error, j.attempt,
                                                    p.to_state IN ('failed', 'cancelled')) END
              FROM (SELECT * FROM unnest(job_ids, run_leases, from_states, to_states, attempts, delays,
                                         new_errors, tokens, answers, progress, outputs, dead_letters)
                           WITH ORDINALITY AS u (job_id, run_lease, from_state, to_state, attempt, delay,
                                                 error, token, answer, progress, output, dead_letter,
                                                 number)
                     ORDER BY u.job_id) AS p
             WHERE j.id = p.job_id AND j.run_lease = p.run_lease AND j.state = p.from_state
               AND j.state <> 'completed'
               AND (p.token IS NULL
                    OR j.callback_token = p.token
                       AND (j.callback_until IS NOT NULL OR p.to_state = 'waiting_external'))
            RETURNING p.number::int, j.id, j.unique_key, j.ordering_key IS NOT NULL OR j.limit_key IS NOT NULL AS in_order,
                      awa.holds(j.unique_states, p.from_state) AS held,
                      awa.holds(j.unique_states, j.state) AS holds
        )
        SELECT done || array_agg(m.number), bool_or(m.in_order),
               array_agg(m.id) FILTER (WHERE m.held AND NOT m.holds),
               array_agg(m.unique_key) FILTER (WHERE m.held AND NOT m.holds),
               array_agg(m.id ORDER BY m.number) FILTER (WHERE m.holds AND NOT m.held),
               array_agg(m.unique_key ORDER BY m.number) FILTER (WHERE m.holds AND NOT m.held)
          INTO applied, in_order, releasing, released_keys, taking, taken_keys
          FROM moved AS m;
    END IF;

    IF coalesce(cardinality(applied), 0) < cardinality(job_ids) THEN
        stale := ARRAY(SELECT n FROM generate_series(1, cardinality(job_ids)) AS n
                        WHERE n <> ALL (coalesce(applied, '{}')));
    END IF;

    IF parents IS NOT NULL THEN
        -- A stale plan's inserts are dropped here, before any of them can be the one
        -- that another plan's insert is found to duplicate.
        new_ids := ARRAY(SELECT CASE WHEN stale IS NULL OR p <> ALL (stale)
                                     THEN nextval('awa.job_ids') END
                           FROM unnest(parents) WITH ORDINALITY AS u (p, ord) ORDER BY u.ord);
        IF unique_keys IS NOT NULL THEN
            SELECT taking || array_agg(n.id ORDER BY n.ord), taken_keys || array_agg(n.unique_key ORDER BY n.ord)
              INTO taking, taken_keys
              FROM unnest(new_ids, unique_keys, unique_states, run_at)
                   WITH ORDINALITY AS n (id, unique_key, unique_states, run_at, ord)
             WHERE n.id IS NOT NULL
               AND awa.holds(n.unique_states, CASE WHEN n.run_at > now() THEN 'scheduled'
                                                   ELSE 'available' END::awa.job_state);
        END IF;
    END IF;

    IF taking IS NOT NULL OR releasing IS NOT NULL THEN
        SELECT array_agg(x.job_id), array_agg(x.holder_id) INTO lost, lost_to
          FROM awa.exchange_keys(releasing, released_keys, taking, taken_keys) AS x;
    END IF;
    IF lost IS NOT NULL THEN
        SELECT array_agg(l.holder ORDER BY n.ord),
               array_agg(CASE WHEN l.holder IS NULL THEN n.id END ORDER BY n.ord)
          INTO new_holders, new_ids
          FROM unnest(new_ids) WITH ORDINALITY AS n (id, ord)
          LEFT JOIN unnest(lost, lost_to) AS l (id, holder) ON l.id = n.id;
        SELECT array_agg(l.id), array_agg(l.holder) INTO losers, holders
          FROM unnest(lost, lost_to) AS l (id, holder) WHERE l.id = ANY (job_ids);
        IF losers IS NOT NULL THEN
            IF strict THEN
                RAISE EXCEPTION 'job % holds the unique key', holders[1]
                      USING ERRCODE = 'AW002', DETAIL = holders[1];
            END IF;
            PERFORM awa.cancel_duplicates(losers, holders);
        END IF;
    END IF;

    IF worker IS NULL THEN
        -- Whoever runs one of these should stop: the attempt is settled without it.
        PERFORM pg_notify('awa:cut', format('%s %s %s', u.job_id, u.run_lease, u.to_state))
           FROM unnest(job_ids, run_leases, from_states, to_states) WITH ORDINALITY
                AS u (job_id, run_lease, from_state, to_state, number)
          WHERE u.from_state IN ('running', 'waiting_external') AND u.number = ANY (applied);
    END IF;
    IF notify AND (in_order OR to_states && '{available,waiting_external}') THEN
        -- A job that moves makes way for the next of its key.
        PERFORM pg_notify('awa:jobs', j.queue)
           FROM awa.jobs AS j
          WHERE j.id = ANY (job_ids) AND (j.state = 'available' OR j.ordering_key IS NOT NULL OR j.limit_key IS NOT NULL)
          GROUP BY j.queue;
    END IF;
    IF parents IS NOT NULL THEN
        PERFORM awa.insert_jobs(
            new_ids, kinds, queues, args, priorities, max_attempts, metadata, tags, run_at,
            unique_keys, unique_states, ordering_keys, deadlines, limit_keys, notify);
    END IF;
END
$$;

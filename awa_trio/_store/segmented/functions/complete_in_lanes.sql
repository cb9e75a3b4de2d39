-- complete_in_lanes: complete the jobs of a set that are in lanes; move others out of them.
--
--   worker         bigint           whose attempts these are; null for others
--   job_ids        bigint[]         plans, as for awa.settle: the job
--   run_leases     bigint[]           guard: the lease it was claimed under, or read with
--   from_states    awa.job_state[]    guard: the state it is in
--   to_states      awa.job_state[]    the state it moves to
--   attempts       int[]              attempts it has spent from then on
--   new_errors     text[]             what to add to its errors
--   tokens         text[]             guard: the callback it expects
--   outputs        json[]             what it leaves for people to read
--
-- Returns the numbers of the plans that are done with: completions by a worker that leave nothing
-- but the fact. Of all others, the jobs are in awa.jobs when this returns; null if that is all.
--
-- What is said here of a job is said under a lock, after a look at what was said before. A
-- transaction that keeps its first snapshot cannot look: there a completion takes the job out of
-- its lane, and fails if someone else has.
--
-- Locks: as awa.lock_in_lanes.
CREATE OR REPLACE FUNCTION awa.complete_in_lanes(
    worker bigint, job_ids bigint[], run_leases bigint[], from_states awa.job_state[], to_states awa.job_state[],
    attempts int[], new_errors text[], tokens text[], outputs json[]
) RETURNS int[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    locked record;
    ids bigint[];
    done int[];
BEGIN
    -- In a lane a job is in its first attempt, or before it.
    IF new_errors IS NULL AND tokens IS NULL AND outputs IS NULL
       AND 1 = ALL (run_leases) AND 'running' = ALL (from_states)
       AND 'completed' = ALL (to_states) AND 1 = ALL (attempts)
    THEN
        ids := job_ids;
    ELSE
        ids := ARRAY(SELECT p.job_id
                       FROM unnest(job_ids, run_leases, from_states) AS p (job_id, run_lease, from_state)
                      WHERE (p.run_lease, p.from_state) IN ((0, 'available'), (1, 'running')));
    END IF;
    SELECT * INTO locked FROM awa.lock_in_lanes(ids);
    IF locked.claims IS NULL AND locked.unclaimed = '{}' THEN
        RETURN NULL;
    END IF;
    IF locked.claims IS NOT NULL AND worker IS NOT NULL
       AND current_setting('transaction_isolation') = 'read committed'
    THEN
        WITH open AS MATERIALIZED (
            SELECT c.number AS claim, c.segment,
                   c.ids - (SELECT coalesce(range_agg(e.ids), '{}') FROM awa.lane_ends AS e
                             WHERE e.segment = c.segment AND e.claim = c.number) AS ids
              FROM awa.lane_claims AS c WHERE c.number = ANY (locked.claims)),
        ended AS MATERIALIZED (
            SELECT o.claim, o.segment, u.number::int, u.job_id
              FROM unnest(job_ids, run_leases, from_states, to_states, attempts,
                          new_errors, tokens, outputs) WITH ORDINALITY
                   AS u (job_id, run_lease, from_state, to_state, attempt, error, token,
                         output, number)
              JOIN open AS o ON o.ids @> u.job_id
             WHERE u.run_lease = 1 AND u.from_state = 'running' AND u.to_state = 'completed'
               AND u.attempt = 1 AND u.error IS NULL AND u.token IS NULL AND u.output IS NULL),
        written AS (
            INSERT INTO awa.lane_ends (segment, claim, completed, ids)
            SELECT e.segment, e.claim, true, range_agg(int8range(e.job_id, e.job_id + 1))
              FROM ended AS e GROUP BY e.segment, e.claim)
        SELECT array_agg(e.number) INTO done FROM ended AS e;
    END IF;
    IF cardinality(done) IS DISTINCT FROM cardinality(job_ids) THEN
        PERFORM awa.move_to_rows(ids, locked.claims, locked.unclaimed);
    END IF;
    RETURN done;
END
$$;

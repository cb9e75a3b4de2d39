-- start_jobs: give jobs to a worker, each under a new lease.
--
--   worker          bigint              the worker's ID
--   ids             bigint[]            the jobs, locked by the caller; null for none
--   rekey           boolean             whether a mask among them tells waiting from running
--   kinds           text[]              their kinds, ...
--   kind_deadlines  double precision[]  ... and the seconds an attempt of each may take; null:
--   queue_deadline  double precision    the queue's; 0: no limit
--   ageing          double precision    seconds of waiting that count as one priority; 0: none do
--   at              timestamptz         the moment up to which they have waited
--   patience        int                 milliseconds to wait for their unique keys, where `rekey`
--
-- Returns the jobs, in the order they are to start. One that needs its unique key back, and
-- finds it taken, is cancelled instead. One whose key an open transaction has is left as it
-- is, alone.
--
-- Locks: the caller's; where `rekey`, as awa.rekey_claimed. Of two transactions that start
-- jobs of one ordering key the second waits for the first, and then fails with a
-- unique_violation.
CREATE OR REPLACE FUNCTION awa.start_jobs(
    worker bigint, ids bigint[], rekey boolean, kinds text[],
    kind_deadlines double precision[], queue_deadline double precision, ageing double precision,
    at timestamptz, patience int
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
    waits text := current_setting('lock_timeout');
    free bigint[];
    one bigint;
BEGIN
    IF rekey THEN
        BEGIN
            PERFORM set_config('lock_timeout', patience::text, true);
            ids := awa.rekey_claimed(ids);
        EXCEPTION WHEN lock_not_available THEN
            -- A producer's open transaction has one of the keys: the others go on.
            free := ARRAY(SELECT j.id FROM awa.jobs AS j
                           WHERE j.id = ANY (ids) AND awa.holds(j.unique_states, j.state)
                                                    = awa.holds(j.unique_states, 'running'));
            PERFORM set_config('lock_timeout', '1', true);
            FOR one IN SELECT j.id FROM awa.jobs AS j
                        WHERE j.id = ANY (ids) AND j.id <> ALL (free) ORDER BY j.unique_key
            LOOP
                BEGIN
                    free := free || awa.rekey_claimed(ARRAY[one]);
                EXCEPTION WHEN lock_not_available THEN
                    CONTINUE;
                END;
            END LOOP;
            ids := free;
        END;
        PERFORM set_config('lock_timeout', waits, true);
    END IF;
    RETURN QUERY
    WITH claimed AS (
        UPDATE awa.jobs AS j
           -- One row that holds what nobody writes must not keep the others from being claimed.
           SET state = 'running', worker_id = worker,
               run_lease = CASE WHEN j.run_lease < 9223372036854775807 THEN j.run_lease + 1
                                ELSE 1 END,
               attempt = least(j.attempt + 1, j.max_attempts), attempted_at = clock_timestamp(),
               deadline_at = clock_timestamp() + make_interval(secs => nullif(
                   coalesce(j.deadline, l.deadline, queue_deadline), 0))
          FROM unnest(ids) AS c (id), unnest(kinds, kind_deadlines) AS l (kind, deadline)
         WHERE j.id = c.id AND l.kind = j.kind
        RETURNING j.id, j.kind, j.queue, j.priority, j.attempt, j.max_attempts, j.args,
                  j.metadata, j.tags, j.created_at, j.run_at,
                  coalesce(j.deadline, l.deadline, queue_deadline) AS deadline,
                  j.ordering_key, j.run_lease, j.progress, j.callback_answer, j.limit_key)
    SELECT * FROM claimed AS c
     ORDER BY awa.aged(c.priority, at - c.run_at, ageing), c.run_at, c.id;
END
$$;

-- insert_jobs: insert jobs whose IDs are assigned and whose unique keys are theirs.
--
--   ids             bigint[]       the new jobs' IDs; null leaves one out
--   the others                     as for awa.enqueue_many, in the same order
--   notify          boolean        whether to tell workers of the queues that got work
--
-- Returns nothing. A notification is a hint: one per queue and transaction, with
-- the queue's name, none for a job of the future.
--
-- Locks: none that another transaction waits for.
CREATE OR REPLACE FUNCTION awa.insert_jobs(
    ids bigint[], kinds text[], queues text[], args json[], priorities smallint[],
    max_attempts smallint[], metadata json[], tags text[], run_at timestamptz[],
    unique_keys bytea[], unique_states smallint[], ordering_keys text[],
    deadlines double precision[], limit_keys text[], notify boolean
) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO awa.jobs
           (id, kind, queue, args, priority, max_attempts, metadata, tags, run_at, state,
            unique_key, unique_states, ordering_key, limit_key, known_due, deadline)
    SELECT n.id, n.kind, n.queue, n.args, n.priority, n.max_attempts, n.metadata, n.tags::text[],
           coalesce(n.run_at, now()),
           CASE WHEN n.run_at > now() THEN 'scheduled' ELSE 'available' END::awa.job_state,
           n.unique_key, n.unique_states, n.ordering_key, n.limit_key,
           (n.ordering_key IS NOT NULL OR n.limit_key IS NOT NULL)
           AND coalesce(n.run_at <= now(), true), n.deadline
      FROM unnest(ids, kinds, queues, args, priorities, max_attempts, metadata, tags, run_at,
                  unique_keys, unique_states, ordering_keys, deadlines, limit_keys)
           AS n (id, kind, queue, args, priority, max_attempts, metadata, tags, run_at,
                 unique_key, unique_states, ordering_key, deadline, limit_key)
     WHERE n.id IS NOT NULL;
    IF notify THEN
        PERFORM pg_notify('awa:jobs', n.queue)
           FROM unnest(ids, queues, run_at) AS n (id, queue, run_at)
          WHERE n.id IS NOT NULL AND coalesce(n.run_at <= now(), true)
          GROUP BY n.queue;
    END IF;
END
$$;

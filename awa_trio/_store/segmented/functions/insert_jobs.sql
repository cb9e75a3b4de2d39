-- insert_jobs: insert jobs whose IDs are assigned and whose unique keys are theirs.
--
--   ids             bigint[]       the new jobs' IDs; null leaves one out
--   the others                     as for awa.enqueue_many, in the same order
--   notify          boolean        whether to tell workers of the queues that got work
--
-- Returns nothing. Ordinary jobs are appended to the current segment, others become rows
-- (awa.insert_rows, which is this function of the canonical engine).
--
-- A segment may cease to be the current one at any moment, and be taken for drained once
-- those that append to it have ended. So whoever has appended to one looks again, and takes
-- back what might be overlooked.
--
-- Locks: none that another transaction waits for, but rotation, which does without.
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
DECLARE
    number bigint := pg_sequence_last_value('awa.segment_numbers');
    current bigint;
    appended bigint;
BEGIN
    LOOP
        INSERT INTO awa.lane_jobs
               (segment, id, kind, queue, args, priority, max_attempts, metadata, tags,
                unique_key, unique_states, deadline)
        SELECT awa.segment_of(number), n.id, n.kind, n.queue, n.args, n.priority, n.max_attempts,
               n.metadata, n.tags::text[], n.unique_key, n.unique_states, n.deadline
          FROM unnest(ids, kinds, queues, args, priorities, max_attempts, metadata, tags, run_at,
                      unique_keys, unique_states, ordering_keys, deadlines, limit_keys)
               AS n (id, kind, queue, args, priority, max_attempts, metadata, tags, run_at,
                     unique_key, unique_states, ordering_key, deadline, limit_key)
         WHERE n.id IS NOT NULL
           AND awa.goes_in_lane(n.run_at, n.ordering_key, n.limit_key, n.unique_key, n.unique_states);
        GET DIAGNOSTICS appended = ROW_COUNT;
        current := pg_sequence_last_value('awa.segment_numbers');
        EXIT WHEN current = number;
        PERFORM awa.take_back(awa.segment_of(number), ids);
        number := current;
    END LOOP;
    IF appended < cardinality(ids) THEN
        PERFORM awa.insert_rows(
            ARRAY(SELECT CASE WHEN NOT awa.goes_in_lane(n.run_at, n.ordering_key, n.limit_key,
                                                        n.unique_key, n.unique_states) THEN n.id END
                    FROM unnest(ids, run_at, ordering_keys, limit_keys, unique_keys, unique_states)
                         WITH ORDINALITY
                         AS n (id, run_at, ordering_key, limit_key, unique_key, unique_states, ord)
                   ORDER BY n.ord),
            kinds, queues, args, priorities, max_attempts, metadata, tags, run_at, unique_keys,
            unique_states, ordering_keys, deadlines, limit_keys, notify);
    END IF;
    IF notify AND appended > 0 THEN
        PERFORM pg_notify('awa:jobs', n.queue)
           FROM unnest(ids, queues, run_at) AS n (id, queue, run_at)
          WHERE n.id IS NOT NULL AND n.run_at IS NULL
          GROUP BY n.queue;
    END IF;
END
$$;

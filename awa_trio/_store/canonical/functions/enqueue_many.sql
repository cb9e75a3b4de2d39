-- enqueue_many: insert jobs, leaving out those whose unique key another job holds.
--
--   kinds           text[]              1 to 200 characters each
--   queues          text[]              1 to 200 characters each
--   args            json[]              stored as given, to the letter
--   priorities      smallint[]          1 first, 4 last
--   max_attempts    smallint[]          1 to 1000
--   metadata        json[]              objects; null for none
--   tags            text[]              each the text of a text[] of 1 to 20 tags; null for none
--   run_at          timestamptz[]       earliest start; null for at once
--   unique_keys     bytea[]             16 bytes each; null: never a duplicate
--   unique_states   smallint[]          masks of the states that hold the key; null without a key
--   ordering_keys   text[]              1 to 200 characters; null for none
--   deadlines       double precision[]  seconds an attempt may take; 0 no limit, null the queue's
--   limit_keys      text[]              1 to 200 characters; null for none
--   notify          boolean             whether to wake workers
--
-- Returns one row per job, in order: its ID and true, or false and the ID of the job
-- that holds its key. Raises AW004 if one of the queues is drained. The caller's transaction decides whether any of it happened.
--
-- Locks: the claims of the unique keys it takes, in byte order, until commit. Waits
-- for transactions that are inserting one of them. A key that another job holds is
-- not locked: a caller's transaction may stay open for long.
CREATE OR REPLACE FUNCTION awa.enqueue_many(
    kinds text[], queues text[], args json[], priorities smallint[],
    max_attempts smallint[], metadata json[], tags text[], run_at timestamptz[],
    unique_keys bytea[], unique_states smallint[], ordering_keys text[],
    deadlines double precision[], limit_keys text[] DEFAULT NULL, notify boolean DEFAULT true
) RETURNS TABLE (id bigint, inserted boolean)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    ids bigint[];
    holders bigint[];
    missing boolean;
BEGIN
    IF pg_sequence_last_value('awa.drains') > 0 THEN
        PERFORM awa.refuse_drained(queues);
    END IF;
    ids := ARRAY(SELECT nextval('awa.job_ids') FROM generate_series(1, cardinality(kinds)));
    IF unique_keys IS NOT NULL THEN
        LOOP
            INSERT INTO awa.unique_claims (unique_key, job_id)
            SELECT DISTINCT ON (n.unique_key) n.unique_key, n.id
              FROM unnest(ids, unique_keys, unique_states, run_at)
                   WITH ORDINALITY AS n (id, unique_key, unique_states, run_at, ord)
             WHERE awa.holds(n.unique_states, CASE WHEN n.run_at > now() THEN 'scheduled'
                                                   ELSE 'available' END::awa.job_state)
             ORDER BY n.unique_key, n.ord
                ON CONFLICT (unique_key) DO NOTHING;
            -- A new statement, so that it sees who won: itself, or a transaction that
            -- committed while the insert waited for it.
            SELECT array_agg(coalesce(c.job_id, n.id) ORDER BY n.ord),
                   bool_or(c.job_id IS NULL AND n.held)
              INTO holders, missing
              FROM (SELECT u.id, u.unique_key, u.ord,
                           awa.holds(u.unique_states, CASE WHEN u.run_at > now() THEN 'scheduled'
                                                      ELSE 'available' END::awa.job_state) AS held
                      FROM unnest(ids, unique_keys, unique_states, run_at)
                           WITH ORDINALITY AS u (id, unique_key, unique_states, run_at, ord)) AS n
              LEFT JOIN awa.unique_claims AS c ON n.held AND c.unique_key = n.unique_key;
            -- Nobody holds a key that was not to be had a moment ago: it was let go of.
            EXIT WHEN missing IS NOT TRUE;
        END LOOP;
    ELSE
        holders := ids;
    END IF;
    PERFORM awa.insert_jobs(
        ARRAY(SELECT CASE WHEN n.id = n.holder THEN n.id END
                FROM unnest(ids, holders) WITH ORDINALITY AS n (id, holder, ord) ORDER BY n.ord),
        kinds, queues, args, priorities, max_attempts, metadata, tags, run_at, unique_keys,
        unique_states, ordering_keys, deadlines, limit_keys, notify);
    RETURN QUERY SELECT n.holder, n.id = n.holder
                   FROM unnest(ids, holders) WITH ORDINALITY AS n (id, holder, ord) ORDER BY n.ord;
END
$$;

-- exchange_keys: let go of unique keys and take others, in one pass over all of them.
--
--   releasing       bigint[]  jobs that let go of their key
--   released_keys   bytea[]   those keys, in the same order
--   taking          bigint[]  jobs that need a key: those that exist before those to be
--                             inserted, each in order of precedence
--   taken_keys      bytea[]   those keys, in the same order
--
-- Returns the jobs that did not get their key, each with the job that holds it.
-- Of two takers of one key the first gets it. A key that is let go of and taken in
-- the same call changes hands.
--
-- Locks: the claim of every key named, in byte order, until commit, also where
-- another job holds it: whoever was told "someone holds your key" commits before
-- that someone can let go. One pass, because a transaction that first took keys
-- and then let go of others could deadlock with one doing the opposite. Waits for
-- transactions that are inserting or deleting one of the keys.
CREATE OR REPLACE FUNCTION awa.exchange_keys(
    releasing bigint[], released_keys bytea[], taking bigint[], taken_keys bytea[]
) RETURNS TABLE (job_id bigint, holder_id bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO awa.unique_claims AS c (unique_key, job_id)
    SELECT DISTINCT ON (k.unique_key) k.unique_key, k.job_id
      FROM (SELECT t.unique_key, t.job_id, t.ord
              FROM unnest(taken_keys, taking) WITH ORDINALITY AS t (unique_key, job_id, ord)
             UNION ALL
            SELECT r.unique_key, r.job_id, NULL
              FROM unnest(released_keys, releasing) AS r (unique_key, job_id)) AS k
     ORDER BY k.unique_key, k.ord NULLS LAST
        ON CONFLICT (unique_key) DO UPDATE SET job_id = excluded.job_id
     WHERE c.job_id = ANY (releasing) AND c.job_id <> excluded.job_id;

    DELETE FROM awa.unique_claims AS c
     USING unnest(released_keys, releasing) AS r (unique_key, job_id)
     WHERE c.unique_key = r.unique_key AND c.job_id = r.job_id;

    RETURN QUERY
    SELECT t.job_id, c.job_id
      FROM unnest(taken_keys, taking) AS t (unique_key, job_id)
      JOIN awa.unique_claims AS c ON c.unique_key = t.unique_key
     WHERE c.job_id <> t.job_id;
END
$$;

-- purge_dead_letters: remove a batch of dead letters, and their hold on their unique keys.
--
--   ids ... most  as for awa.dead_letters: which
--
-- Returns one row:
--   done     int     how many were removed
--   last_id  bigint  the job to go on after; null if there are no more
--
-- Locks: the jobs, by ID; then the claims of their unique keys, in byte order.
CREATE OR REPLACE FUNCTION awa.purge_dead_letters(
    ids bigint[], kind text, queue text, reason text, after_id bigint, most int,
    OUT done int, OUT last_id bigint
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    batch bigint[] := awa.dead_letters(ids, kind, queue, reason, after_id, most);
BEGIN
    last_id := CASE WHEN cardinality(batch) = most THEN batch[most] END;
    done := awa.remove_jobs(batch);
END
$$;

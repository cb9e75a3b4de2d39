-- list_dead_letters: a page of dead letters, newest first.
--
--   ids        bigint[]  only these; null: all
--   kind       text      only of this; null: all
--   queue      text      only of this; null: all
--   reason     text      only with this; null: all
--   before_id  bigint    only with a smaller ID, for the next page; null: from the newest
--   most       int       how many
--
-- Returns a row per job.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.list_dead_letters(
    ids bigint[], kind text, queue text, reason text, before_id bigint, most int
) RETURNS SETOF awa.job
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    -- All at once: each call of awa.get_jobs is planned anew.
    SELECT g.*
      FROM awa.get_jobs(ARRAY(
           SELECT j.id FROM awa.jobs AS j
            WHERE j.dead_letter IS NOT NULL
              AND (ids IS NULL OR j.id = ANY (ids))
              AND (list_dead_letters.kind IS NULL OR j.kind = list_dead_letters.kind)
              AND (list_dead_letters.queue IS NULL OR j.queue = list_dead_letters.queue)
              AND (reason IS NULL OR j.dead_letter = reason)
              AND (before_id IS NULL OR j.id < before_id)
            ORDER BY j.id DESC LIMIT most)) AS g
     ORDER BY g.id DESC;
END
$$;

-- dead_letters: lock a batch of dead letters.
--
--   ids       bigint[]  only these; null: all
--   kind      text      only of this; null: all
--   queue     text      only of this; null: all
--   reason    text      only with this; null: all
--   after_id  bigint    only with a greater ID: the batch after the one that ended with it
--   most      int       how many
--
-- Returns their IDs, ascending; empty if there are none.
--
-- Locks: the jobs, by ID.
CREATE OR REPLACE FUNCTION awa.dead_letters(
    ids bigint[], kind text, queue text, reason text, after_id bigint, most int
) RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    -- A plan of its own for every call: one ID is looked up, a filter reads an index.
    RETURN (
        SELECT coalesce(array_agg(d.id ORDER BY d.id), '{}')
          FROM (SELECT j.id FROM awa.jobs AS j
                 WHERE j.dead_letter IS NOT NULL AND j.id > after_id
                   AND (ids IS NULL OR j.id = ANY (ids))
                   AND (dead_letters.kind IS NULL OR j.kind = dead_letters.kind)
                   AND (dead_letters.queue IS NULL OR j.queue = dead_letters.queue)
                   AND (reason IS NULL OR j.dead_letter = reason)
                 ORDER BY j.id LIMIT most FOR UPDATE) AS d);
END
$$;

-- count_dead_letters: how many dead letters there are of a sort.
--
--   kind    text  only of this; null: all
--   queue   text  only of this; null: all
--   reason  text  only with this; null: all
--   most    int   how many to count
--
-- Returns the number, `most` meaning at least so many.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.count_dead_letters(kind text, queue text, reason text, most int)
RETURNS int
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN (SELECT count(*)
              FROM (SELECT FROM awa.jobs AS j
                     WHERE j.dead_letter IS NOT NULL
                       AND (count_dead_letters.kind IS NULL OR j.kind = count_dead_letters.kind)
                       AND (count_dead_letters.queue IS NULL OR j.queue = count_dead_letters.queue)
                       AND (reason IS NULL OR j.dead_letter = reason)
                     LIMIT most) AS c);
END
$$;

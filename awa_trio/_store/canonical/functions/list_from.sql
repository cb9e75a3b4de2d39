-- list_from: a page of the jobs that have rows, oldest first.
--
--   states    text[]  only these; null: all
--   kind      text    only this; null: all
--   queue     text    only this; null: all
--   tag       text    only with this; null: all
--   after_id  bigint  only with a greater ID: the page after the one that ended with it
--   most      int     how many
--
-- Returns a row per job. Jobs in lanes, which are available, run, or have completed, are not
-- among them.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.list_from(
    states text[], kind text, queue text, tag text, after_id bigint, most int
) RETURNS SETOF awa.job
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    found bigint[];
BEGIN
    IF states <@ '{failed,cancelled,running}' THEN
        found := ARRAY(
            SELECT j.id FROM awa.rare_jobs(states) AS j
             WHERE (list_from.kind IS NULL OR j.kind = list_from.kind)
               AND (list_from.queue IS NULL OR j.queue = list_from.queue)
               AND (tag IS NULL OR tag = ANY (j.tags))
               AND j.id > after_id
             ORDER BY j.id LIMIT most);
    ELSE
        found := ARRAY(
            SELECT j.id FROM awa.jobs AS j
             WHERE (states IS NULL OR j.state = ANY (states::awa.job_state[]))
               AND (list_from.kind IS NULL OR j.kind = list_from.kind)
               AND (list_from.queue IS NULL OR j.queue = list_from.queue)
               AND (tag IS NULL OR tag = ANY (j.tags))
               AND j.id > after_id
             ORDER BY j.id LIMIT most);
    END IF;
    -- All at once: each call of awa.get_jobs is planned anew.
    RETURN QUERY SELECT g.* FROM awa.get_jobs(found) AS g ORDER BY g.id;
END
$$;

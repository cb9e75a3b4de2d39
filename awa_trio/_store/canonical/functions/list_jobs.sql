-- list_jobs: a page of jobs, newest first.
--
--   states     text[]  only these; null: all
--   kind       text    only this; null: all
--   queue      text    only this; null: all
--   tag        text    only with this; null: all
--   before_id  bigint  only with a smaller ID, for the next page; null: from the newest
--   most       int     how many
--
-- Returns a row per job. Those that failed, were cancelled or run are found by indexes of their
-- own, not among all that has completed.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.list_jobs(
    states text[], kind text, queue text, tag text, before_id bigint, most int
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
            SELECT j.id
              FROM awa.rare_jobs(states) AS j
             WHERE (list_jobs.kind IS NULL OR j.kind = list_jobs.kind)
               AND (list_jobs.queue IS NULL OR j.queue = list_jobs.queue)
               AND (tag IS NULL OR tag = ANY (j.tags))
               AND (before_id IS NULL OR j.id < before_id)
             ORDER BY j.id DESC LIMIT most);
    ELSE
        found := ARRAY(
            SELECT j.id FROM awa.jobs AS j
             WHERE (states IS NULL OR j.state = ANY (states::awa.job_state[]))
               AND (list_jobs.kind IS NULL OR j.kind = list_jobs.kind)
               AND (list_jobs.queue IS NULL OR j.queue = list_jobs.queue)
               AND (tag IS NULL OR tag = ANY (j.tags))
               AND (before_id IS NULL OR j.id < before_id)
             ORDER BY j.id DESC LIMIT most);
    END IF;
    -- All at once: each call of awa.get_jobs is planned anew.
    RETURN QUERY SELECT g.* FROM awa.get_jobs(found) AS g ORDER BY g.id DESC;
END
$$;

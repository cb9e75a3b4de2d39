-- list_jobs: a page of jobs, newest first.
--
--   states     text[]  only these; null: all
--   kind       text    only this; null: all
--   queue      text    only this; null: all
--   tag        text    only with this; null: all
--   before_id  bigint  only with a smaller ID, for the next page; null: from the newest
--   most       int     how many
--
-- Returns a row per job.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.list_jobs(
    states text[], kind text, queue text, tag text, before_id bigint, most int
) RETURNS SETOF awa.job
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    -- All at once: each call of awa.get_jobs is planned anew.
    SELECT g.*
      FROM awa.get_jobs(ARRAY(
           SELECT r.id FROM awa.list_rows(states, kind, queue, tag, before_id, most) AS r
            UNION ALL
           SELECT l FROM awa.list_in_lanes(states, kind, queue, tag, before_id, most) AS l
            ORDER BY 1 DESC LIMIT most)) AS g
     ORDER BY g.id DESC
$$;

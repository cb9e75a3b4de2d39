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
AS $$
    SELECT g.*
      FROM (SELECT r.id FROM awa.list_rows(states, kind, queue, tag, before_id, most) AS r
             UNION ALL
            SELECT * FROM (
                SELECT s.id FROM awa.lane_states AS s
                 WHERE (states IS NULL OR s.state = ANY (states))
                   AND (states IS NULL OR states && '{available,running,completed}')
                   AND (list_jobs.kind IS NULL OR s.kind = list_jobs.kind)
                   AND (list_jobs.queue IS NULL OR s.queue = list_jobs.queue)
                   AND (tag IS NULL OR tag = ANY (s.tags))
                   AND (before_id IS NULL OR s.id < before_id)
                 ORDER BY s.id DESC LIMIT most) AS s
             ORDER BY 1 DESC LIMIT most) AS p
     CROSS JOIN LATERAL awa.get_jobs(ARRAY[p.id]) AS g
     ORDER BY g.id DESC
$$;

-- count_jobs: how many jobs there are of a sort.
--
--   states     text[]  only these; null: all
--   kind       text    only this; null: all
--   queue      text    only this; null: all
--   tag        text    only with this; null: all
--   most       int     how many to count
--
-- Returns the number, `most` meaning at least so many.
--
-- Locks: none. Where few jobs match, it looks at all.
CREATE OR REPLACE FUNCTION awa.count_jobs(
    states text[], kind text, queue text, tag text, most int
) RETURNS int
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    IF states <@ '{failed,cancelled,running}' THEN
        RETURN (SELECT count(*)
                  FROM (SELECT FROM awa.rare_jobs(states) AS j
                         WHERE (count_jobs.kind IS NULL OR j.kind = count_jobs.kind)
                           AND (count_jobs.queue IS NULL OR j.queue = count_jobs.queue)
                           AND (tag IS NULL OR tag = ANY (j.tags))
                         LIMIT most) AS c);
    END IF;
    RETURN (SELECT count(*)
              FROM (SELECT FROM awa.jobs AS j
                     WHERE (states IS NULL OR j.state = ANY (states::awa.job_state[]))
                       AND (count_jobs.kind IS NULL OR j.kind = count_jobs.kind)
                       AND (count_jobs.queue IS NULL OR j.queue = count_jobs.queue)
                       AND (tag IS NULL OR tag = ANY (j.tags))
                     LIMIT most) AS c);
END
$$;

-- follow_ups: the jobs that were inserted with the settlements of a job.
--
--   job_id  bigint  the job that triggered them
--   most    int     how many jobs to look at, to either side of each moment at which it was settled
--
-- Returns a row per job that bears its stamp, by ID; a few others may bear something alike.
--
-- Nothing is kept for this: a follow-up gets its ID a moment after its job is settled, so it is
-- found among the jobs of that time. One that is further off than `most` is not.
--
-- Locks: none. Reads some forty jobs to find each moment, and 2 * `most` around it; there are at
-- most 27 of them.
CREATE OR REPLACE FUNCTION awa.follow_ups(job_id bigint, most int) RETURNS SETOF awa.job
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    stamp text := format('%%"awa:triggered_by":%s%%', job_id);
    moments timestamptz[];
    moment timestamptz;
    near bigint;
    seen bigint := job_id;
    found bigint[] := '{}';
BEGIN
    -- Waiting for a callback leaves no mark but that it began after the attempt did.
    SELECT array_agg(DISTINCT m.at ORDER BY m.at) INTO moments
      FROM awa.get_jobs(ARRAY[job_id]) AS g
     CROSS JOIN LATERAL (
           SELECT g.attempted_at AS at
            UNION ALL
           SELECT g.finalized_at
            UNION ALL
           SELECT (e ->> 'at')::timestamptz FROM jsonb_array_elements(g.errors) AS e) AS m
     WHERE m.at IS NOT NULL;
    FOREACH moment IN ARRAY coalesce(moments, '{}') LOOP
        near := awa.id_at(moment);
        found := found || ARRAY(
            SELECT s.id
              FROM (SELECT s.id, s.metadata FROM awa.job_stamps() AS s
                     WHERE s.id < near AND s.id > seen ORDER BY s.id DESC LIMIT most) AS s
             WHERE s.metadata::text LIKE stamp);
        seen := greatest(seen, near - 1);
        found := found || ARRAY(
            SELECT s.id
              FROM (SELECT s.id, s.metadata FROM awa.job_stamps() AS s
                     WHERE s.id > seen ORDER BY s.id LIMIT most) AS s
             WHERE s.metadata::text LIKE stamp);
    END LOOP;
    RETURN QUERY SELECT g.* FROM awa.get_jobs(found) AS g ORDER BY g.id;
END
$$;

-- storage: what the jobs take up, and where.
--
-- Returns a row per part: its name; what it is good for at present; roughly how many jobs are in
-- it, as the statistics say; its size in bytes with its indexes.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.storage()
RETURNS TABLE (part text, condition text, jobs bigint, bytes bigint)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.part, r.condition, r.jobs, r.bytes FROM awa.storage_of_rows() AS r
     UNION ALL
    SELECT * FROM (
        SELECT 'segment ' || s.segment,
               CASE WHEN s.number > n.last_value THEN 'empty, its turn will come'
                    WHEN s.number = n.last_value THEN 'new jobs are appended here'
                    WHEN s.over THEN 'all jobs are over; emptied when their retention has passed'
                    WHEN s.drained THEN 'all jobs are claimed, some are running'
                    ELSE 'jobs wait to be claimed, or a producer has not committed' END,
               pg_stat_get_live_tuples(format('awa.lane_jobs_%s', s.segment)::regclass),
               pg_total_relation_size(format('awa.lane_jobs_%s', s.segment)::regclass)
               + pg_total_relation_size(format('awa.lane_claims_%s', s.segment)::regclass)
               + pg_total_relation_size(format('awa.lane_ends_%s', s.segment)::regclass)
          FROM awa.segments AS s CROSS JOIN awa.segment_numbers AS n
         ORDER BY s.number) AS s
$$;

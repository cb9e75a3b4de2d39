-- ahead_of: how many jobs come before one in its lane.
--
--   job_id  bigint  the job
--   most    int     how many to count
--
-- Returns how many jobs of its queue, kind and priority wait, are due, and come before it; 0 if
-- it does not wait, or has an ordering key, and so is in no lane.
--
-- Locks: none. Counts index entries.
CREATE OR REPLACE FUNCTION awa.ahead_of(job_id bigint, most int) RETURNS int
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    job record;
    rows int := awa.ahead_of_rows(job_id, most);
BEGIN
    -- Looked up one by one: a join is planned as if there were a thousand.
    SELECT g.id, g.queue, g.kind, g.priority, g.run_at, g.state, g.ordering_key, g.limit_key,
           (SELECT b.xid FROM awa.lane_jobs AS b WHERE b.id = job_id) AS xid,
           (SELECT s.number FROM awa.segments AS s
             WHERE s.segment = (SELECT b.segment FROM awa.lane_jobs AS b
                                 WHERE b.id = job_id)) AS number
      INTO job
      FROM awa.get_jobs(ARRAY[job_id]) AS g;
    IF NOT FOUND OR job.ordering_key IS NOT NULL OR job.limit_key IS NOT NULL
       OR job.state NOT IN ('available', 'scheduled', 'retryable')
    THEN
        RETURN 0;
    END IF;
    IF job.xid IS NOT NULL THEN
        rows := (SELECT count(*)
                   FROM (SELECT FROM awa.jobs AS j
                          WHERE j.queue = job.queue AND j.kind = job.kind
                            AND j.priority = job.priority
                            AND j.state IN ('available', 'scheduled', 'retryable')
                            AND j.ordering_key IS NULL AND j.limit_key IS NULL
                            AND j.run_at <= job.run_at
                          ORDER BY j.run_at, j.id LIMIT most) AS a);
    END IF;
    RETURN least(most, rows + (
        SELECT count(*)
          FROM (SELECT
                  FROM awa.segments AS s
                 CROSS JOIN LATERAL awa.lane_cursor(s.segment, job.queue, job.kind, job.priority) AS c
                 CROSS JOIN LATERAL awa.lane_ahead(
                       s.segment, job.queue, job.kind, job.priority, c.xid, c.id, c.open_xids,
                       c.open_ids, most) AS a
                 WHERE NOT s.drained AND s.number <= pg_sequence_last_value('awa.segment_numbers')
                   AND CASE WHEN job.xid IS NULL THEN a.created_at < job.run_at
                            ELSE (s.number, a.xid, a.id) < (job.number, job.xid, job.id) END
                 LIMIT most) AS l));
END
$$;

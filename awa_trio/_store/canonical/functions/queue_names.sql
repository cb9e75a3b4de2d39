-- queue_names: the queues that have live jobs.
--
-- Returns their names, in no order.
--
-- Locks: none. Steps from queue to queue; of those that only run or wait for a callback, reads
-- 100,000 jobs at most.
CREATE OR REPLACE FUNCTION awa.queue_names() RETURNS SETOF text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT awa.waiting_queues(NULL)
     UNION
    SELECT r.queue::text
      FROM ((SELECT j.queue FROM awa.jobs AS j WHERE j.state = 'running' LIMIT 100000)
             UNION ALL
            (SELECT j.queue FROM awa.jobs AS j WHERE j.state = 'waiting_external' LIMIT 100000)) AS r
$$;

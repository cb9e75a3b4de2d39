-- queue_names: the queues that have live jobs.
--
-- Returns their names, in no order, some more than once.
--
-- Locks: none. As awa.queue_names_of_rows, which is this function of the canonical engine; steps
-- from lane to lane.
CREATE OR REPLACE FUNCTION awa.queue_names() RETURNS SETOF text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT awa.queue_names_of_rows()
     UNION ALL
    SELECT l.queue FROM awa.segments AS s CROSS JOIN LATERAL awa.segment_lanes(s.segment) AS l
     WHERE NOT s.over AND EXISTS (SELECT FROM awa.ready_lanes(l.queue, NULL))
     UNION ALL
    SELECT c.queue FROM awa.open_claims() AS o
      JOIN awa.lane_claims AS c ON c.segment = o.segment AND c.number = o.number
$$;

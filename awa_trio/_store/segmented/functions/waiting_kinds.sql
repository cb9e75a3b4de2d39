-- waiting_kinds: of which kinds jobs wait in queues.
--
--   queues  text[]  which queues
--
-- Returns a row per queue and kind. Of jobs with an ordering key, only those that have come to
-- be due count.
--
-- Locks: none. Steps from kind to kind.
CREATE OR REPLACE FUNCTION awa.waiting_kinds(queues text[]) RETURNS TABLE (queue text, kind text)
LANGUAGE plpgsql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.queue, r.kind FROM awa.waiting_kinds_of_rows(queues) AS r
     UNION
    SELECT q.queue, l.kind
      FROM unnest(queues) AS q (queue) CROSS JOIN LATERAL awa.ready_lanes(q.queue, NULL) AS l;
END
$$;

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
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    here text;
    known text[];
BEGIN
    FOREACH queue IN ARRAY queues LOOP
        known := '{}';
        here := '';
        LOOP
            SELECT j.kind INTO here FROM awa.jobs AS j
             WHERE j.queue = waiting_kinds.queue
               AND j.ordering_key IS NULL AND j.limit_key IS NULL
               AND j.state IN ('available', 'scheduled', 'retryable') AND j.kind > here
             ORDER BY j.kind LIMIT 1;
            EXIT WHEN NOT FOUND;
            known := known || here;
        END LOOP;
        here := '';
        LOOP
            SELECT j.kind INTO here FROM awa.jobs AS j
             WHERE j.queue = waiting_kinds.queue AND j.known_due AND j.ordering_key IS NOT NULL
               AND j.state IN ('available', 'scheduled', 'retryable') AND j.kind > here
             ORDER BY j.kind LIMIT 1;
            EXIT WHEN NOT FOUND;
            known := known || here;
        END LOOP;
        known := known || awa.limited_kinds(queue, NULL);
        RETURN QUERY SELECT waiting_kinds.queue, k FROM (SELECT DISTINCT k FROM unnest(known) AS k) AS u;
    END LOOP;
END
$$;

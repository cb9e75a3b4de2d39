-- lanes: the lanes of a queue in which known kinds wait.
--
--   wanted_queue  text    the queue
--   kinds         text[]  the kinds the caller can run
--
-- Returns one row per (kind, priority) that has a job waiting, due or not. Jobs
-- with an ordering key are in no lane: see awa.key_heads.
--
-- Locks: none. Steps from the head of one lane to the head of the next, so its cost
-- is the number of lanes, whatever the number of jobs in them.
CREATE OR REPLACE FUNCTION awa.lanes(wanted_queue text, kinds text[])
RETURNS TABLE (kind text, priority smallint)
LANGUAGE plpgsql STABLE ROWS 4
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    lane record;
BEGIN
    SELECT j.kind, j.priority INTO lane FROM awa.jobs AS j
     WHERE j.queue = wanted_queue AND j.ordering_key IS NULL
       AND j.state IN ('available', 'scheduled', 'retryable')
     ORDER BY j.kind, j.priority LIMIT 1;
    WHILE lane IS NOT NULL LOOP
        IF lane.kind = ANY (kinds) THEN
            kind := lane.kind;
            priority := lane.priority;
            RETURN NEXT;
        END IF;
        SELECT j.kind, j.priority INTO lane FROM awa.jobs AS j
         WHERE j.queue = wanted_queue AND j.ordering_key IS NULL
           AND j.state IN ('available', 'scheduled', 'retryable')
           AND (j.kind, j.priority) > (lane.kind, lane.priority)
         ORDER BY j.kind, j.priority LIMIT 1;
    END LOOP;
END
$$;

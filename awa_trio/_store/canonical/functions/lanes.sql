-- lanes: the lanes of a queue in which known kinds wait.
--
--   wanted_queue      text           the queue
--   kinds             text[]         the kinds the caller can run
--   after_queues      text[]         lanes whose first jobs are not to be looked at, ...
--   after_kinds       text[]
--   after_priorities  smallint[]
--   after_run_ats     timestamptz[]  ... each with the last of these
--   after_ids         bigint[]
--
-- Returns one row per (kind, priority) that has a job waiting, due or not, with the position
-- after which it has: of a lane that was not named, just before its first job. Jobs with an ordering key are in no lane: see awa.key_heads.
--
-- Locks: none. Steps from the head of one lane to the head of the next, so its cost
-- is the number of lanes, whatever the number of jobs in them. What has left the head of a
-- lane costs something too, until it can be vacuumed away: that is what the positions are for.
CREATE OR REPLACE FUNCTION awa.lanes(
    wanted_queue text, kinds text[], after_queues text[] DEFAULT NULL,
    after_kinds text[] DEFAULT NULL, after_priorities smallint[] DEFAULT NULL,
    after_run_ats timestamptz[] DEFAULT NULL, after_ids bigint[] DEFAULT NULL
) RETURNS TABLE (kind text, priority smallint, after_run_at timestamptz, after_id bigint)
LANGUAGE plpgsql STABLE ROWS 4
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    lane record;
    known record;
    last_kind text := '';
    last_priority smallint := 0;
BEGIN
    FOR known IN
        SELECT a.kind COLLATE "C" AS kind, a.priority, a.run_at, a.id, true AS real
          FROM unnest(after_queues, after_kinds, after_priorities, after_run_ats, after_ids)
               AS a (queue, kind, priority, run_at, id)
         WHERE a.queue = wanted_queue AND a.kind = ANY (kinds)
         UNION ALL
        SELECT U&'\+10FFFF', 0::smallint, NULL, NULL, false  -- after every other
         ORDER BY 1, 2
    LOOP
        LOOP
            -- In three parts, because an upper bound of two columns ends no scan of an index,
            -- and would read all that has left the lane which it is to stop at.
            SELECT * INTO lane FROM (
                (SELECT j.kind, j.priority, j.run_at, j.id FROM awa.jobs AS j
                  WHERE j.queue = wanted_queue AND j.ordering_key IS NULL AND j.limit_key IS NULL
                    AND j.state IN ('available', 'scheduled', 'retryable')
                    AND j.kind = last_kind AND j.priority > last_priority
                    AND j.priority < CASE WHEN known.kind > last_kind THEN 32767 ELSE known.priority END
                  ORDER BY j.priority, j.run_at, j.id LIMIT 1)
                 UNION ALL
                (SELECT j.kind, j.priority, j.run_at, j.id FROM awa.jobs AS j
                  WHERE j.queue = wanted_queue AND j.ordering_key IS NULL AND j.limit_key IS NULL
                    AND j.state IN ('available', 'scheduled', 'retryable')
                    AND j.kind > last_kind AND j.kind < known.kind
                  ORDER BY j.kind, j.priority, j.run_at, j.id LIMIT 1)
                 UNION ALL
                (SELECT j.kind, j.priority, j.run_at, j.id FROM awa.jobs AS j
                  WHERE j.queue = wanted_queue AND j.ordering_key IS NULL AND j.limit_key IS NULL
                    AND j.state IN ('available', 'scheduled', 'retryable')
                    AND known.kind > last_kind
                    AND j.kind = known.kind AND j.priority < known.priority
                  ORDER BY j.priority, j.run_at, j.id LIMIT 1)) AS l
             LIMIT 1;
            EXIT WHEN lane IS NULL;
            IF lane.kind = ANY (kinds) THEN
                RETURN QUERY SELECT lane.kind::text, lane.priority::smallint,
                                    lane.run_at, lane.id - 1;
            END IF;
            last_kind := lane.kind;
            last_priority := lane.priority;
        END LOOP;
        IF known.real AND EXISTS (
               SELECT FROM awa.jobs AS j
                WHERE j.queue = wanted_queue AND j.kind = known.kind AND j.priority = known.priority
                  AND j.state IN ('available', 'scheduled', 'retryable')
                  AND j.ordering_key IS NULL AND j.limit_key IS NULL
                  AND (j.run_at, j.id) > (known.run_at, known.id)) THEN
            RETURN QUERY SELECT known.kind, known.priority, known.run_at, known.id;
        END IF;
        last_kind := known.kind;
        last_priority := known.priority;
    END LOOP;
END
$$;

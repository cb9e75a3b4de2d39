-- backlogs: what is due in queues and not claimed, of whatever kind.
--
--   queues  text[]  which queues
--   most    int     jobs to count in each
--
-- Returns a row per queue, in the order given: how many jobs are due, `most` meaning at
-- least so many; and the seconds since the first of them was due, null if there is none.
--
-- Locks: none. Steps from lane to lane and counts index entries of due jobs only, so its
-- cost is bounded by the lanes and by `most`, whatever else waits for a later time; and
-- from key to key, of which it looks at 1,000 for the oldest job.
CREATE OR REPLACE FUNCTION awa.backlogs(queues text[], most int)
RETURNS TABLE (queue text, due int, oldest double precision)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    -- A value, not the volatile function: only a value bounds an index scan.
    moment timestamptz := clock_timestamp();
    lane record;
    counted int;
    first timestamptz;
    head timestamptz;
    more int;
    key text;
    head_of record;
BEGIN
    FOR queue IN SELECT q.queue FROM unnest(queues) WITH ORDINALITY AS q (queue, ord) ORDER BY q.ord
    LOOP
        counted := 0;
        first := NULL;
        SELECT j.kind, j.priority INTO lane FROM awa.jobs AS j
         WHERE j.queue = backlogs.queue AND j.state IN ('available', 'scheduled', 'retryable')
           AND j.ordering_key IS NULL AND j.limit_key IS NULL
         ORDER BY j.kind, j.priority LIMIT 1;
        WHILE lane IS NOT NULL LOOP
            SELECT count(*), min(d.run_at) INTO more, head
              FROM (SELECT j.run_at FROM awa.jobs AS j
                     WHERE j.queue = backlogs.queue AND j.kind = lane.kind
                       AND j.priority = lane.priority
                       AND j.state IN ('available', 'scheduled', 'retryable')
                       AND j.ordering_key IS NULL AND j.limit_key IS NULL
                       AND j.run_at <= moment
                     -- One at least: the oldest may be in the last lane.
                     ORDER BY j.run_at, j.id LIMIT greatest(most - counted, 1)) AS d;
            counted := counted + more;
            first := least(first, head);
            SELECT j.kind, j.priority INTO lane FROM awa.jobs AS j
             WHERE j.queue = backlogs.queue AND j.state IN ('available', 'scheduled', 'retryable')
               AND j.ordering_key IS NULL AND j.limit_key IS NULL
               AND (j.kind, j.priority) > (lane.kind, lane.priority)
             ORDER BY j.kind, j.priority LIMIT 1;
        END LOOP;
        -- Jobs that wait by a key: those known to be due, those that are due and not known
        -- to be, and the head of each key, which is its oldest; of a limit key, of each kind
        -- and priority.
        SELECT count(*) INTO more
          FROM (SELECT FROM awa.jobs AS j
                 WHERE j.queue = backlogs.queue AND j.known_due AND j.ordering_key IS NOT NULL
                   AND j.state IN ('available', 'scheduled', 'retryable')
                 LIMIT greatest(most - counted, 0)) AS d;
        counted := counted + more;
        SELECT count(*) INTO more
          FROM (SELECT FROM awa.jobs AS j
                 WHERE j.queue = backlogs.queue AND j.known_due
                   AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL
                   AND j.state IN ('available', 'scheduled', 'retryable')
                 LIMIT greatest(most - counted, 0)) AS d;
        counted := counted + more;
        SELECT count(*) INTO more
          FROM (SELECT FROM awa.jobs AS j
                 WHERE j.queue = backlogs.queue
                   AND (j.ordering_key IS NOT NULL OR j.limit_key IS NOT NULL)
                   AND j.state IN ('available', 'scheduled', 'retryable')
                   AND NOT j.known_due AND j.run_at <= moment
                 LIMIT greatest(most - counted, 0)) AS d;
        counted := counted + more;
        key := '';
        FOR n IN 1..1000 LOOP
            SELECT j.ordering_key, j.run_at INTO key, head FROM awa.jobs AS j
             WHERE j.queue = backlogs.queue AND j.ordering_key > key
               AND j.state IN ('available', 'scheduled', 'retryable')
             ORDER BY j.ordering_key, j.run_at, j.id LIMIT 1;
            EXIT WHEN NOT FOUND;
            IF head <= moment THEN
                first := least(first, head);
            END IF;
        END LOOP;
        SELECT j.kind, hashtext(j.limit_key) AS hash, j.limit_key, j.priority, j.run_at INTO head_of
          FROM awa.jobs AS j
         WHERE j.queue = backlogs.queue AND j.known_due
           AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL
           AND j.state IN ('available', 'scheduled', 'retryable')
         ORDER BY j.kind, hashtext(j.limit_key), j.limit_key, j.priority, j.run_at, j.id LIMIT 1;
        FOR n IN 1..1000 LOOP
            EXIT WHEN head_of IS NULL;
            first := least(first, head_of.run_at);
            SELECT j.kind, hashtext(j.limit_key) AS hash, j.limit_key, j.priority, j.run_at INTO head_of
              FROM awa.jobs AS j
             WHERE j.queue = backlogs.queue AND j.known_due
               AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL
               AND j.state IN ('available', 'scheduled', 'retryable')
               AND (j.kind, hashtext(j.limit_key), j.limit_key, j.priority)
                   > (head_of.kind, head_of.hash, head_of.limit_key, head_of.priority)
             ORDER BY j.kind, hashtext(j.limit_key), j.limit_key, j.priority, j.run_at, j.id LIMIT 1;
        END LOOP;
        SELECT j.run_at INTO head FROM awa.jobs AS j
         WHERE j.queue = backlogs.queue AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL
           AND j.state IN ('available', 'scheduled', 'retryable')
           AND NOT j.known_due AND j.run_at <= moment
         ORDER BY j.run_at LIMIT 1;
        first := least(first, head);
        due := least(counted, most);
        oldest := extract(epoch FROM moment - first)::float8;
        RETURN NEXT;
    END LOOP;
END
$$;

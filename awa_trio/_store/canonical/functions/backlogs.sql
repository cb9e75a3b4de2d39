-- backlogs: what is due in queues and not claimed, of whatever kind.
--
--   queues  text[]  which queues
--   most    int     jobs to count in each
--
-- Returns a row per queue, in the order given: how many jobs are due, `most` meaning at
-- least so many; and the seconds since the first of them was due, null if there is none.
--
-- Locks: none. Steps from lane to lane and counts index entries of due jobs only, so its
-- cost is bounded by the lanes and by `most`, whatever else waits for a later time.
CREATE OR REPLACE FUNCTION awa.backlogs(queues text[], most int)
RETURNS TABLE (queue text, due int, oldest double precision)
LANGUAGE plpgsql STABLE
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
BEGIN
    FOR queue IN SELECT q.queue FROM unnest(queues) WITH ORDINALITY AS q (queue, ord) ORDER BY q.ord
    LOOP
        counted := 0;
        first := NULL;
        SELECT j.kind, j.priority INTO lane FROM awa.jobs AS j
         WHERE j.queue = backlogs.queue AND j.state IN ('available', 'scheduled', 'retryable')
         ORDER BY j.kind, j.priority LIMIT 1;
        WHILE lane IS NOT NULL LOOP
            SELECT count(*), min(d.run_at) INTO more, head
              FROM (SELECT j.run_at FROM awa.jobs AS j
                     WHERE j.queue = backlogs.queue AND j.kind = lane.kind
                       AND j.priority = lane.priority
                       AND j.state IN ('available', 'scheduled', 'retryable')
                       AND j.run_at <= moment
                     -- One at least: the oldest may be in the last lane.
                     ORDER BY j.run_at, j.id LIMIT greatest(most - counted, 1)) AS d;
            counted := counted + more;
            first := least(first, head);
            SELECT j.kind, j.priority INTO lane FROM awa.jobs AS j
             WHERE j.queue = backlogs.queue AND j.state IN ('available', 'scheduled', 'retryable')
               AND (j.kind, j.priority) > (lane.kind, lane.priority)
             ORDER BY j.kind, j.priority LIMIT 1;
        END LOOP;
        due := least(counted, most);
        oldest := extract(epoch FROM moment - first)::float8;
        RETURN NEXT;
    END LOOP;
END
$$;

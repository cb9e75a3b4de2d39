-- claim: give a worker the jobs it has room for, each under a new lease.
--
--   worker          bigint              the worker's ID
--   queues          text[]              the queues it serves
--   limits          int[]               how many jobs it has room for in each
--   deadlines       double precision[]  seconds an attempt may take in each; 0: no limit
--   ageings         double precision[]  seconds of waiting in each that count as one priority;
--                                       0: none do
--   kinds           text[]              the kinds it can run, in whatever queue
--   kind_deadlines  double precision[]  seconds an attempt of each may take; null: the queue's
--   after_queues, ...                   rows not to be looked at, as for awa.lanes. Lanes of the
--                                       segments keep their place by themselves
--
-- Returns a row per job, in the order they are to start: by priority less what waiting
-- makes up for, then run_at, then ID; within a lane, in the order in which the transactions
-- that appended them began to write. Jobs that are in awa.jobs come by way of awa.claim_rows,
-- which is this function of the canonical engine. Nothing of a queue that is paused, or has
-- nothing left of its rate.
--
-- Locks: the worker's row; what awa.set_queue takes alone, shared; queues with limits, by name,
-- and the rows of the lanes it claims from, by kind and priority, for as long as this takes;
-- then as awa.claim_rows.
CREATE OR REPLACE FUNCTION awa.claim(
    worker bigint, queues text[], limits int[], deadlines double precision[],
    ageings double precision[], kinds text[], kind_deadlines double precision[],
    after_queues text[] DEFAULT NULL, after_kinds text[] DEFAULT NULL,
    after_priorities smallint[] DEFAULT NULL, after_run_ats timestamptz[] DEFAULT NULL,
    after_ids bigint[] DEFAULT NULL
) RETURNS TABLE (
    id bigint, kind awa.label, queue awa.label, priority awa.priority, attempt smallint,
    max_attempts awa.max_attempts, args json, metadata awa.metadata, tags awa.tags,
    created_at timestamptz, run_at timestamptz, deadline double precision, ordering_key awa.label,
    run_lease bigint, progress json, callback_answer json, limit_key awa.label
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    wanted record;
    at timestamptz;
    lane_segments smallint[];
    lane_kinds text[];
    lane_priorities smallint[];
    lane_limits int[];
    row_limit int;
    waiting boolean;
    ready_segments smallint[];
    ready_kinds text[];
    ready_priorities smallint[];
    lane record;
    claimed int;
    more int;
    room int;
    has_rate boolean;
BEGIN
    PERFORM awa.lock_worker(worker);
    PERFORM pg_advisory_xact_lock_shared(awa.queues_lock());  -- Against awa.set_queue.
    FOR wanted IN
        SELECT u.queue, u.most, u.deadline, u.ageing
          FROM unnest(queues, limits, deadlines, ageings) AS u (queue, most, deadline, ageing)
         WHERE u.most > 0
         ORDER BY u.queue COLLATE "C"
    LOOP
        room := wanted.most;
        has_rate := false;
        IF EXISTS (SELECT FROM awa.queues AS q WHERE q.queue = wanted.queue) THEN
            SELECT r.room, r.has_rate INTO room, has_rate
              FROM awa.room_in_queue(wanted.queue, wanted.most) AS r;
            CONTINUE WHEN room <= 0;
        END IF;
        claimed := 0;
        SELECT array_agg(l.segment), array_agg(l.kind), array_agg(l.priority)
          INTO lane_segments, lane_kinds, lane_priorities
          FROM awa.ready_lanes(wanted.queue, kinds) AS l;
        waiting := EXISTS (SELECT FROM awa.jobs AS j
                            WHERE j.queue = wanted.queue AND j.ordering_key IS NULL
                              AND j.limit_key IS NULL
                              AND j.state IN ('available', 'scheduled', 'retryable'))
                OR EXISTS (SELECT FROM awa.jobs AS j
                            WHERE j.queue = wanted.queue AND j.ordering_key IS NOT NULL
                              AND j.state IN ('available', 'scheduled', 'retryable'))
                OR EXISTS (SELECT FROM awa.jobs AS j
                            WHERE j.queue = wanted.queue AND j.known_due
                              AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL
                              AND j.state IN ('available', 'scheduled', 'retryable'))
                OR EXISTS (SELECT FROM awa.jobs AS j
                            WHERE j.queue = wanted.queue AND NOT j.known_due
                              AND (j.ordering_key IS NOT NULL OR j.limit_key IS NOT NULL)
                              AND j.state IN ('available', 'scheduled', 'retryable'));
        IF lane_kinds IS NULL THEN
            IF waiting THEN
                RETURN QUERY SELECT * FROM awa.claim_rows(
                    worker, ARRAY[wanted.queue], ARRAY[room], ARRAY[wanted.deadline],
                    ARRAY[wanted.ageing], kinds, kind_deadlines);
            END IF;
            CONTINUE;
        END IF;
        PERFORM awa.lock_lanes(wanted.queue, lane_kinds, lane_priorities);
        at := clock_timestamp();
        IF NOT waiting AND cardinality(lane_kinds) = 1 THEN
            RETURN QUERY
            SELECT * FROM awa.take(
                   worker, lane_segments[1], wanted.queue, lane_kinds[1], lane_priorities[1],
                   room,
                   coalesce(kind_deadlines[array_position(kinds, lane_kinds[1])], wanted.deadline));
            GET DIAGNOSTICS claimed = ROW_COUNT;
            IF has_rate AND claimed > 0 THEN
                PERFORM awa.spend(wanted.queue, ARRAY[''], ARRAY[claimed]);
            END IF;
            CONTINUE;
        END IF;
        IF waiting THEN
            PERFORM awa.note_due(wanted.queue, at);
        END IF;
        ready_segments := lane_segments;
        ready_kinds := lane_kinds;
        ready_priorities := lane_priorities;
        -- How many of the next jobs are in each lane, and how many in awa.jobs.
        SELECT array_agg(n.segment) FILTER (WHERE n.segment IS NOT NULL),
               array_agg(n.kind) FILTER (WHERE n.segment IS NOT NULL),
               array_agg(n.priority) FILTER (WHERE n.segment IS NOT NULL),
               array_agg(n.count) FILTER (WHERE n.segment IS NOT NULL),
               min(n.count) FILTER (WHERE n.segment IS NULL)
          INTO lane_segments, lane_kinds, lane_priorities, lane_limits, row_limit
          FROM (SELECT w.segment, w.kind, w.priority, count(*)::int AS count
                  FROM (SELECT * FROM (
                            SELECT l.segment, l.kind, l.priority, a.created_at, a.id, l.priority
                              FROM unnest(lane_segments, lane_kinds, lane_priorities)
                                   AS l (segment, kind, priority)
                             CROSS JOIN LATERAL awa.lane_cursor(
                                   l.segment, wanted.queue, l.kind, l.priority) AS c
                             CROSS JOIN LATERAL awa.lane_ahead(
                                   l.segment, wanted.queue, l.kind, l.priority, c.xid, c.id,
                                   c.open_xids, c.open_ids, room) AS a
                             UNION ALL
                            SELECT NULL, NULL, NULL, r.run_at, r.id, r.priority
                              FROM awa.first_rows(
                                   wanted.queue, kinds, room, wanted.ageing, at) AS r
                             WHERE waiting
                            ) AS w (segment, kind, priority, run_at, id, own_priority)
                         ORDER BY awa.aged(w.own_priority, at - w.run_at, wanted.ageing),
                                  w.run_at, w.id
                         LIMIT room) AS w
                 GROUP BY w.segment, w.kind, w.priority) AS n;
        RETURN QUERY
        SELECT t.*
          FROM (SELECT t.*
                  FROM unnest(lane_segments, lane_kinds, lane_priorities, lane_limits)
                       AS l (segment, kind, priority, most)
                 CROSS JOIN LATERAL awa.take(
                       worker, l.segment, wanted.queue, l.kind, l.priority, l.most,
                       coalesce(kind_deadlines[array_position(kinds, l.kind)], wanted.deadline)) AS t
                 UNION ALL
                SELECT r.*
                  FROM unnest(ARRAY[row_limit]) AS l (most)
                 CROSS JOIN LATERAL awa.claim_rows(
                       worker, ARRAY[wanted.queue], ARRAY[l.most], ARRAY[wanted.deadline],
                       ARRAY[wanted.ageing], kinds, kind_deadlines) AS r
                 WHERE l.most > 0) AS t
         ORDER BY awa.aged(t.priority, at - t.run_at, wanted.ageing), t.run_at, t.id;
        GET DIAGNOSTICS claimed = ROW_COUNT;
        -- Rows whose keys others hold were counted, and passed by: their places are the lanes'.
        IF claimed < coalesce(row_limit, 0)
                     + coalesce((SELECT sum(u.n) FROM unnest(lane_limits) AS u (n)), 0)
        THEN
            FOR lane IN
                SELECT l.segment, l.kind, l.priority
                  FROM unnest(ready_segments, ready_kinds, ready_priorities)
                       WITH ORDINALITY AS l (segment, kind, priority, number)
                 ORDER BY l.priority, l.number
            LOOP
                EXIT WHEN claimed >= room;
                RETURN QUERY
                SELECT * FROM awa.take(
                       worker, lane.segment, wanted.queue, lane.kind, lane.priority,
                       room - claimed,
                       coalesce(kind_deadlines[array_position(kinds, lane.kind)], wanted.deadline));
                GET DIAGNOSTICS more = ROW_COUNT;
                claimed := claimed + more;
            END LOOP;
        END IF;
        IF has_rate THEN
            -- Rows have been accounted for by awa.claim_rows.
            SELECT sum(upper(i.ids) - lower(i.ids)) INTO claimed
              FROM awa.lane_claims AS c CROSS JOIN LATERAL unnest(c.ids) AS i (ids)
             WHERE c.xid = pg_current_xact_id() AND c.queue = wanted.queue;
            IF claimed > 0 THEN
                PERFORM awa.spend(wanted.queue, ARRAY[''], ARRAY[claimed]);
            END IF;
        END IF;
    END LOOP;
END
$$;

-- enqueue: insert one job, unless another holds its unique key.
--
-- The documented way in for other languages and for triggers; the parameters are those
-- of awa.enqueue_many, one of each, named for use as in
-- SELECT * FROM awa.enqueue('send_email', '{"to": "a@example.com"}', queue => 'mail').
--
-- Returns one row: the job's ID and true, or the ID of the job that holds the key and false.
-- Raises AW004 if the queue is drained.
--
-- Locks: as awa.enqueue_many.
CREATE OR REPLACE FUNCTION awa.enqueue(
    kind text, args json, queue text DEFAULT 'default', priority int DEFAULT 2,
    max_attempts int DEFAULT 25, tags text[] DEFAULT NULL, metadata json DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, unique_key bytea DEFAULT NULL, unique_states int DEFAULT 31,
    ordering_key text DEFAULT NULL, deadline double precision DEFAULT NULL,
    limit_key text DEFAULT NULL, notify boolean DEFAULT true
) RETURNS TABLE (id bigint, inserted boolean)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_variable
DECLARE
    number bigint;
    current bigint;
    holder bigint;
BEGIN
    IF NOT awa.goes_in_lane(
        run_at, ordering_key, limit_key, unique_key, unique_states::smallint) THEN
        RETURN QUERY SELECT r.id, r.inserted FROM awa.enqueue_row(
            kind, args, queue, priority, max_attempts, tags, metadata, run_at, unique_key,
            unique_states, ordering_key, deadline, limit_key, notify) AS r;
        RETURN;
    END IF;
    IF pg_sequence_last_value('awa.drains') > 0 THEN
        PERFORM awa.refuse_drained(ARRAY[queue]);
    END IF;
    id := nextval('awa.job_ids');
    IF unique_key IS NOT NULL AND awa.holds(unique_states::smallint, 'available') THEN
        holder := awa.take_key(unique_key, id);
        IF holder IS NOT NULL THEN
            RETURN QUERY SELECT holder, false;
            RETURN;
        END IF;
    END IF;
    number := pg_sequence_last_value('awa.segment_numbers');
    LOOP
        INSERT INTO awa.lane_jobs
               (segment, id, kind, queue, args, priority, max_attempts, metadata, tags,
                unique_key, unique_states, deadline)
        VALUES (awa.segment_of(number), id, kind, queue, args, priority, max_attempts, metadata,
                nullif(tags, '{}'), unique_key,
                CASE WHEN unique_key IS NOT NULL THEN unique_states END, deadline);
        -- As in awa.insert_jobs.
        current := pg_sequence_last_value('awa.segment_numbers');
        EXIT WHEN current = number;
        PERFORM awa.take_back(awa.segment_of(number), ARRAY[id]);
        number := current;
    END LOOP;
    IF notify THEN
        PERFORM pg_notify('awa:jobs', queue);
    END IF;
    inserted := true;
    RETURN NEXT;
END
$$;

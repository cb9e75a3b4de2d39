-- fire_cron: move a schedule's cursor, and insert the jobs of the instants that it passes.
--
--   schedule   text         its name
--   cursor     timestamptz  where its cursor is, to the microsecond
--   upto       timestamptz  where it is to be: an instant that has passed
--   patience   int          milliseconds to wait for any one lock
--   kinds ... limit_keys    the jobs, as for awa.enqueue_many; null, if nothing is to happen
--   notify     boolean      whether to wake workers
--
-- Returns one row:
--   fired      boolean   false if the cursor is elsewhere, since another has fired; or the
--                        schedule is paused, or gone; or upto is still to come: nothing happened
--   ids        bigint[]  for each job its ID, or that of the job that holds its key
--   inserted   boolean[] for each whether it was inserted
--
-- Locks, in this order: the schedule's row; as awa.enqueue_many. Waits at most `patience` for each.
CREATE OR REPLACE FUNCTION awa.fire_cron(
    schedule text, cursor timestamptz, upto timestamptz, patience int,
    kinds text[], queues text[], args json[], priorities smallint[],
    max_attempts smallint[], metadata json[], tags text[], run_at timestamptz[],
    unique_keys bytea[], unique_states smallint[], ordering_keys text[],
    deadlines double precision[], limit_keys text[], notify boolean,
    OUT fired boolean, OUT ids bigint[], OUT inserted boolean[]
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '250ms'
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true);
    PERFORM FROM awa.schedules AS s
      WHERE s.name = schedule AND s.cursor = fire_cron.cursor AND s.paused_at IS NULL
        AND upto > s.cursor AND upto <= clock_timestamp()
        FOR NO KEY UPDATE;
    fired := FOUND;
    IF NOT fired THEN
        RETURN;
    END IF;
    IF kinds IS NOT NULL THEN
        SELECT array_agg(e.id ORDER BY e.ord), array_agg(e.inserted ORDER BY e.ord)
          INTO ids, inserted
          FROM awa.enqueue_many(kinds, queues, args, priorities, max_attempts, metadata, tags,
                                run_at, unique_keys, unique_states, ordering_keys, deadlines,
                                limit_keys, notify)
               WITH ORDINALITY AS e (id, inserted, ord);
    END IF;
    UPDATE awa.schedules AS s
       SET cursor = upto,
           error = NULL,
           fires = CASE WHEN ids IS NULL THEN s.fires ELSE s.fires + 1 END,
           fired_for = CASE WHEN ids IS NULL THEN s.fired_for ELSE upto END,
           fired_at = CASE WHEN ids IS NULL THEN s.fired_at ELSE clock_timestamp() END,
           last_job_id = CASE WHEN ids IS NULL THEN s.last_job_id ELSE ids[cardinality(ids)] END
     WHERE s.name = schedule;
END
$$;

-- retry_dead_letters: let a batch of dead letters run again, with all their attempts.
--
--   ids ... most  as for awa.dead_letters: which
--   to_queue      text         where they go; null: where they were
--   to_priority   int          1 runs first, 4 last; null: as it was
--   start_at      timestamptz  earliest start; null: at once
--   strict        boolean      raise AW002 rather than leave a job alone whose key is taken
--
-- Returns one row:
--   done     int     the jobs that will run again; one whose unique key another job holds
--                    stays a dead letter
--   last_id  bigint  the job to go on after; null if there are no more
--
-- Their errors, their progress and their leases stay.
--
-- Locks: the jobs, by ID; then the claims of their unique keys, in byte order.
CREATE OR REPLACE FUNCTION awa.retry_dead_letters(
    ids bigint[], kind text, queue text, reason text, after_id bigint, most int,
    to_queue text, to_priority int, start_at timestamptz, strict boolean,
    OUT done int, OUT last_id bigint
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    later boolean := coalesce(start_at > now(), false);
    to_state awa.job_state := CASE WHEN later THEN 'scheduled' ELSE 'available' END;
    batch bigint[] := awa.dead_letters(ids, kind, queue, reason, after_id, most);
    releasing bigint[]; released_keys bytea[]; taking bigint[]; taken_keys bytea[];
    losers bigint[]; holders bigint[];
BEGIN
    last_id := CASE WHEN cardinality(batch) = most THEN batch[most] END;
    SELECT array_agg(k.id) FILTER (WHERE k.held AND NOT k.holds),
           array_agg(k.unique_key) FILTER (WHERE k.held AND NOT k.holds),
           array_agg(k.id ORDER BY k.id) FILTER (WHERE k.holds AND NOT k.held),
           array_agg(k.unique_key ORDER BY k.id) FILTER (WHERE k.holds AND NOT k.held)
      INTO releasing, released_keys, taking, taken_keys
      FROM (SELECT j.id, j.unique_key, awa.holds(j.unique_states, 'failed') AS held,
                   awa.holds(j.unique_states, to_state) AS holds
              FROM awa.jobs AS j
             WHERE j.id = ANY (batch) AND j.unique_key IS NOT NULL) AS k;
    IF taking IS NOT NULL OR releasing IS NOT NULL THEN
        SELECT array_agg(x.job_id), array_agg(x.holder_id) INTO losers, holders
          FROM awa.exchange_keys(releasing, released_keys, taking, taken_keys) AS x;
        IF strict AND losers IS NOT NULL THEN
            RAISE EXCEPTION 'job % holds the unique key', holders[1]
                  USING ERRCODE = 'AW002', DETAIL = holders[1];
        END IF;
    END IF;

    UPDATE awa.jobs AS j
       SET state = to_state, attempt = 0, run_at = coalesce(start_at, clock_timestamp()),
           queue = coalesce(to_queue, j.queue), priority = coalesce(to_priority, j.priority),
           finalized_at = NULL, dead_letter = NULL, output = NULL
     WHERE j.id = ANY (batch) AND j.id <> ALL (coalesce(losers, '{}'));
    GET DIAGNOSTICS done = ROW_COUNT;

    IF NOT later THEN
        PERFORM pg_notify('awa:jobs', j.queue)
           FROM awa.jobs AS j
          WHERE j.id = ANY (batch) AND j.state = 'available'
          GROUP BY j.queue;
    END IF;
END
$$;

-- note_due: mark jobs that wait by a key, and whose time has come, so that their keys are found.
--
--   wanted_queue  text         the queue
--   at            timestamptz  the present
--
-- Returns nothing. Marks a few hundred at a time; the rest is due in the next call.
--
-- Locks: the jobs it marks, skipping those that anyone else has locked.
CREATE OR REPLACE FUNCTION awa.note_due(wanted_queue text, at timestamptz) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    UPDATE awa.jobs AS j SET known_due = true
     WHERE j.id = ANY (ARRAY(
           SELECT d.id FROM awa.jobs AS d
            WHERE d.queue = wanted_queue AND d.state IN ('available', 'scheduled', 'retryable')
              AND (d.ordering_key IS NOT NULL OR d.limit_key IS NOT NULL)
              AND NOT d.known_due AND d.run_at <= at
            ORDER BY d.run_at LIMIT 250 FOR UPDATE SKIP LOCKED));
END
$$;

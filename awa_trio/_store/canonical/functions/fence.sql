-- fence: shut out the workers that missed their lease.
--
-- Returns nothing. Whatever such a worker is about to write will be refused.
--
-- Locks: the rows of the workers it fences, FOR UPDATE, skipping those whose claim or
-- settlement is in flight; they are alive, or caught the next time.
CREATE OR REPLACE FUNCTION awa.fence() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    UPDATE awa.workers AS w SET fenced_at = clock_timestamp()
     WHERE w.id IN (SELECT s.id FROM awa.workers AS s
                     WHERE s.fenced_at IS NULL AND s.beat_at < clock_timestamp() - s.lease
                     ORDER BY s.id FOR UPDATE SKIP LOCKED);
END
$$;

-- lock_worker: hold a worker's right to write until commit.
--
--   worker  bigint  the worker's ID
--
-- Returns nothing. Raises AW001 when the worker is fenced or unknown: it was presumed
-- dead, its jobs are someone else's, and whatever it was about to write must not be.
--
-- Locks: the worker's row, FOR KEY SHARE, first of all. Beats do not conflict with it;
-- fencing, which takes it FOR UPDATE, does.
CREATE OR REPLACE FUNCTION awa.lock_worker(worker bigint) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM FROM awa.workers AS w WHERE w.id = worker AND w.fenced_at IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'worker % is fenced', worker USING ERRCODE = 'AW001';
    END IF;
END
$$;

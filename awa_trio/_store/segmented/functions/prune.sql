-- prune: remove settled jobs whose retention has passed, and their hold on their unique keys.
--
--   completed     double precision  seconds a completed job is kept; infinite: for ever
--   failed        double precision  seconds a failed or cancelled job is kept
--   dead_letters  double precision  seconds a dead letter is kept
--   most          int               how many to remove
--
-- Returns how many were removed; more than `most` if a segment was truncated. A job goes in
-- one transaction with its key, so that the time in which a finished job blocks its
-- duplicates is the time for which it is kept.
--
-- Locks, in this order: as awa.make_room; the jobs that are rows, skipping those that anyone
-- else has locked; the claims of unique keys, in byte order and in one pass; last, what
-- awa.turn locks.
CREATE OR REPLACE FUNCTION awa.prune(
    completed double precision, failed double precision, dead_letters double precision, most int
) RETURNS int
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    mine boolean := awa.make_room();
    rows record;
    lanes record;
    removed int;
BEGIN
    PERFORM awa.prune_buckets();
    SELECT * INTO rows FROM awa.delete_jobs(
        awa.old_jobs(completed, failed, dead_letters, most));
    removed := rows.removed;
    IF mine THEN
        SELECT * INTO lanes FROM awa.prune_lanes(completed, most - removed);
        removed := removed + lanes.removed;
        rows.holding := rows.holding || lanes.holding;
        rows.keys := rows.keys || lanes.keys;
    END IF;
    IF rows.keys IS NOT NULL THEN
        PERFORM awa.exchange_keys(rows.holding, rows.keys, NULL, NULL);
    END IF;
    IF mine AND removed < most THEN
        removed := removed + awa.turn(completed);
    END IF;
    RETURN removed;
END
$$;

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
-- Locks: as awa.prune_rows, which is this function of the canonical engine; then as
-- awa.prune_segments.
CREATE OR REPLACE FUNCTION awa.prune(
    completed double precision, failed double precision, dead_letters double precision, most int
) RETURNS int
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    removed int := awa.prune_rows(completed, failed, dead_letters, most);
BEGIN
    IF removed < most THEN
        removed := removed + awa.prune_segments(completed, most - removed);
    END IF;
    RETURN removed;
END
$$;

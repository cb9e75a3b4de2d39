-- job_stamps: every job, as who looks for jobs of a time, or for those of another job, needs it.
--
-- Returns a row per job: its ID, when it was enqueued, and its metadata.
--
-- Locks: none. Inlined, so that a statement which wants few by ID reads few.
CREATE OR REPLACE FUNCTION awa.job_stamps()
RETURNS TABLE (id bigint, created_at timestamptz, metadata awa.metadata)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT j.id, j.created_at, j.metadata FROM awa.jobs AS j
     UNION ALL
    SELECT b.id, b.created_at, b.metadata FROM awa.lane_jobs AS b;
END;

-- take_back: take back jobs that this transaction has appended to a segment that is not the
-- current one any more.
--
--   in_segment  smallint  the segment
--   job_ids     bigint[]  the jobs
--
-- Returns nothing.
--
-- With the rights of the schema's owner: whoever may append need not be one who may remove. It
-- touches nothing but what the same transaction has appended, which nobody else has seen.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.take_back(in_segment smallint, job_ids bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
    DELETE FROM awa.lane_jobs AS b
     WHERE b.segment = in_segment AND b.id = ANY (job_ids) AND b.xid = pg_current_xact_id()
$$;

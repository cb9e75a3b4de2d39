-- holds: does a job in this state hold its unique key?
--
--   unique_states  smallint       mask: bit n stands for the n-th label of awa.job_state; null: no key
--   state          awa.job_state  the job's state
--
-- Returns false for a job without a key. A job that waits for a callback counts
-- as running: it has started, and will go on.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.holds(unique_states smallint, state awa.job_state)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(
    unique_states & CASE state
        WHEN 'scheduled' THEN 1
        WHEN 'available' THEN 2
        WHEN 'running' THEN 4
        WHEN 'waiting_external' THEN 4 | 128
        WHEN 'completed' THEN 8
        WHEN 'retryable' THEN 16
        WHEN 'failed' THEN 32
        WHEN 'cancelled' THEN 64
    END > 0, false);

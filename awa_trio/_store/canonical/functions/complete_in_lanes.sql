-- complete_in_lanes: what the segmented engine does with a set before its rows are moved.
--
--   worker, job_ids, run_leases, from_states, to_states, attempts, new_errors, tokens, outputs  as for awa.settle
--
-- Returns null: here every job is a row.
--
-- Locks: none. Inlined.
CREATE OR REPLACE FUNCTION awa.complete_in_lanes(
    worker bigint, job_ids bigint[], run_leases bigint[], from_states awa.job_state[], to_states awa.job_state[],
    attempts int[], new_errors text[], tokens text[], outputs json[]
) RETURNS int[]
LANGUAGE sql IMMUTABLE
RETURN NULL::int[];

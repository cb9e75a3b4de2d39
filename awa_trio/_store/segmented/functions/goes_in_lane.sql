-- goes_in_lane: whether a new job is ordinary enough for a lane.
--
--   run_at         timestamptz  its earliest start
--   ordering_key   text
--   limit_key      text
--   unique_key     bytea
--   unique_states  smallint     its mask
--
-- Returns true for one that is to run at once, in no order, by no limit, and whose hold on its
-- unique key does not change while it waits, runs and completes. Never null: a key without a
-- mask is for awa.jobs to refuse.
--
-- Locks: none. Inlined.
CREATE OR REPLACE FUNCTION awa.goes_in_lane(
    run_at timestamptz, ordering_key text, limit_key text, unique_key bytea, unique_states smallint
) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN run_at IS NULL AND ordering_key IS NULL AND limit_key IS NULL
       AND (unique_key IS NULL OR coalesce(unique_states & 14 IN (0, 14), false));

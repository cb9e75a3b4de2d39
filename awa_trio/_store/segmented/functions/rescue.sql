-- rescue: fence the workers that missed their lease, and list what nobody looks after.
--
--   most             int               how many attempts to list
--   deadline_slack   double precision  seconds past its deadline in which a worker settles an
--                                      attempt itself
--   kinds            text[]            list attempts of these kinds at once, ...
--   strangers_after  double precision  ... and of others once lost for so many seconds; infinite:
--                                      never
--
-- Returns what awa.rescue_rows does, which is this function of the canonical engine: what is
-- lost in the lanes gets a row first.
--
-- Locks: as awa.fence; as awa.sweep.
CREATE OR REPLACE FUNCTION awa.rescue(
    most int, deadline_slack double precision, kinds text[], strangers_after double precision
)
RETURNS TABLE (
    id bigint, kind awa.label, queue awa.label, priority awa.priority, attempt smallint,
    max_attempts awa.max_attempts, args json, metadata awa.metadata, tags awa.tags,
    created_at timestamptz, run_at timestamptz, deadline awa.deadline, ordering_key awa.label,
    run_lease bigint, progress json, callback_answer json, limit_key awa.label, reason text, token text
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM awa.fence();
    PERFORM awa.sweep(deadline_slack);
    RETURN QUERY SELECT * FROM awa.rescue_rows(most, deadline_slack, kinds, strangers_after);
END
$$;

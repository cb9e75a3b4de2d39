-- carry: move jobs out of their lanes into awa.jobs, as they are.
--
--   ids  bigint[]  the jobs; those that are not in a lane, or have completed, are left alone
--
-- Returns nothing. From then on they are like any other job of the canonical engine: this is
-- how everything that is out of the ordinary begins.
--
-- Locks: as awa.lock_in_lanes.
CREATE OR REPLACE FUNCTION awa.carry(ids bigint[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    locked record;
BEGIN
    SELECT * INTO locked FROM awa.lock_in_lanes(ids);
    PERFORM awa.move_to_rows(ids, locked.claims, locked.unclaimed);
END
$$;

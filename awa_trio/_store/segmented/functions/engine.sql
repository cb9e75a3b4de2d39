-- engine: how this database keeps its jobs.
--
-- Returns the name of the engine.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.engine() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 'segmented';

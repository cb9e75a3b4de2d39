-- database_identity: which database this is, among all there are.
--
-- Returns the server's system identifier and the database's OID, as one text. Where the
-- role may not read the former, only the latter.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.database_identity() RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    oid text := (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database());
BEGIN
    RETURN (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c) || '/' || oid;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN oid;
END
$$;

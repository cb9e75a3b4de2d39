-- let_pause: let whoever pauses a queue wait for this claim, or wait until the pause is there.
--
-- Returns nothing. A claim does the same without calling this, which takes longer. Whoever changes what is said of a queue takes the same lock alone
-- (awa.set_queue, awa.override_queue, awa.declare_queues): so it waits for the claims that may
-- have read what it changes, and those after it read what it has changed.
--
-- Locks: an advisory one, shared, until commit: in the memory of the server, nothing is written.
CREATE OR REPLACE FUNCTION awa.let_pause() RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
RETURN pg_advisory_xact_lock_shared(7023189047361957751);

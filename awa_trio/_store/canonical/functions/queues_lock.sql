-- queues_lock: the advisory lock by which claims and changes to queues keep out of each other's way.
--
-- Returns its number: any that other programs are unlikely to use. It is immutable, so PostgreSQL
-- puts the number into its callers' plans: a claim does not call it. What it is for is said at
-- awa.set_queue.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.queues_lock() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 7023189047361957751;

-- set_queue: pause a queue, drain it, or end that.
--
--   of_queue  text     the queue
--   pausing   boolean  whether nothing of it is to be claimed; null leaves that as it is
--   draining  boolean  whether nothing is to be enqueued in it; null leaves that as it is
--
-- Returns whether it changed anything. A pause is exact. Every claim takes an advisory lock,
-- shared, until it commits: in the memory of the server, nothing is written. Whoever changes what
-- is said of a queue (this, awa.override_queue, awa.declare_queues) takes it alone: so it waits
-- for the claims that may have read what it changes, and those after it read what it has changed.
--
-- Locks: the advisory one, until commit; the queue's row.
CREATE OR REPLACE FUNCTION awa.set_queue(of_queue text, pausing boolean, draining boolean)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    was record;
BEGIN
    PERFORM pg_advisory_xact_lock(awa.queues_lock());
    INSERT INTO awa.queues (queue) VALUES (of_queue) ON CONFLICT DO NOTHING;
    SELECT q.paused_at, q.draining_since INTO was
      FROM awa.queues AS q WHERE q.queue = of_queue FOR NO KEY UPDATE;
    IF (pausing IS NULL OR pausing = (was.paused_at IS NOT NULL))
       AND (draining IS NULL OR draining = (was.draining_since IS NOT NULL))
    THEN
        RETURN false;
    END IF;
    UPDATE awa.queues AS q
       SET paused_at = CASE WHEN coalesce(pausing, q.paused_at IS NOT NULL)
                            THEN coalesce(q.paused_at, clock_timestamp()) END,
           draining_since = CASE WHEN coalesce(draining, q.draining_since IS NOT NULL)
                                 THEN coalesce(q.draining_since, clock_timestamp()) END
     WHERE q.queue = of_queue;
    IF draining THEN
        PERFORM setval('awa.drains', 1);
    END IF;
    IF NOT pausing THEN
        PERFORM pg_notify('awa:jobs', of_queue);
    END IF;
    RETURN true;
END
$$;

-- set_queue: pause a queue, drain it, or end that.
--
--   of_queue  text     the queue
--   pausing   boolean  whether nothing of it is to be claimed; null leaves that as it is
--   draining  boolean  whether nothing is to be enqueued in it; null leaves that as it is
--
-- Returns whether it changed anything. A pause is exact: claims under way have ended when this
-- has taken its lock, and later ones see what it wrote.
--
-- Locks: claims, as awa.let_pause says, until commit; the queue's row.
CREATE OR REPLACE FUNCTION awa.set_queue(of_queue text, pausing boolean, draining boolean)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    was record;
BEGIN
    PERFORM pg_advisory_xact_lock(7023189047361957751);
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

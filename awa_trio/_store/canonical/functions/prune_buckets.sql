-- prune_buckets: remove buckets that are full again, which is what one without a row is; and
-- take note that no queue is drained any more.
--
-- Returns nothing.
--
-- Locks: their rows, skipping those that a claim is writing to; once after a queue was drained,
-- claims, as awa.set_queue does.
CREATE OR REPLACE FUNCTION awa.prune_buckets() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM awa.buckets AS d USING (
        SELECT b.queue, b.limit_key FROM awa.buckets AS b
         WHERE NOT EXISTS (
               SELECT FROM awa.queues AS q
                WHERE q.queue = b.queue
                  AND b.tokens + extract(epoch FROM clock_timestamp() - b.at)
                                 * CASE b.limit_key WHEN '' THEN q.rate ELSE q.key_rate END
                      < CASE b.limit_key WHEN '' THEN q.burst ELSE q.key_burst END)
           FOR UPDATE SKIP LOCKED) AS full_again
     WHERE d.queue = full_again.queue AND d.limit_key = full_again.limit_key;
    -- Nobody drains a queue, and nobody is about to: no enqueue need look.
    IF pg_sequence_last_value('awa.drains') > 0
       AND NOT EXISTS (SELECT FROM awa.queues AS q WHERE q.draining_since IS NOT NULL)
    THEN
        IF pg_try_advisory_xact_lock(awa.queues_lock()) THEN
            -- A new statement, so that it sees what was said before the lock was to be had.
            IF NOT EXISTS (SELECT FROM awa.queues AS q WHERE q.draining_since IS NOT NULL) THEN
                PERFORM setval('awa.drains', 0);
            END IF;
        END IF;
    END IF;
END
$$;

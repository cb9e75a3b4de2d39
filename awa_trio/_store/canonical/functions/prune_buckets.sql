-- prune_buckets: remove buckets that are full again, which is what one without a row is.
--
-- Returns nothing.
--
-- Locks: their rows, skipping those that a claim is writing to.
CREATE OR REPLACE FUNCTION awa.prune_buckets() RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM awa.buckets AS d USING (
        SELECT b.queue, b.limit_key FROM awa.buckets AS b
         WHERE NOT EXISTS (
               SELECT FROM awa.queues AS q
                WHERE q.queue = b.queue
                  AND b.tokens + extract(epoch FROM clock_timestamp() - b.at)
                                 * CASE b.limit_key WHEN '' THEN q.rate ELSE q.key_rate END
                      < CASE b.limit_key WHEN '' THEN q.burst ELSE q.key_burst END)
           FOR UPDATE SKIP LOCKED) AS full_again
     WHERE d.queue = full_again.queue AND d.limit_key = full_again.limit_key
$$;

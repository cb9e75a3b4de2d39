-- spend: take tokens from buckets, for attempts that have started.
--
--   of_queue  text    the queue
--   keys      text[]  its limit keys; an empty one for the bucket of the queue itself
--   counts    int[]   how many of each have started
--
-- Returns nothing. A key or a queue without a rate is left alone.
--
-- What comes in until now comes in before they are taken, and they have started before now: so
-- however long a claim takes, no stretch of time has more starts than burst and rate allow.
--
-- Locks: the caller has the queue's row. The caller's settings hold here, too.
CREATE OR REPLACE FUNCTION awa.spend(of_queue text, keys text[], counts int[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    INSERT INTO awa.buckets AS b (queue, limit_key, tokens, at)
    SELECT of_queue, s.key,
           awa.tokens(of_queue, s.key, r.rate, r.burst, at) - s.count, at
      FROM unnest(keys, counts) AS s (key, count)
      JOIN awa.queues AS q ON q.queue = of_queue
     CROSS JOIN LATERAL (
           SELECT CASE s.key WHEN '' THEN q.rate ELSE q.key_rate END AS rate,
                  CASE s.key WHEN '' THEN q.burst ELSE q.key_burst END AS burst) AS r
     WHERE r.rate IS NOT NULL
        ON CONFLICT (queue, limit_key) DO UPDATE
       SET tokens = excluded.tokens, at = excluded.at;
END
$$;

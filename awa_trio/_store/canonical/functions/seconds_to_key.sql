-- seconds_to_key: when the first limit key of a queue, of those with jobs that are due, has a
-- token.
--
--   of_queue  text    the queue
--   kinds     text[]  the kinds the caller can run
--
-- Returns the seconds; null if the queue has no rate by key, or there is nothing to wait for.
-- A key that has a token does not count, nor one with as many attempts under way as it may
-- have. Looks at 1,000 keys, as awa.limited_heads does.
--
-- Locks: none. The caller's settings hold here, too.
CREATE OR REPLACE FUNCTION awa.seconds_to_key(of_queue text, kinds text[]) RETURNS double precision
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    known text[];
    limits record;
    first int := floor(random() * 4294967296) - 2147483648;
BEGIN
    SELECT q.key_rate, q.key_burst, q.max_per_key INTO limits
      FROM awa.queues AS q WHERE q.queue = of_queue;
    IF limits.key_rate IS NULL THEN
        RETURN NULL;
    END IF;
    known := awa.limited_kinds(of_queue, kinds);
    IF known = '{}' THEN
        RETURN NULL;
    END IF;
    RETURN (
        WITH RECURSIVE walk AS (
            SELECT k.kind, first AS hash, '' COLLATE "C" AS key, false AS wrapped,
                   1000 / cardinality(known) AS steps, NULL::double precision AS tokens
              FROM unnest(known) AS k (kind)
             UNION ALL
            SELECT w.kind, k.hash, k.key, k.wrapped, w.steps - 1,
                   awa.tokens(of_queue, k.key, limits.key_rate, limits.key_burst,
                              clock_timestamp())
              FROM walk AS w
             CROSS JOIN LATERAL (
                   SELECT * FROM (
                       (SELECT hashtext(j.limit_key), j.limit_key::text, w.wrapped
                          FROM awa.jobs AS j
                         WHERE j.queue = of_queue AND j.kind = w.kind
                           AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due
                           AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL
                           AND (hashtext(j.limit_key), j.limit_key) > (w.hash, w.key)
                         ORDER BY hashtext(j.limit_key), j.limit_key LIMIT 1)
                        UNION ALL
                       (SELECT hashtext(j.limit_key), j.limit_key::text, true
                          FROM awa.jobs AS j
                         WHERE j.queue = of_queue AND j.kind = w.kind
                           AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due
                           AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL
                           AND NOT w.wrapped
                         ORDER BY hashtext(j.limit_key), j.limit_key LIMIT 1)
                       ) AS either (hash, key, wrapped) LIMIT 1) AS k
             WHERE w.steps > 0 AND NOT (k.wrapped AND k.hash >= first)
        )
        SELECT min((1 - w.tokens) / limits.key_rate) FROM walk AS w
         WHERE w.tokens < 1 - 1e-6
           AND awa.key_room(of_queue, w.key, 1, limits.max_per_key, NULL, NULL) > 0);
END
$$;

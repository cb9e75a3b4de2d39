-- key_heads: the jobs with an ordering key that may start.
--
--   wanted_queue  text         the queue
--   kinds         text[]       the kinds the caller can run
--   most          int          how many the caller has room for
--   at            timestamptz  the present
--   max_per_key ... burst      as for awa.key_room
--
-- Returns the head of each key: of its jobs that wait, the first by run_at, then ID;
-- due, of a known kind, and with no job of its key running or waiting for a callback.
-- A head of another kind holds its key, and so does one whose limit key has no room; of one
-- that has a limit key, the room that has is returned with it. Looks at 1,000 keys, and for 128
-- heads more than there is room for, at most; of more, at those from a random key on, so that
-- each gets its turn.
--
-- Locks: none. Steps from key to key, so its cost is the number of keys, whatever the
-- number of jobs that wait behind their heads, or for a time to come.
CREATE OR REPLACE FUNCTION awa.key_heads(
    wanted_queue text, kinds text[], most int, at timestamptz, max_per_key int,
    rate double precision, burst double precision
) RETURNS TABLE (
    id bigint, kind text, priority smallint, run_at timestamptz, run_lease bigint,
    limit_key text, room int
)
LANGUAGE plpgsql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    here text;
    known text[];
    first int := floor(random() * 4294967296) - 2147483648;
BEGIN
    SELECT j.kind INTO here FROM awa.jobs AS j
     WHERE j.queue = wanted_queue AND j.state IN ('available', 'scheduled', 'retryable')
       AND j.known_due AND j.ordering_key IS NOT NULL
     ORDER BY j.kind LIMIT 1;
    WHILE here IS NOT NULL LOOP
        IF here = ANY (kinds) THEN
            known := known || here;
        END IF;
        SELECT j.kind INTO here FROM awa.jobs AS j
         WHERE j.queue = wanted_queue AND j.state IN ('available', 'scheduled', 'retryable')
           AND j.known_due AND j.ordering_key IS NOT NULL AND j.kind > here
         ORDER BY j.kind LIMIT 1;
    END LOOP;
    IF known IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE walk AS (
        SELECT k.kind AS of_kind, first AS hash, '' COLLATE "C" AS key, false AS wrapped,
               1000 / cardinality(known) AS steps, (128 + most) / cardinality(known) AS room,
               NULL::bigint AS id, NULL::text COLLATE "C" AS kind, NULL::smallint AS priority,
               NULL::timestamptz AS run_at, NULL::bigint AS run_lease,
               NULL::text COLLATE "C" AS limit_key, NULL::int AS key_room
          FROM unnest(known) AS k (kind)
         UNION ALL
        SELECT w.of_kind, k.hash, k.key, k.wrapped, w.steps - 1,
               CASE WHEN h.id IS NULL THEN w.room ELSE w.room - 1 END,
               h.id, h.kind, h.priority, h.run_at, h.run_lease, h.limit_key, h.key_room
          FROM walk AS w
         CROSS JOIN LATERAL (
               SELECT * FROM (
                   (SELECT hashtext(j.ordering_key), j.ordering_key::text, w.wrapped
                      FROM awa.jobs AS j
                     WHERE j.queue = wanted_queue AND j.kind = w.of_kind
                       AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due
                       AND j.ordering_key IS NOT NULL
                       AND (hashtext(j.ordering_key), j.ordering_key) > (w.hash, w.key)
                     ORDER BY hashtext(j.ordering_key), j.ordering_key LIMIT 1)
                    UNION ALL
                   (SELECT hashtext(j.ordering_key), j.ordering_key::text, true
                      FROM awa.jobs AS j
                     WHERE j.queue = wanted_queue AND j.kind = w.of_kind
                       AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due
                       AND j.ordering_key IS NOT NULL AND NOT w.wrapped
                     ORDER BY hashtext(j.ordering_key), j.ordering_key LIMIT 1)
                   ) AS either (hash, key, wrapped) LIMIT 1) AS k
          LEFT JOIN LATERAL (
               SELECT j.id, j.kind::text, j.priority::smallint, j.run_at, j.run_lease,
                      j.limit_key::text, l.key_room
                 FROM (SELECT j.id, j.kind, j.priority, j.run_at, j.run_lease, j.limit_key
                         FROM awa.jobs AS j
                        WHERE j.queue = wanted_queue AND j.ordering_key = k.key
                          AND j.state IN ('available', 'scheduled', 'retryable')
                        ORDER BY j.run_at, j.id LIMIT 1) AS j
                CROSS JOIN LATERAL (
                      SELECT CASE WHEN j.limit_key IS NOT NULL THEN awa.key_room(
                             wanted_queue, j.limit_key, most, max_per_key, rate, burst) END
                      ) AS l (key_room)
                WHERE coalesce(l.key_room > 0, true) AND j.run_at <= at AND j.kind = ANY (kinds)
                  -- NOT EXISTS would be a join, which reads every key that is taken.
                  AND (SELECT t.id FROM awa.jobs AS t
                        WHERE t.queue = wanted_queue AND t.ordering_key = k.key
                          AND t.state IN ('running', 'waiting_external')) IS NULL) AS h ON true
         WHERE w.steps > 0 AND w.room > 0 AND NOT (k.wrapped AND k.hash >= first)
    )
    SELECT DISTINCT ON (w.id) w.id, w.kind, w.priority, w.run_at, w.run_lease, w.limit_key,
           w.key_room
      FROM walk AS w WHERE w.id IS NOT NULL ORDER BY w.id;
END
$$;

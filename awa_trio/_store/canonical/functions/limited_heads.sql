-- limited_heads: the jobs that wait by a limit key, and may start.
--
--   wanted_queue  text              the queue
--   kinds         text[]            the kinds the caller can run
--   most          int               how many the caller has room for
--   ageing        double precision  seconds of waiting that count as one priority; 0: none do
--   at            timestamptz       the present
--   max_per_key ... burst           as for awa.key_room
--
-- Returns of those keys whose heads come first the first jobs of each kind by priority, then
-- run_at, then ID, as many as the key has room for; and with each, that room. A key has it for all
-- its kinds together, which is the caller's to see to. Looks at 1,000 keys, and at 128 more that
-- have room than the caller has, at most; of more, at those from a random key on, so that each
-- gets its turn. Of several keys it returns no more jobs together than four times those that
-- there is room for, or eight of each.
--
-- Locks: none. Steps from key to key, so its cost is the number of keys, whatever the number of
-- jobs that wait: of a key that has no room, one index entry is read. The caller's
-- settings hold here, too.
CREATE OR REPLACE FUNCTION awa.limited_heads(
    wanted_queue text, kinds text[], most int, ageing double precision, at timestamptz,
    max_per_key int, rate double precision, burst double precision
) RETURNS TABLE (
    id bigint, kind text, priority smallint, run_at timestamptz, run_lease bigint,
    limit_key text, room int
)
LANGUAGE plpgsql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    known text[] := awa.limited_kinds(wanted_queue, kinds);
    first int := floor(random() * 4294967296) - 2147483648;
BEGIN
    IF known = '{}' THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH RECURSIVE walk AS (
        SELECT k.kind, first AS hash, '' COLLATE "C" AS key, false AS wrapped, 0 AS room,
               1000 / cardinality(known) AS steps, (128 + most) / cardinality(known) AS wanted,
               NULL::smallint AS priority, NULL::timestamptz AS run_at
          FROM unnest(known) AS k (kind)
         UNION ALL
        SELECT w.kind, k.hash, k.key, k.wrapped, r.room, w.steps - 1,
               CASE WHEN r.room > 0 THEN w.wanted - 1 ELSE w.wanted END, k.priority, k.run_at
          FROM walk AS w
         CROSS JOIN LATERAL (
               SELECT * FROM (
                   (SELECT hashtext(j.limit_key), j.limit_key::text, w.wrapped,
                           j.priority::smallint, j.run_at
                      FROM awa.jobs AS j
                     WHERE j.queue = wanted_queue AND j.kind = w.kind
                       AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due
                       AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL
                       AND (hashtext(j.limit_key), j.limit_key) > (w.hash, w.key)
                     ORDER BY hashtext(j.limit_key), j.limit_key, j.priority, j.run_at, j.id LIMIT 1)
                    UNION ALL
                   (SELECT hashtext(j.limit_key), j.limit_key::text, true,
                           j.priority::smallint, j.run_at
                      FROM awa.jobs AS j
                     WHERE j.queue = wanted_queue AND j.kind = w.kind
                       AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due
                       AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL
                       AND NOT w.wrapped
                     ORDER BY hashtext(j.limit_key), j.limit_key, j.priority, j.run_at, j.id LIMIT 1)
                   ) AS either (hash, key, wrapped, priority, run_at) LIMIT 1) AS k
         CROSS JOIN LATERAL (
               SELECT awa.key_room(wanted_queue, k.key, most, max_per_key, rate, burst) AS room
               ) AS r
         WHERE w.steps > 0 AND w.wanted > 0 AND NOT (k.wrapped AND k.hash >= first)
    ), chosen AS (
        SELECT w.kind, w.hash, w.key, w.room
          FROM walk AS w
         WHERE w.room > 0
         ORDER BY awa.aged(w.priority, at - w.run_at, ageing), w.run_at LIMIT most
    ), counted AS (
        SELECT c.*, greatest(8, 4 * most / count(*) OVER ()) AS most FROM chosen AS c
    )
    SELECT h.id, c.kind, p.priority, h.run_at, h.run_lease, c.key, c.room
      FROM counted AS c
     CROSS JOIN (VALUES (1::smallint), (2::smallint), (3::smallint), (4::smallint)) AS p (priority)
     CROSS JOIN LATERAL (
           SELECT j.id, j.run_at, j.run_lease FROM awa.jobs AS j
            WHERE j.queue = wanted_queue AND j.kind = c.kind
              AND hashtext(j.limit_key) = c.hash AND j.limit_key = c.key
              AND j.priority = p.priority
              AND j.state IN ('available', 'scheduled', 'retryable') AND j.known_due
              AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL AND j.run_at <= at
            ORDER BY j.run_at, j.id LIMIT least(c.room, c.most)) AS h;
END
$$;

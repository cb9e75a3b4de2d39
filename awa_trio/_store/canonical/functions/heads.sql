-- heads: the jobs that wait by a key, ordering or limit, and may start.
--
--   wanted_queue  text              the queue
--   kinds         text[]            the kinds the caller can run
--   most          int               how many the caller has room for
--   ageing        double precision  seconds of waiting that count as one priority; 0: none do
--   at            timestamptz       the present
--
-- Returns what awa.key_heads and awa.limited_heads do, and of each limit key no more together
-- than it has room for, those first that would start first.
--
-- Locks: none; where the queue has limits by key, the caller has its row. The caller's settings
-- hold here, too.
CREATE OR REPLACE FUNCTION awa.heads(
    wanted_queue text, kinds text[], most int, ageing double precision, at timestamptz
) RETURNS TABLE (
    id bigint, kind text, priority smallint, run_at timestamptz, run_lease bigint
)
LANGUAGE plpgsql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    per_key record;
BEGIN
    SELECT q.max_per_key, q.key_rate, q.key_burst INTO per_key
      FROM awa.queues AS q WHERE q.queue = wanted_queue;
    RETURN QUERY
    SELECT c.id, c.kind, c.priority, c.run_at, c.run_lease
      FROM (SELECT h.*, row_number() OVER (
                        PARTITION BY h.limit_key
                        ORDER BY awa.aged(h.priority, at - h.run_at, ageing), h.run_at, h.id) AS place
              FROM (SELECT * FROM awa.key_heads(
                           wanted_queue, kinds, most, at, per_key.max_per_key, per_key.key_rate,
                           per_key.key_burst)
                     UNION ALL
                    SELECT * FROM awa.limited_heads(
                           wanted_queue, kinds, most, ageing, at, per_key.max_per_key, per_key.key_rate,
                           per_key.key_burst)) AS h) AS c
     WHERE c.limit_key IS NULL OR c.place <= c.room;
END
$$;

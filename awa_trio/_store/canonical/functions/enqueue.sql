-- enqueue: insert one job, unless another holds its unique key.
--
-- The documented way in for other languages and for triggers; the parameters are those
-- of awa.enqueue_many, one of each, named for use as in
-- SELECT * FROM awa.enqueue('send_email', '{"to": "a@example.com"}', queue => 'mail').
--
-- Returns one row: the job's ID and true, or the ID of the job that holds the key and false.
--
-- Locks: as awa.enqueue_many.
CREATE OR REPLACE FUNCTION awa.enqueue(
    kind text, args json, queue text DEFAULT 'default', priority int DEFAULT 2,
    max_attempts int DEFAULT 25, tags text[] DEFAULT NULL, metadata json DEFAULT NULL,
    run_at timestamptz DEFAULT NULL, unique_key bytea DEFAULT NULL, unique_states int DEFAULT 31,
    ordering_key text DEFAULT NULL, deadline double precision DEFAULT NULL,
    notify boolean DEFAULT true
) RETURNS TABLE (id bigint, inserted boolean)
LANGUAGE sql
AS $$
    SELECT e.id, e.inserted
      FROM awa.enqueue_many(
        ARRAY[kind], ARRAY[queue], ARRAY[args], ARRAY[priority::smallint],
        ARRAY[max_attempts::smallint], ARRAY[metadata], ARRAY[nullif(tags, '{}')::text],
        ARRAY[run_at], CASE WHEN unique_key IS NOT NULL THEN ARRAY[unique_key] END,
        ARRAY[CASE WHEN unique_key IS NOT NULL THEN unique_states::smallint END],
        ARRAY[ordering_key], ARRAY[deadline], notify) AS e
$$;

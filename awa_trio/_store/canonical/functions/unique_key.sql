-- unique_key: compute the key that all jobs have which count as the same one.
--
-- For whoever enqueues by SQL; programs in Python compute the same. The definition, with test
-- vectors, is docs/reference/unique-keys.md.
--
--   kind       text     the job's kind
--   args       json     its arguments; any spelling of the same JSON gives the same key
--   queue      text     its queue, if jobs in different queues differ; null if they do not
--   by_args    boolean  whether jobs with different arguments differ
--   by_period  bigint   the number of a period, if jobs of different periods differ; or null
--
-- Returns 16 bytes, for the parameter unique_key of awa.enqueue.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.unique_key(
    kind text, args json, queue text DEFAULT NULL, by_args boolean DEFAULT true,
    by_period bigint DEFAULT NULL
) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parts bytea := convert_to(kind, 'UTF8');
BEGIN
    IF queue IS NOT NULL THEN
        parts := parts || '\x00'::bytea || convert_to(queue, 'UTF8');
    END IF;
    IF by_args THEN
        parts := parts || '\x00'::bytea || convert_to(awa.canonical_json(args), 'UTF8');
    END IF;
    IF by_period IS NOT NULL THEN
        -- The least significant byte first.
        parts := parts || '\x00'::bytea
                 || (SELECT string_agg(substr(int8send(by_period), n, 1), ''::bytea ORDER BY n DESC)
                       FROM generate_series(1, 8) AS n);
    END IF;
    RETURN substr(sha256(parts), 1, 16);
END
$$;

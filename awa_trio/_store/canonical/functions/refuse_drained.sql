-- refuse_drained: refuse jobs of queues that are being drained.
--
--   queues  text[]  the queues
--
-- Returns nothing. Raises AW004, with the queue in the detail, if one of them is drained. What
-- is inserted with a settlement is not asked for: it must not keep an attempt from completing.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.refuse_drained(queues text[]) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    drained text;
BEGIN
    SELECT q.queue INTO drained FROM awa.queues AS q
     WHERE q.queue = ANY (queues) AND q.draining_since IS NOT NULL ORDER BY q.queue LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'queue % is drained', drained USING ERRCODE = 'AW004', DETAIL = drained;
    END IF;
END
$$;

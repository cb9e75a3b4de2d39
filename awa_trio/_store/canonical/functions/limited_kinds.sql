-- limited_kinds: the kinds of which jobs wait by a limit key, and are due.
--
--   wanted_queue  text    the queue
--   kinds         text[]  the kinds the caller can run; null: any
--
-- Returns those of them of which some do, in order.
--
-- Locks: none. Steps from kind to kind. The caller's settings hold here, too.
CREATE OR REPLACE FUNCTION awa.limited_kinds(wanted_queue text, kinds text[]) RETURNS text[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    here text := '';
    known text[] := '{}';
BEGIN
    LOOP
        SELECT j.kind INTO here FROM awa.jobs AS j
         WHERE j.queue = wanted_queue AND j.state IN ('available', 'scheduled', 'retryable')
           AND j.known_due AND j.ordering_key IS NULL AND j.limit_key IS NOT NULL
           AND j.kind > here
         ORDER BY j.kind LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF kinds IS NULL OR here = ANY (kinds) THEN
            known := known || here;
        END IF;
    END LOOP;
    RETURN known;
END
$$;

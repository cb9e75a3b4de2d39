-- id_at: about which ID jobs got at a moment.
--
--   moment  timestamptz  the moment
--
-- Returns an ID: jobs with smaller ones were, on the whole, enqueued before. Jobs are stamped
-- when their transaction begins and numbered when they are inserted, so a few may not be.
--
-- Locks: none. Halves the IDs until one is left, so it reads some forty jobs, whatever there is.
CREATE OR REPLACE FUNCTION awa.id_at(moment timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    low bigint;
    high bigint;
    middle bigint;
    here record;
BEGIN
    SELECT s.id INTO low FROM awa.job_stamps() AS s ORDER BY s.id LIMIT 1;
    SELECT s.id + 1 INTO high FROM awa.job_stamps() AS s ORDER BY s.id DESC LIMIT 1;
    WHILE low < high LOOP
        middle := low + (high - low) / 2;
        SELECT s.id, s.created_at INTO here FROM awa.job_stamps() AS s
         WHERE s.id >= middle ORDER BY s.id LIMIT 1;
        IF here IS NULL OR here.created_at >= moment THEN
            high := middle;
        ELSE
            low := here.id + 1;
        END IF;
    END LOOP;
    RETURN low;
END
$$;

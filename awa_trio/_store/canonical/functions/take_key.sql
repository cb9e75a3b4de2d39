-- take_key: take a unique key for a job that is about to be inserted.
--
--   wanted_key  bytea   16 bytes
--   new_id      bigint  the job
--
-- Returns null if the job holds the key now, else the ID of the job that does.
--
-- Locks: the key's claim, until commit, if it takes it. Waits for a transaction that is
-- inserting the same key. A key that another job holds is not locked.
CREATE OR REPLACE FUNCTION awa.take_key(wanted_key bytea, new_id bigint) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    holder bigint;
BEGIN
    LOOP
        INSERT INTO awa.unique_claims (unique_key, job_id) VALUES (wanted_key, new_id)
            ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        -- Nobody holds it any more, where there is none: it was let go of meanwhile.
        SELECT c.job_id INTO holder FROM awa.unique_claims AS c WHERE c.unique_key = wanted_key;
        IF FOUND THEN
            RETURN holder;
        END IF;
    END LOOP;
END
$$;

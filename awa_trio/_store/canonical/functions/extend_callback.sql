-- extend_callback: let a callback time out later, or sooner.
--
--   token    text              what names the callback
--   timeout  double precision  seconds from now
--
-- Returns false if the callback does not exist, has been answered, or has timed out: what
-- has timed out may be on its way to be settled as such.
--
-- Locks: the job's row.
CREATE OR REPLACE FUNCTION awa.extend_callback(token text, timeout double precision)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    UPDATE awa.jobs AS j SET callback_until = clock_timestamp() + make_interval(secs => timeout)
     WHERE j.callback_token = token AND j.callback_until > clock_timestamp()
       AND j.state IN ('running', 'waiting_external');
    RETURN FOUND;
END
$$;

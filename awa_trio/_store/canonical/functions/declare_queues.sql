-- declare_queues: keep the settings that an app has for its queues.
--
--   names     text[]  the queues
--   settings  text[]  their settings, each the text of an object
--
-- Returns nothing. What is there already is not written again. Limits of all workers together
-- are read from here: the last who said so is right.
--
-- Locks: claims, as awa.set_queue does, until commit; the rows of those that change, by name.
CREATE OR REPLACE FUNCTION awa.declare_queues(names text[], settings text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (
        SELECT FROM unnest(names, settings) AS n (name, settings)
          LEFT JOIN awa.queues AS q ON q.queue = n.name
         WHERE q.settings IS DISTINCT FROM n.settings::jsonb)
    THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(awa.queues_lock());
    INSERT INTO awa.queues AS q (queue, settings)
    SELECT n.name, n.settings::jsonb FROM unnest(names, settings) AS n (name, settings)
     ORDER BY n.name COLLATE "C"
        ON CONFLICT (queue) DO UPDATE SET settings = excluded.settings
     WHERE q.settings IS DISTINCT FROM excluded.settings;
END
$$;

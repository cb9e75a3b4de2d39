-- override_queue: put settings in place of those that the app has for a queue, and forget others.
--
--   of_queue   text    the queue
--   changes    jsonb   an object: settings by name, null for no limit
--   forgotten  text[]  settings that are to be the app's again
--
-- Returns whether it changed anything. Workers are told on the channel awa:queues. A value that
-- no queue can have is refused.
--
-- Locks: claims, as awa.set_queue does, until commit; the queue's row.
CREATE OR REPLACE FUNCTION awa.override_queue(of_queue text, changes jsonb, forgotten text[])
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    changed boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(awa.queues_lock());
    INSERT INTO awa.queues (queue) VALUES (of_queue) ON CONFLICT DO NOTHING;
    UPDATE awa.queues AS q SET overrides = (q.overrides - forgotten) || changes
     WHERE q.queue = of_queue AND q.overrides <> (q.overrides - forgotten) || changes;
    changed := FOUND;
    IF changed THEN
        PERFORM pg_notify('awa:queues', of_queue);
        -- It may have more room now.
        PERFORM pg_notify('awa:jobs', of_queue);
    END IF;
    RETURN changed;
END
$$;

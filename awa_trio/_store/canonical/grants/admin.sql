-- To cancel, retry and purge jobs, and to send them to other queues.
GRANT UPDATE (queue, priority), DELETE ON awa.jobs TO :"role";

-- To pause schedules, and to forget them.
GRANT UPDATE (paused_at, cursor), DELETE ON awa.schedules TO :"role";

-- To pause, drain and resume queues, and to override their settings.
GRANT SELECT ON awa.queues TO :"role";
GRANT UPDATE ON SEQUENCE awa.drains TO :"role";
GRANT INSERT (queue), UPDATE (paused_at, draining_since, overrides) ON awa.queues TO :"role";
-- With old jobs go buckets that are full again.
GRANT UPDATE (at), DELETE ON awa.buckets TO :"role";

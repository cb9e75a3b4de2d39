-- To cancel, retry and purge jobs, and to send them to other queues.
GRANT UPDATE (queue, priority), DELETE ON awa.jobs TO :"role";

-- To pause schedules, and to forget them.
GRANT UPDATE (paused_at, cursor), DELETE ON awa.schedules TO :"role";

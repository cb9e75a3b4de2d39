-- To cancel, retry and purge jobs, and to send them to other queues.
GRANT UPDATE (queue, priority), DELETE ON awa.jobs TO :"role";

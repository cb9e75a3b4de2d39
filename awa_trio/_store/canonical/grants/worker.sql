-- To claim and run jobs, to look after the other workers, and to remove what is past its
-- retention.
GRANT UPDATE (run_lease, attempted_at), DELETE ON awa.jobs TO :"role";
GRANT SELECT, INSERT, UPDATE, DELETE ON awa.workers, awa.leaders TO :"role";

-- To fire its schedules.
GRANT SELECT, INSERT, UPDATE ON awa.schedules TO :"role";

-- To obey what is said of queues, to say what its app does, and to keep account of rates.
GRANT SELECT ON awa.queues TO :"role";
GRANT INSERT (queue, settings), UPDATE (settings) ON awa.queues TO :"role";
GRANT UPDATE ON SEQUENCE awa.drains TO :"role";
GRANT SELECT, INSERT, UPDATE, DELETE ON awa.buckets TO :"role";

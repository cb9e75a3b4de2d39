-- To look at jobs, their arguments and errors too, at how they are kept, and at schedules.
GRANT SELECT ON awa.jobs, awa.unique_claims, awa.workers, awa.leaders, awa.schedules TO :"role";
GRANT SELECT ON awa.queues, awa.buckets TO :"role";

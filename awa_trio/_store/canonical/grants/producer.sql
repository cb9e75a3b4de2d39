-- To enqueue, from programs and from SQL. What is enqueued can be neither read nor changed;
-- that a job with a unique key exists, and its ID, can be found out.
GRANT USAGE ON SEQUENCE awa.job_ids TO :"role";
GRANT SELECT (unique_key, job_id), INSERT (unique_key, job_id) ON awa.unique_claims TO :"role";
GRANT INSERT (id, kind, queue, args, priority, max_attempts, metadata, tags, run_at, state,
              unique_key, unique_states, ordering_key, limit_key, known_due, deadline)
    ON awa.jobs TO :"role";
-- To see whether a queue takes jobs.
GRANT SELECT ON SEQUENCE awa.drains TO :"role";
GRANT SELECT (queue, draining_since) ON awa.queues TO :"role";

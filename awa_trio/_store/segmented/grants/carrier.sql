-- To move jobs out of their lanes into awa.jobs.
GRANT SELECT, DELETE ON awa.lane_jobs TO :"role";
GRANT SELECT, UPDATE ON awa.lane_claims TO :"role";
GRANT SELECT, INSERT (segment, claim, completed, ids) ON awa.lane_ends TO :"role";
GRANT SELECT, INSERT, UPDATE ON awa.lane_turns TO :"role";
GRANT INSERT (created_at, attempt, run_lease, worker_id, attempted_at, deadline_at)
    ON awa.jobs TO :"role";

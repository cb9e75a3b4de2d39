-- To move jobs from state to state, with their unique keys; not to change what they are.
GRANT SELECT ON awa.jobs TO :"role";
GRANT UPDATE (state, attempt, run_at, worker_id, deadline_at, finalized_at, callback_token,
              callback_until, callback_answer, progress, output, dead_letter, known_due, errors,
              unique_key, unique_states)
    ON awa.jobs TO :"role";
GRANT UPDATE (job_id), DELETE ON awa.unique_claims TO :"role";

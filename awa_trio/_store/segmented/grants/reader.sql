-- To look at the jobs in their lanes.
GRANT SELECT ON awa.lane_jobs, awa.lane_claims, awa.lane_ends, awa.lane_states, awa.lane_turns,
                awa.lane_sweep, awa.segments, awa.segment_numbers TO :"role";

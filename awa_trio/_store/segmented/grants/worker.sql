-- To claim jobs in their lanes, and to turn the ring of segments.
GRANT SELECT ON awa.lane_states, awa.segment_numbers TO :"role";
GRANT INSERT ON awa.lane_claims TO :"role";
GRANT SELECT, UPDATE ON awa.lane_sweep, awa.segments TO :"role";
GRANT USAGE ON SEQUENCE awa.lane_claim_numbers, awa.segment_numbers TO :"role";
GRANT TRUNCATE ON
    awa.lane_jobs_0, awa.lane_jobs_1, awa.lane_jobs_2, awa.lane_jobs_3, awa.lane_jobs_4,
    awa.lane_jobs_5, awa.lane_claims_0, awa.lane_claims_1, awa.lane_claims_2, awa.lane_claims_3,
    awa.lane_claims_4, awa.lane_claims_5, awa.lane_ends_0, awa.lane_ends_1, awa.lane_ends_2,
    awa.lane_ends_3, awa.lane_ends_4, awa.lane_ends_5
    TO :"role";

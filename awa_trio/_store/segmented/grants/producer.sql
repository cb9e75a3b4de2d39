-- To append: which segment is the current one, and a row.
GRANT SELECT ON SEQUENCE awa.segment_numbers TO :"role";
GRANT INSERT (segment, id, kind, queue, args, priority, max_attempts, metadata, tags, unique_key,
              unique_states, deadline)
    ON awa.lane_jobs TO :"role";

-- lane_ahead: the jobs of a lane, in one segment, that are to be claimed next.
--
--   in_segment   smallint  the segment
--   in_queue     text      the lane: its queue, ...
--   in_kind      text      ... its kind, ...
--   in_priority  smallint  ... and its priority
--   after_xid    xid8      where the last claim ended: beyond this transaction, ...
--   after_id     bigint    ... or, of the same, beyond this job
--   open_xids    xid8[]    transactions before that, of which there may be more: ...
--   open_ids     bigint[]  ... beyond this job of each
--   most         int       how many
--
-- Returns rows of awa.lane_jobs, late ones first.
--
-- Locks: none. Inlined, so that it reads what the calling statement sees.
CREATE OR REPLACE FUNCTION awa.lane_ahead(
    in_segment smallint, in_queue text, in_kind text, in_priority smallint,
    after_xid xid8, after_id bigint, open_xids xid8[], open_ids bigint[], most int
) RETURNS TABLE (
    id bigint, xid xid8, created_at timestamptz, max_attempts awa.max_attempts,
    deadline awa.deadline, args json, metadata awa.metadata, tags awa.tags, late boolean
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT * FROM (
        (SELECT b.*, true
           FROM unnest(open_xids, open_ids) AS o (xid, id)
          CROSS JOIN LATERAL (
                SELECT b.id, b.xid, b.created_at, b.max_attempts, b.deadline, b.args, b.metadata, b.tags
                  FROM awa.lane_jobs AS b
                 WHERE b.segment = in_segment AND b.queue = in_queue AND b.kind = in_kind
                   AND b.priority = in_priority AND b.xid = o.xid AND b.id > o.id
                 ORDER BY b.id LIMIT most) AS b
          LIMIT most)
         UNION ALL
        (SELECT b.id, b.xid, b.created_at, b.max_attempts, b.deadline, b.args, b.metadata, b.tags, false
           FROM awa.lane_jobs AS b
          WHERE b.segment = in_segment AND b.queue = in_queue AND b.kind = in_kind
            AND b.priority = in_priority AND (b.xid, b.id) > (after_xid, after_id)
          ORDER BY b.xid, b.id LIMIT most)) AS a
     LIMIT most;
END;

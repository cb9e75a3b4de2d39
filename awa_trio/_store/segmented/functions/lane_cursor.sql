-- lane_cursor: how far a lane has been claimed, in one segment.
--
--   in_segment   smallint  the segment
--   in_queue     text      the lane: its queue, ...
--   in_kind      text      ... its kind, ...
--   in_priority  smallint  ... and its priority
--
-- Returns one row, which is what the latest claim says.
--
-- Locks: none. Inlined, so that it reads what the calling statement sees.
CREATE OR REPLACE FUNCTION awa.lane_cursor(
    in_segment smallint, in_queue text, in_kind text, in_priority smallint
) RETURNS TABLE (xid xid8, id bigint, open_xids xid8[], open_ids bigint[])
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(c.upto_xid, '0'), coalesce(c.upto_id, 0), c.open_xids, c.open_ids
      FROM (VALUES (1)) AS one
      LEFT JOIN LATERAL (
           SELECT c.upto_xid, c.upto_id, c.open_xids, c.open_ids FROM awa.lane_claims AS c
            WHERE c.segment = in_segment AND c.queue = in_queue AND c.kind = in_kind
              AND c.priority = in_priority
            ORDER BY c.number DESC LIMIT 1) AS c ON true;
END;

-- open_claims: the claims in lanes of which some jobs have not come to their end.
--
-- Returns a row per claim, with the jobs that are running.
--
-- Locks: none. Reads the claims since the last sweep, and those of before that had not been
-- committed then.
CREATE OR REPLACE FUNCTION awa.open_claims() RETURNS TABLE (
    segment smallint, number bigint, xid xid8, worker_id bigint, claimed_at timestamptz,
    deadline double precision, ids int8multirange
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT o.*
      FROM (SELECT c.segment, c.number, c.xid, c.worker_id, c.claimed_at, c.deadline,
                   c.ids - e.ids AS ids
              FROM awa.lane_sweep AS w
             CROSS JOIN LATERAL (
                   SELECT c.* FROM awa.lane_claims AS c
                    WHERE (c.xid, c.number) > (w.upto_xid, w.upto_number)
                    UNION ALL
                   SELECT c.* FROM awa.lane_claims AS c
                    WHERE c.xid = ANY (w.open_xids)
                      AND (c.xid, c.number) <= (w.upto_xid, w.upto_number)) AS c
             CROSS JOIN LATERAL (
                   SELECT coalesce(range_agg(e.ids), '{}') AS ids FROM awa.lane_ends AS e
                    WHERE e.segment = c.segment AND e.claim = c.number) AS e
             WHERE w.only_row) AS o
     WHERE NOT isempty(o.ids);
END;

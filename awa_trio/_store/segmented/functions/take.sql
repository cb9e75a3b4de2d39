-- take: claim jobs of a lane, in one segment.
--
--   worker       bigint            the worker's ID
--   in_segment   smallint          the segment
--   in_queue     awa.label         the lane: its queue, ...
--   in_kind      awa.label         ... its kind, ...
--   in_priority  awa.priority      ... and its priority
--   most         int               how many
--   seconds      double precision  how long an attempt may take, unless the job says; 0: no limit
--
-- Returns the jobs, as awa.claim does, late ones first, then in the order of the lane.
--
-- A lane is read in the order of the transactions that append to it, and one that commits
-- after later ones have been read must not be missed. So the snapshot that reads the jobs also
-- says which transactions before the last of them are still under way: they are noted in the
-- claim, and looked at by the next ones until they have ended. Nobody waits for them.
--
-- Locks: the caller has the lane's row. Its settings hold here, too.
CREATE OR REPLACE FUNCTION awa.take(
    worker bigint, in_segment smallint, in_queue awa.label, in_kind awa.label,
    in_priority awa.priority, most int, seconds double precision
) RETURNS TABLE (
    id bigint, kind awa.label, queue awa.label, priority awa.priority, attempt smallint,
    max_attempts awa.max_attempts, args json, metadata awa.metadata, tags awa.tags,
    created_at timestamptz, run_at timestamptz, deadline double precision, ordering_key awa.label,
    run_lease bigint, progress json, callback_answer json, limit_key awa.label
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH before AS MATERIALIZED (
        SELECT c.* FROM awa.lane_cursor(in_segment, in_queue, in_kind, in_priority) AS c),
    found AS MATERIALIZED (
        SELECT a.* FROM before AS b CROSS JOIN LATERAL awa.lane_ahead(
               in_segment, in_queue, in_kind, in_priority, b.xid, b.id, b.open_xids, b.open_ids,
               most) AS a),
    taken AS MATERIALIZED (
        SELECT range_agg(int8range(f.id, f.id + 1)) AS ids, count(*) AS count,
               (array_agg(f.xid ORDER BY f.xid DESC, f.id DESC) FILTER (WHERE NOT f.late))[1] AS xid,
               (array_agg(f.id ORDER BY f.xid DESC, f.id DESC) FILTER (WHERE NOT f.late))[1] AS id
          FROM found AS f),
    open AS MATERIALIZED (
        SELECT array_agg(o.xid) AS xids, array_agg(o.id) AS ids
          FROM (SELECT o.xid, greatest(o.id, (SELECT max(f.id) FROM found AS f
                                               WHERE f.late AND f.xid = o.xid)) AS id
                  FROM before AS b
                 CROSS JOIN LATERAL unnest(b.open_xids, b.open_ids) AS o (xid, id)
                 WHERE NOT pg_visible_in_snapshot(o.xid, pg_current_snapshot())
                    OR (SELECT t.count FROM taken AS t) = most
                 UNION ALL
                SELECT x.xid, 0
                  FROM before AS b CROSS JOIN taken AS t
                 CROSS JOIN pg_snapshot_xip(pg_current_snapshot()) AS x (xid)
                 WHERE x.xid > b.xid AND x.xid < t.xid) AS o),
    claimed AS (
        INSERT INTO awa.lane_claims
               (segment, worker_id, queue, kind, priority, deadline, ids, upto_xid, upto_id,
                open_xids, open_ids)
        SELECT in_segment, worker, in_queue, in_kind, in_priority, seconds, t.ids,
               coalesce(t.xid, b.xid), coalesce(t.id, b.id), o.xids, o.ids
          FROM before AS b CROSS JOIN taken AS t CROSS JOIN open AS o
         WHERE t.count > 0)
    SELECT f.id, in_kind, in_queue, in_priority, 1::smallint, f.max_attempts, f.args, f.metadata,
           f.tags, f.created_at, f.created_at, coalesce(f.deadline, seconds), NULL::awa.label, 1::bigint,
           NULL::json, NULL::json, NULL::awa.label
      FROM found AS f;
END
$$;

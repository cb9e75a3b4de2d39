-- sweep: give rows to attempts that will not come to their end in their lanes.
--
--   deadline_slack  double precision  seconds past its deadline in which a worker settles an
--                                     attempt itself
--
-- Returns nothing. Moved into awa.jobs are the attempts of workers that are fenced or gone,
-- those far past their deadline, and any that has run for a minute: so what is open in the
-- lanes is never more than a minute of claims, whatever a job takes.
--
-- Locks: the claims that have such attempts, skipping those that anyone else has locked; the
-- row of the sweep, unless someone else has.
CREATE OR REPLACE FUNCTION awa.sweep(deadline_slack double precision) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    lost bigint[];
    moving bigint[];
BEGIN
    lost := ARRAY(
        SELECT c.number FROM awa.open_claims() AS c
          LEFT JOIN awa.workers AS w ON w.id = c.worker_id
         WHERE w.id IS NULL OR w.fenced_at IS NOT NULL
            OR c.claimed_at < clock_timestamp() - interval '1 minute'
            OR EXISTS (
               SELECT FROM unnest(c.ids) AS r (ids)
                 JOIN awa.lane_jobs AS b
                   ON b.segment = c.segment AND b.id >= lower(r.ids) AND b.id < upper(r.ids)
                WHERE c.claimed_at < clock_timestamp() - make_interval(
                      secs => nullif(coalesce(b.deadline, c.deadline), 0) + deadline_slack)));
    IF lost <> '{}' THEN
        lost := ARRAY(SELECT c.number FROM awa.lane_claims AS c WHERE c.number = ANY (lost)
                       ORDER BY c.number FOR UPDATE SKIP LOCKED);
        moving := ARRAY(
            SELECT b.id FROM awa.open_claims() AS c
             CROSS JOIN LATERAL unnest(c.ids) AS r (ids)
              JOIN awa.lane_jobs AS b
                ON b.segment = c.segment AND b.id >= lower(r.ids) AND b.id < upper(r.ids)
             WHERE c.number = ANY (lost));
        PERFORM awa.move_to_rows(moving, lost, '{}');
    END IF;
    PERFORM FROM awa.lane_sweep AS w WHERE w.only_row FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        WITH open AS MATERIALIZED (SELECT c.xid, c.number FROM awa.open_claims() AS c),
        first AS (
            SELECT o.xid, o.number FROM open AS o CROSS JOIN awa.lane_sweep AS w
             WHERE w.only_row AND (o.xid, o.number) > (w.upto_xid, w.upto_number)
             ORDER BY o.xid, o.number LIMIT 1),
        next AS (
            SELECT c.xid, c.number
              FROM awa.lane_sweep AS w
             CROSS JOIN LATERAL (
                   SELECT c.xid, c.number FROM awa.lane_claims AS c
                    WHERE (c.xid, c.number) > (w.upto_xid, w.upto_number)
                      AND NOT EXISTS (SELECT FROM first AS f
                                       WHERE (c.xid, c.number) >= (f.xid, f.number))
                    ORDER BY c.xid DESC, c.number DESC LIMIT 1) AS c
             WHERE w.only_row)
        UPDATE awa.lane_sweep AS w
           SET upto_xid = n.xid, upto_number = n.number,
               open_xids = ARRAY(
                   SELECT x FROM unnest(w.open_xids) AS x
                    WHERE NOT pg_visible_in_snapshot(x, pg_current_snapshot())
                       OR x IN (SELECT o.xid FROM open AS o)
                    UNION
                   SELECT x FROM pg_snapshot_xip(pg_current_snapshot()) AS x
                    WHERE x > w.upto_xid AND x < n.xid)
          FROM next AS n WHERE w.only_row;
    END IF;
END
$$;

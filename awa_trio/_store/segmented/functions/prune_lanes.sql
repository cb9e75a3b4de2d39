-- prune_lanes: delete old jobs from the lanes, and say which unique keys nobody holds for them.
--
--   completed  double precision  seconds a completed job is kept; infinite: for ever
--   most       int               how many to delete
--
-- Returns one row, as awa.delete_jobs. Of a segment all of whose jobs are old only those go
-- that hold a unique key: awa.turn truncates the rest. In a segment of few jobs each goes when
-- its own time has come.
--
-- Locks: none that another transaction waits for: what is deleted is over. The caller has the
-- row of the current segment.
CREATE OR REPLACE FUNCTION awa.prune_lanes(
    completed double precision, most int, OUT removed int, OUT holding bigint[], OUT keys bytea[]
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    newest bigint := pg_sequence_last_value('awa.segment_numbers');
    expired timestamptz := clock_timestamp() - make_interval(secs => least(completed, 1e9));
    place record;
    ids bigint[];
    few boolean;
BEGIN
    removed := 0;
    FOR place IN SELECT s.segment, s.number, s.drained, s.over FROM awa.segments AS s
                  WHERE s.number <= newest ORDER BY s.number
    LOOP
        IF place.drained AND NOT place.over THEN
            UPDATE awa.segments AS s SET over = true
             WHERE s.segment = place.segment AND NOT EXISTS (
                   SELECT FROM awa.lane_claims AS c
                    WHERE c.segment = place.segment AND NOT isempty(
                          c.ids - (SELECT coalesce(range_agg(e.ids), '{}') FROM awa.lane_ends AS e
                                    WHERE e.segment = c.segment AND e.claim = c.number)));
            place.over := FOUND;
        END IF;
        CONTINUE WHEN completed = 'infinity' OR removed >= most;
        few := 10000 >= (SELECT count(*) FROM (SELECT FROM awa.lane_jobs AS b
                                                WHERE b.segment = place.segment LIMIT 10001) AS b);
        place.over := place.over AND NOT EXISTS (
            SELECT FROM awa.lane_ends AS e
             WHERE e.segment = place.segment AND e.completed AND e.at >= expired);
        IF few AND NOT place.over THEN
            ids := ARRAY(
                SELECT b.id
                  FROM awa.lane_ends AS e
                 CROSS JOIN LATERAL unnest(e.ids) AS r (ids)
                  JOIN awa.lane_jobs AS b
                    ON b.segment = place.segment AND b.id >= lower(r.ids) AND b.id < upper(r.ids)
                 WHERE e.segment = place.segment AND e.completed AND e.at < expired
                 LIMIT most - removed);
        ELSIF place.over THEN
            ids := ARRAY(
                SELECT b.id FROM awa.lane_jobs AS b
                 WHERE b.segment = place.segment AND (few OR b.unique_key IS NOT NULL)
                 ORDER BY b.id LIMIT most - removed);
        ELSE
            CONTINUE;
        END IF;
        WITH gone AS (
            DELETE FROM awa.lane_jobs AS b
             WHERE b.segment = place.segment AND b.id = ANY (ids)
            RETURNING b.id, b.unique_key, awa.holds(b.unique_states, 'completed') AS held)
        SELECT removed + count(*), holding || array_agg(g.id) FILTER (WHERE g.held),
               keys || array_agg(g.unique_key) FILTER (WHERE g.held)
          INTO removed, holding, keys FROM gone AS g;
    END LOOP;
END
$$;

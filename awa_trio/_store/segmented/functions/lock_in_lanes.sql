-- lock_in_lanes: find jobs that are in lanes, and keep others from moving them.
--
--   ids  bigint[]  jobs, in lanes or not
--
-- Returns one row:
--   claims     bigint[]  the claims that have some of them; null for none
--   unclaimed  bigint[]  those that nobody has claimed; empty for none
--
-- A claim's row never changes, so it can be looked for first and locked then. What has
-- become of its jobs is to be read in the caller's next statement: it may have changed while
-- this waited.
--
-- Locks, in this order: the lanes of those that nobody has claimed; the claims, by number.
CREATE OR REPLACE FUNCTION awa.lock_in_lanes(
    ids bigint[], OUT claims bigint[], OUT unclaimed bigint[]
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    left_over int8multirange;
    claim record;
    here bigint;
    looked boolean := false;
    lane record;
    ours bigint[];
BEGIN
    LOOP
        -- A step per claim, of which a set of jobs has few.
        claims := NULL;
        unclaimed := NULL;
        left_over := (SELECT range_agg(int8range(i, i + 1)) FROM unnest(ids) AS i);
        WHILE NOT isempty(left_over) LOOP
            here := lower(left_over);
            SELECT c.number, c.ids INTO claim FROM awa.lane_claims AS c
             WHERE c.ids @> here LIMIT 1;
            IF FOUND THEN
                claims := claims || claim.number;
                left_over := left_over - claim.ids;
            ELSIF NOT looked THEN
                ids := ARRAY(SELECT i FROM unnest(ids) AS i
                              WHERE NOT EXISTS (SELECT FROM awa.jobs AS j WHERE j.id = i));
                left_over := left_over * (SELECT coalesce(range_agg(int8range(i, i + 1)), '{}')
                                            FROM unnest(ids) AS i);
                looked := true;
            ELSE
                unclaimed := unclaimed || here;
                left_over := left_over - int8multirange(int8range(here, here + 1));
            END IF;
        END LOOP;
        EXIT WHEN unclaimed IS NULL OR ours IS NOT NULL;
        -- Who is next in these lanes is decided here from now on. Someone may have claimed
        -- them before: look again, once.
        FOR lane IN
            SELECT b.queue, array_agg(b.kind) AS kinds, array_agg(b.priority) AS priorities,
                   array_agg(b.id) AS ids
              FROM awa.lane_jobs AS b WHERE b.id = ANY (unclaimed)
             GROUP BY b.queue ORDER BY b.queue
        LOOP
            PERFORM awa.lock_lanes(lane.queue, lane.kinds::text[], lane.priorities::smallint[]);
            ours := ours || lane.ids;
        END LOOP;
        EXIT WHEN ours IS NULL;
    END LOOP;
    unclaimed := ARRAY(SELECT unnest(unclaimed) INTERSECT SELECT unnest(ours));
    IF claims IS NOT NULL THEN
        PERFORM FROM awa.lane_claims AS c WHERE c.number = ANY (claims)
          ORDER BY c.number FOR UPDATE;
    END IF;
END
$$;

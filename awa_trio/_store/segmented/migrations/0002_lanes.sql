-- 0002: lanes: jobs that are appended, claimed and completed in batches, and never updated.
--
-- An ordinary job is a row of awa.lane_jobs until something out of the ordinary happens to
-- it; then it moves into awa.jobs, and is what it is in the canonical engine from there on
-- (awa.carry). A job is in one of the two tables, never in both.
--
-- All three tables are a ring of segments. New jobs go into the current one; what is said of
-- a job is in the same segment as the job; a segment whose jobs are all over is truncated.

-- The number of the current segment. A sequence, because producers must learn of a rotation
-- at once, whatever snapshot they have.
CREATE SEQUENCE awa.segment_numbers AS bigint MINVALUE 0 START WITH 0;
SELECT setval('awa.segment_numbers', 0);

CREATE SEQUENCE awa.lane_claim_numbers AS bigint;

CREATE TABLE awa.segments (
    segment         smallint PRIMARY KEY,
    number          bigint NOT NULL UNIQUE,
    drained         boolean NOT NULL DEFAULT false,
    opened_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    over            boolean NOT NULL DEFAULT false
);
COMMENT ON COLUMN awa.segments.number IS
    'Counts on for ever: when a segment is truncated it gets a number that is still to come.';
COMMENT ON COLUMN awa.segments.drained IS
    'Nobody can append to it any more, and every job in it has been claimed.';
COMMENT ON COLUMN awa.segments.over IS
    'Drained, and every job in it has completed, or is in awa.jobs.';;
INSERT INTO awa.segments (segment, number) SELECT n, n FROM generate_series(0, 5) AS n;

CREATE TABLE awa.lane_jobs (
    id              bigint NOT NULL,
    xid             xid8 NOT NULL DEFAULT pg_current_xact_id(),
    created_at      timestamptz NOT NULL DEFAULT now(),
    deadline        awa.deadline,
    segment         smallint NOT NULL,
    priority        awa.priority NOT NULL,
    max_attempts    awa.max_attempts NOT NULL,
    unique_states   awa.unique_states,
    kind            awa.label NOT NULL,
    queue           awa.label NOT NULL,
    args            json NOT NULL,
    metadata        awa.metadata,
    tags            awa.tags,
    unique_key      awa.unique_key
) PARTITION BY LIST (segment);
COMMENT ON COLUMN awa.lane_jobs.xid IS
    'The transaction that appended it: a claim reads a lane in this order, and knows from it'
    ' which transactions it has passed that had not committed.';

-- The jobs of a lane, in the order in which they are claimed.
CREATE INDEX lane_jobs_in_order ON awa.lane_jobs (queue, kind, priority, xid, id);
CREATE INDEX lane_jobs_by_id ON awa.lane_jobs (id);

CREATE TABLE awa.lane_claims (
    number          bigint NOT NULL DEFAULT nextval('awa.lane_claim_numbers'),
    xid             xid8 NOT NULL DEFAULT pg_current_xact_id(),
    worker_id       bigint NOT NULL,
    claimed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    deadline        double precision NOT NULL,
    upto_xid        xid8 NOT NULL,
    upto_id         bigint NOT NULL,
    segment         smallint NOT NULL,
    priority        smallint NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    queue           text COLLATE "C" NOT NULL,
    ids             int8multirange NOT NULL,
    open_xids       xid8[],
    open_ids        bigint[]
) PARTITION BY LIST (segment);
COMMENT ON TABLE awa.lane_claims IS
    'What a worker got of one lane in one go. The latest one of a lane says where the next begins.';
COMMENT ON COLUMN awa.lane_claims.upto_xid IS
    'With upto_id: all of the lane up to here has been claimed, but for what open_xids append.';
COMMENT ON COLUMN awa.lane_claims.open_xids IS
    'Transactions before upto_xid that had not ended when they were passed, or of which more is'
    ' left to claim: beyond the job of open_ids.';

-- Where the next claim of a lane begins.
CREATE INDEX lane_claims_of_lane ON awa.lane_claims (queue, kind, priority, number);
CREATE INDEX lane_claims_by_number ON awa.lane_claims (number);
-- Which claim a job is of.
CREATE INDEX lane_claims_by_job ON awa.lane_claims USING gist (ids);
-- Claims, in an order in which those that commit late can be found.
CREATE INDEX lane_claims_in_order ON awa.lane_claims (xid, number);

CREATE TABLE awa.lane_ends (
    claim           bigint NOT NULL,
    at              timestamptz NOT NULL DEFAULT clock_timestamp(),
    segment         smallint NOT NULL,
    completed       boolean NOT NULL,
    ids             int8multirange NOT NULL
) PARTITION BY LIST (segment);
COMMENT ON TABLE awa.lane_ends IS
    'Jobs of a claim that are over with: completed, or moved into awa.jobs. Who appends one has'
    ' locked the row of the claim, and looked since at what else there is.';
CREATE INDEX lane_ends_of_claim ON awa.lane_ends (claim);

DO $$
BEGIN
    FOR n IN 0..5 LOOP
        -- They are appended to and truncated: to vacuum them for inserts would rewrite them.
        EXECUTE format(
            'CREATE TABLE awa.lane_jobs_%1$s PARTITION OF awa.lane_jobs FOR VALUES IN (%1$s)'
            ' WITH (autovacuum_vacuum_insert_threshold = -1);'
            'CREATE TABLE awa.lane_claims_%1$s PARTITION OF awa.lane_claims FOR VALUES IN (%1$s)'
            ' WITH (autovacuum_vacuum_insert_threshold = -1);'
            'CREATE TABLE awa.lane_ends_%1$s PARTITION OF awa.lane_ends FOR VALUES IN (%1$s)'
            ' WITH (autovacuum_vacuum_insert_threshold = -1);', n);
    END LOOP;
END
$$;

-- The claimers of a lane take turns on its row. It is locked for the length of one claim, and
-- never changed. Producers do not know of it.
CREATE TABLE awa.lane_turns (
    queue           text COLLATE "C" NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    priority        smallint NOT NULL,
    PRIMARY KEY (queue, kind, priority)
);

-- All claims up to here are over with, but for those of the open transactions.
CREATE TABLE awa.lane_sweep (
    upto_xid        xid8 NOT NULL,
    upto_number     bigint NOT NULL,
    open_xids       xid8[],
    only_row        boolean PRIMARY KEY DEFAULT true CHECK (only_row)
) WITH (fillfactor = 10);
INSERT INTO awa.lane_sweep (upto_xid, upto_number) VALUES ('0', 0);

-- What has become of the jobs in the lanes.
CREATE VIEW awa.lane_states AS
    SELECT b.id, b.kind, b.queue, b.priority, b.max_attempts, b.args, b.metadata, b.tags,
           b.created_at, b.deadline, b.unique_key, b.unique_states, b.segment,
           c.number AS claim, c.claimed_at, e.at AS completed_at,
           CASE WHEN c.number IS NULL THEN 0 ELSE 1 END AS attempt,
           CASE WHEN c.number IS NULL THEN 'available'
                WHEN e.at IS NULL THEN 'running' ELSE 'completed' END AS state,
           CASE WHEN e.at IS NULL THEN c.worker_id END AS worker_id,
           CASE WHEN e.at IS NULL
                THEN c.claimed_at + make_interval(secs => nullif(coalesce(b.deadline, c.deadline), 0))
                END AS deadline_at
      FROM awa.lane_jobs AS b
      LEFT JOIN LATERAL (
           SELECT c.number, c.claimed_at, c.worker_id, c.deadline FROM awa.lane_claims AS c
            WHERE c.segment = b.segment AND c.ids @> b.id LIMIT 1) AS c ON true
      LEFT JOIN LATERAL (
           SELECT e.at FROM awa.lane_ends AS e
            WHERE e.segment = b.segment AND e.claim = c.number AND e.ids @> b.id
              AND e.completed LIMIT 1) AS e ON true;

-- 0001: jobs, their unique claims, and the workers that run them.
--
-- One table of live jobs, updated in place. The functions in ../functions are the
-- only writers; nothing outside them relies on these columns.

CREATE TYPE awa.job_state AS ENUM (
    'scheduled', 'available', 'running', 'completed',
    'retryable', 'failed', 'cancelled', 'waiting_external'
);
COMMENT ON TYPE awa.job_state IS
    'The order of the labels is the order of the bits in awa.jobs.unique_states.';

-- Rules of a single column are domains: PostgreSQL reads the CHECKs of a table again at
-- every INSERT statement, which took half the time of one that enqueues a single job.
CREATE DOMAIN awa.label AS text COLLATE "C" CHECK (length(value) BETWEEN 1 AND 200);
CREATE DOMAIN awa.priority AS smallint CHECK (value BETWEEN 1 AND 4);
CREATE DOMAIN awa.max_attempts AS smallint CHECK (value BETWEEN 1 AND 1000);
CREATE DOMAIN awa.deadline AS double precision CHECK (value BETWEEN 0 AND 366 * 86400);
CREATE DOMAIN awa.metadata AS json CHECK (json_typeof(value) = 'object');
CREATE DOMAIN awa.tags AS text[] CHECK (cardinality(value) BETWEEN 1 AND 20);
CREATE DOMAIN awa.unique_key AS bytea CHECK (octet_length(value) = 16);
CREATE DOMAIN awa.unique_states AS smallint CHECK (value BETWEEN 1 AND 255);

CREATE SEQUENCE awa.job_ids AS bigint;

CREATE TABLE awa.jobs (
    id              bigint PRIMARY KEY DEFAULT nextval('awa.job_ids'),
    run_lease       bigint NOT NULL DEFAULT 0,
    run_at          timestamptz NOT NULL DEFAULT now(),
    created_at      timestamptz NOT NULL DEFAULT now(),
    worker_id       bigint,
    attempted_at    timestamptz,
    deadline_at     timestamptz,
    finalized_at    timestamptz,
    deadline        awa.deadline,
    state           awa.job_state NOT NULL DEFAULT 'available',
    priority        awa.priority NOT NULL DEFAULT 2,
    attempt         smallint NOT NULL DEFAULT 0,
    max_attempts    awa.max_attempts NOT NULL DEFAULT 25,
    unique_states   awa.unique_states,
    kind            awa.label NOT NULL,
    queue           awa.label NOT NULL DEFAULT 'default',
    args            json NOT NULL,
    metadata        awa.metadata,
    tags            awa.tags,
    unique_key      awa.unique_key,
    ordering_key    awa.label,
    callback_token  text,
    errors          jsonb,
    -- One, for the same reason.
    CONSTRAINT jobs_whole CHECK (
        attempt BETWEEN 0 AND max_attempts
        AND (worker_id IS NOT NULL) = (state = 'running')
        AND (finalized_at IS NOT NULL) = (state IN ('completed', 'failed', 'cancelled'))
        AND (unique_key IS NULL) = (unique_states IS NULL))
) WITH (
    -- A queue's table is small and turns over; waiting for a fifth of it to die
    -- would let every claim wade through dead index entries.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- Each (queue, kind, priority) is a lane in which jobs wait in order of run_at: a
-- claim reads the heads of the lanes it knows and stops at the first job that is
-- not due yet. Neither jobs of a kind nobody here knows nor jobs of the future
-- are ever read.
CREATE INDEX jobs_waiting ON awa.jobs (queue, kind, priority, run_at, id)
    WHERE state IN ('available', 'scheduled', 'retryable');

-- What a worker holds, and which of it is overdue.
CREATE INDEX jobs_running ON awa.jobs (worker_id, deadline_at) WHERE state = 'running';

-- What retention removes, oldest first.
CREATE INDEX jobs_settled ON awa.jobs (state, finalized_at)
    WHERE state IN ('completed', 'failed', 'cancelled');

-- The job that holds a unique key. A row exists exactly while that job's state is in
-- its own mask. A table rather than a partial index on awa.jobs, because letting go
-- of a key must conflict with a transaction that was told "someone holds it".
CREATE TABLE awa.unique_claims (
    unique_key      bytea PRIMARY KEY,
    job_id          bigint NOT NULL
);

CREATE TABLE awa.workers (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name            text NOT NULL,
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    beat_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease           interval NOT NULL,
    fenced_at       timestamptz
) WITH (fillfactor = 50);
COMMENT ON COLUMN awa.workers.fenced_at IS
    'Set when the worker missed its lease: from then on nothing of it is accepted.';

-- One worker at a time does a duty for all of them. A row, not a session lock:
-- those are lost, or shared with strangers, behind a transaction pooler.
CREATE TABLE awa.leaders (
    duty            text PRIMARY KEY,
    worker_id       bigint NOT NULL,
    until           timestamptz NOT NULL
);

-- A job as people and other programs read it, the same from every engine.
CREATE TYPE awa.job AS (
    id              bigint,
    kind            text,
    queue           text,
    priority        smallint,
    attempt         smallint,
    max_attempts    smallint,
    args            json,
    metadata        json,
    tags            text[],
    created_at      timestamptz,
    run_at          timestamptz,
    deadline        double precision,
    ordering_key    text,
    run_lease       bigint,
    state           text,
    errors          jsonb,
    worker_id       bigint,
    attempted_at    timestamptz,
    deadline_at     timestamptz,
    finalized_at    timestamptz,
    unique_key      bytea,
    unique_states   smallint
);

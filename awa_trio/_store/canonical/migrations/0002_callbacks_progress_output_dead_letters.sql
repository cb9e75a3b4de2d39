-- 0002: what a job keeps besides its arguments: callbacks, progress, output, dead letters. And
-- what a worker says of itself.

ALTER TABLE awa.jobs
    ADD COLUMN callback_until  timestamptz,
    ADD COLUMN callback_answer json,
    ADD COLUMN progress        json,
    ADD COLUMN output          json,
    ADD COLUMN dead_letter     text,
    ADD COLUMN known_due       boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT jobs_whole,
    ADD CONSTRAINT jobs_whole CHECK (
        attempt BETWEEN 0 AND max_attempts
        AND CASE state WHEN 'running' THEN worker_id IS NOT NULL
                       WHEN 'waiting_external' THEN callback_token IS NOT NULL
                       ELSE worker_id IS NULL END
        AND (finalized_at IS NOT NULL) = (state IN ('completed', 'failed', 'cancelled'))
        AND (unique_key IS NULL) = (unique_states IS NULL)
        AND (dead_letter IS NULL OR state = 'failed')
        AND (callback_until IS NULL OR callback_token IS NOT NULL)
        -- As every request has it. From infinity nothing can be subtracted: one such row would
        -- keep all others from being claimed.
        AND run_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999999+00');

-- Tags are texts: not null, and not lists of tags.
ALTER DOMAIN awa.tags ADD CONSTRAINT tags_flat
    CHECK (array_ndims(value) = 1 AND array_position(value, NULL) IS NULL);

COMMENT ON COLUMN awa.jobs.worker_id IS
    'Who runs it; while it waits for a callback, whose handler waits in memory, if one does.';
COMMENT ON COLUMN awa.jobs.callback_until IS
    'When the callback times out. Null beside a token: the callback has been answered.';
COMMENT ON COLUMN awa.jobs.callback_answer IS
    'The latest answer, {"token": ..., "payload": ...}; kept until the job ends.';

COMMENT ON COLUMN awa.jobs.known_due IS
    'A job with an ordering key that was due when it was inserted or moved, or found due since.';

CREATE UNIQUE INDEX jobs_callbacks ON awa.jobs (callback_token) WHERE callback_token IS NOT NULL;

-- Callbacks that time out.
CREATE INDEX jobs_waiting_external ON awa.jobs (callback_until) WHERE state = 'waiting_external';

-- What a worker waits with, and which of it has been answered.
CREATE INDEX jobs_waiters ON awa.jobs (worker_id, callback_until)
    WHERE state = 'waiting_external' AND worker_id IS NOT NULL;

-- What retention removes, oldest first: dead letters are kept longer than others that
-- failed, which are not to be looked for among them. And dead letters as people list them.
DROP INDEX awa.jobs_settled;
CREATE INDEX jobs_settled ON awa.jobs (state, finalized_at)
    WHERE state IN ('completed', 'failed', 'cancelled') AND dead_letter IS NULL;
CREATE INDEX jobs_dead_letters_settled ON awa.jobs (finalized_at) WHERE dead_letter IS NOT NULL;
CREATE INDEX jobs_dead_letters ON awa.jobs (id) WHERE dead_letter IS NOT NULL;

-- Jobs with an ordering key wait apart: a million of one key, of which one may run, must
-- not lie at the head of a lane.
DROP INDEX awa.jobs_waiting;
CREATE INDEX jobs_waiting ON awa.jobs (queue, kind, priority, run_at, id)
    WHERE state IN ('available', 'scheduled', 'retryable') AND ordering_key IS NULL;

-- Which job of a key is the next.
CREATE INDEX jobs_by_ordering_key ON awa.jobs (queue, ordering_key, run_at, id)
    WHERE state IN ('available', 'scheduled', 'retryable') AND ordering_key IS NOT NULL;

-- Which keys have jobs that are due. By hash, so that a claim can begin anywhere where
-- there are more keys than it looks at. Entries that share one place cannot be marked dead
-- one by one, and all jobs of a key would: each claim would wade through the settled ones.
CREATE INDEX jobs_due_keys ON awa.jobs (queue, kind, hashtext(ordering_key), ordering_key)
    WITH (deduplicate_items = off)
    WHERE state IN ('available', 'scheduled', 'retryable') AND known_due;

-- Jobs with a key that will be due, so that those of the future are never read.
CREATE INDEX jobs_due_later ON awa.jobs (queue, run_at) WITH (deduplicate_items = off)
    WHERE state IN ('available', 'scheduled', 'retryable') AND ordering_key IS NOT NULL
          AND NOT known_due;

-- Which keys are taken, and that none is taken twice.
CREATE UNIQUE INDEX jobs_taken_keys ON awa.jobs (queue, ordering_key)
    WHERE state IN ('running', 'waiting_external') AND ordering_key IS NOT NULL;

ALTER TYPE awa.job
    ADD ATTRIBUTE progress        json,
    ADD ATTRIBUTE callback_answer json,
    ADD ATTRIBUTE output          json,
    ADD ATTRIBUTE dead_letter     text,
    ADD ATTRIBUTE callback_token  text,
    ADD ATTRIBUTE callback_until  timestamptz;

ALTER TABLE awa.workers
    ADD COLUMN queues text[],
    ADD COLUMN kinds  text[];
COMMENT ON COLUMN awa.workers.queues IS
    'The queues it serves, and in kinds what it can run; for people, and null if it did not say.';

-- Their parameters or results change. A new database has none of them yet.
DROP FUNCTION IF EXISTS awa.register(text, double precision);
DROP FUNCTION IF EXISTS awa.settle(
    bigint, int, boolean, bigint[], bigint[], awa.job_state[], awa.job_state[], int[],
    double precision[], text[], text[], int[], text[], text[], json[], smallint[], smallint[], json[],
    text[], timestamptz[], bytea[], smallint[], text[], double precision[], boolean);
DROP FUNCTION IF EXISTS awa.claim(bigint, text[], int[], double precision[], text[], double precision[]);
DROP FUNCTION IF EXISTS awa.lanes(text, text[], double precision[]);
DROP FUNCTION IF EXISTS awa.rescue(int, double precision, text[], double precision);
DROP FUNCTION IF EXISTS awa.prune(double precision, double precision, int);
DROP FUNCTION IF EXISTS awa.running(bigint);
DROP FUNCTION IF EXISTS awa.claim(
    bigint, text[], int[], double precision[], double precision[], text[], double precision[]);
DROP FUNCTION IF EXISTS awa.lanes(text, text[]);

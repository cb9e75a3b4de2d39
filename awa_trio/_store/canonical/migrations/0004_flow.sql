-- 0004: flow control: pauses and limits of queues, and keys that jobs are limited by.

ALTER TABLE awa.jobs ADD COLUMN limit_key awa.label;
ALTER TYPE awa.job ADD ATTRIBUTE limit_key text;

-- What is said about a queue while it is used. A queue of which nothing was ever said has no
-- row. A claim of a queue with limits locks its row, so that such claims take turns; it writes
-- to it only who says something new.
CREATE TABLE awa.queues (
    queue           awa.label PRIMARY KEY,
    paused_at       timestamptz,
    draining_since  timestamptz,
    settings        jsonb CHECK (jsonb_typeof(settings) = 'object'),
    overrides       jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(overrides) = 'object'),
    rate            double precision GENERATED ALWAYS AS (
        ((coalesce(settings, '{}') || overrides) #>> '{rate,count}')::double precision
        / ((coalesce(settings, '{}') || overrides) #>> '{rate,per}')::double precision) STORED,
    burst           double precision GENERATED ALWAYS AS (
        ((coalesce(settings, '{}') || overrides) #>> '{rate,burst}')::double precision) STORED,
    key_rate        double precision GENERATED ALWAYS AS (
        ((coalesce(settings, '{}') || overrides) #>> '{rate_per_key,count}')::double precision
        / ((coalesce(settings, '{}') || overrides) #>> '{rate_per_key,per}')::double precision) STORED,
    key_burst       double precision GENERATED ALWAYS AS (
        ((coalesce(settings, '{}') || overrides) #>> '{rate_per_key,burst}')::double precision) STORED,
    max_per_key     int GENERATED ALWAYS AS (
        ((coalesce(settings, '{}') || overrides) ->> 'max_per_key')::int) STORED,
    CONSTRAINT queues_whole CHECK (
        (rate IS NULL) = (burst IS NULL) AND (key_rate IS NULL) = (key_burst IS NULL)
        AND coalesce(rate BETWEEN 1e-8 AND 1e6 AND burst BETWEEN 1 AND 1e6, true)
        AND coalesce(key_rate BETWEEN 1e-8 AND 1e6 AND key_burst BETWEEN 1 AND 1e6, true)
        AND coalesce(max_per_key >= 1, true))
);
COMMENT ON COLUMN awa.queues.settings IS
    'As the worker that started last has them from its app.';
COMMENT ON COLUMN awa.queues.overrides IS
    'What an operator has put in their place, until it is reset.';

-- Whether a queue may be drained: 0 if none is. A sequence, because that is the cheapest thing
-- for an enqueue to look at; and who drains a queue sets it before anybody can see the row.
CREATE SEQUENCE awa.drains AS int MINVALUE 0 START WITH 0;
SELECT setval('awa.drains', 0);

-- What is left of rates: of a queue, where the key is empty, and of its limit keys. A bucket
-- without a row is full. Only who has locked the queue's row writes one, once in a claim.
CREATE TABLE awa.buckets (
    queue           text COLLATE "C" NOT NULL,
    limit_key       text COLLATE "C" NOT NULL,
    tokens          double precision NOT NULL,
    at              timestamptz NOT NULL,
    PRIMARY KEY (queue, limit_key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 100);

-- The cheapest condition comes first: an ordinary job is asked all of them when it is inserted.
-- Jobs with a limit key wait apart, as those with an ordering key do: a million of one key
-- that has nothing left must not lie at the head of a lane.
DROP INDEX awa.jobs_waiting;
CREATE INDEX jobs_waiting ON awa.jobs (queue, kind, priority, run_at, id)
    WHERE ordering_key IS NULL AND limit_key IS NULL
          AND state IN ('available', 'scheduled', 'retryable');

DROP INDEX awa.jobs_by_ordering_key;
CREATE INDEX jobs_by_ordering_key ON awa.jobs (queue, ordering_key, run_at, id)
    WHERE ordering_key IS NOT NULL AND state IN ('available', 'scheduled', 'retryable');

DROP INDEX awa.jobs_due_keys;
CREATE INDEX jobs_due_keys ON awa.jobs (queue, kind, hashtext(ordering_key), ordering_key)
    WITH (deduplicate_items = off)
    WHERE ordering_key IS NOT NULL AND known_due
          AND state IN ('available', 'scheduled', 'retryable');

DROP INDEX awa.jobs_due_later;
CREATE INDEX jobs_due_later ON awa.jobs (queue, run_at) WITH (deduplicate_items = off)
    WHERE (ordering_key IS NOT NULL OR limit_key IS NOT NULL) AND NOT known_due
          AND state IN ('available', 'scheduled', 'retryable');

-- Which limit keys have jobs that are due, and which of these is the next. By hash, as those
-- of ordering keys are. A job with both keys waits by its ordering key.
CREATE INDEX jobs_by_limit_key
    ON awa.jobs (queue, kind, hashtext(limit_key), limit_key, priority, run_at, id)
    WHERE limit_key IS NOT NULL AND ordering_key IS NULL AND known_due
          AND state IN ('available', 'scheduled', 'retryable');

-- How many attempts of a limit key are under way: they are counted, not kept count of, so
-- that whatever ends an attempt gives its place back.
CREATE INDEX jobs_held_by_limit_key ON awa.jobs (queue, limit_key)
    WHERE limit_key IS NOT NULL AND worker_id IS NOT NULL;

COMMENT ON COLUMN awa.jobs.known_due IS
    'A job with an ordering key or a limit key that was due when it was inserted or moved, or'
    ' found due since.';

-- Their parameters or results change. A new database has none of them yet.
DROP FUNCTION IF EXISTS awa.enqueue(
    text, json, text, int, int, text[], json, timestamptz, bytea, int, text, double precision, boolean);
DROP FUNCTION IF EXISTS awa.enqueue_row(
    text, json, text, int, int, text[], json, timestamptz, bytea, int, text, double precision, boolean);
DROP FUNCTION IF EXISTS awa.enqueue_many(
    text[], text[], json[], smallint[], smallint[], json[], text[], timestamptz[], bytea[],
    smallint[], text[], double precision[], boolean);
DROP FUNCTION IF EXISTS awa.insert_jobs(
    bigint[], text[], text[], json[], smallint[], smallint[], json[], text[], timestamptz[], bytea[],
    smallint[], text[], double precision[], boolean);
DROP FUNCTION IF EXISTS awa.insert_rows(
    bigint[], text[], text[], json[], smallint[], smallint[], json[], text[], timestamptz[], bytea[],
    smallint[], text[], double precision[], boolean);
DROP FUNCTION IF EXISTS awa.settle(
    bigint, int, boolean, bigint[], bigint[], awa.job_state[], awa.job_state[], int[],
    double precision[], text[], text[], json[], json[], json[], text[], int[], text[], text[], json[],
    smallint[], smallint[], json[], text[], timestamptz[], bytea[], smallint[], text[],
    double precision[], boolean);
DROP FUNCTION IF EXISTS awa.claim(
    bigint, text[], int[], double precision[], double precision[], text[], double precision[],
    text[], text[], smallint[], timestamptz[], bigint[]);
DROP FUNCTION IF EXISTS awa.claim_rows(
    bigint, text[], int[], double precision[], double precision[], text[], double precision[],
    text[], text[], smallint[], timestamptz[], bigint[]);
DROP FUNCTION IF EXISTS awa.start_jobs(
    bigint, bigint[], boolean, text[], double precision[], double precision, double precision,
    timestamptz, int);
DROP FUNCTION IF EXISTS awa.take(
    bigint, smallint, awa.label, awa.label, awa.priority, int, double precision);
DROP FUNCTION IF EXISTS awa.rescue(int, double precision, text[], double precision);
DROP FUNCTION IF EXISTS awa.rescue_rows(int, double precision, text[], double precision);
DROP FUNCTION IF EXISTS awa.key_heads(text, text[], int, timestamptz);
DROP FUNCTION IF EXISTS awa.fire_cron(
    text, timestamptz, timestamptz, int, text[], text[], json[], smallint[], smallint[], json[],
    text[], timestamptz[], bytea[], smallint[], text[], double precision[], boolean);
DROP FUNCTION IF EXISTS awa.job_facts(bigint, int);
DROP FUNCTION IF EXISTS awa.goes_in_lane(timestamptz, text, bytea, smallint);

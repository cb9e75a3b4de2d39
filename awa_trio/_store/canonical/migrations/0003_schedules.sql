-- 0003: schedules: up to which instant each has fired.
--
-- When a schedule fires is decided by programs, and what it enqueues is theirs. Here is what
-- makes it happen once: a cursor, which moves in the statement that inserts the jobs.

CREATE TABLE awa.schedules (
    name            awa.label PRIMARY KEY,
    expression      text NOT NULL,
    timezone        text,
    kind            text,
    missed          text NOT NULL,
    since           timestamptz NOT NULL,
    cursor          timestamptz NOT NULL,
    fires           bigint NOT NULL DEFAULT 0,
    fired_for       timestamptz,
    fired_at        timestamptz,
    last_job_id     bigint,
    paused_at       timestamptz,
    seen_at         timestamptz NOT NULL,
    error           text,
    -- As what can be counted with: from infinity nothing can be subtracted.
    CONSTRAINT schedules_whole CHECK (
        since BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999999+00'
        AND cursor BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59.999999+00')
) WITH (fillfactor = 50);
COMMENT ON COLUMN awa.schedules.cursor IS 'All instants up to here are dealt with.';
COMMENT ON COLUMN awa.schedules.since IS
    'When it became known, or its expression changed: from when a period counts.';
COMMENT ON COLUMN awa.schedules.seen_at IS 'When a worker that has it last said so.';
COMMENT ON COLUMN awa.schedules.error IS 'Why its next fire could not be made.';

-- What is committed in the awa schema, written down in the transactions that commit it.
--
-- An event of a transaction that does not commit does not exist. Events on one row are in
-- the order of their numbers, because the row is locked from its event to the commit; so the
-- transactions, in the order of the last event of each, are a serial history.

CREATE SCHEMA trace;

CREATE TABLE trace.events (
    number  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid     xid8 NOT NULL DEFAULT pg_current_xact_id(),
    what    text NOT NULL,
    facts   jsonb NOT NULL
);

-- Whoever may work may be recorded.
CREATE FUNCTION trace.note(what text, facts jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = trace, pg_temp
AS $$ INSERT INTO trace.events (what, facts) VALUES (what, facts) $$;
GRANT USAGE ON SCHEMA trace TO PUBLIC;

CREATE FUNCTION trace.of_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM trace.note('row gone', jsonb_build_object('job', OLD.id));
    ELSE
        PERFORM trace.note('row', jsonb_build_object(
            'job', NEW.id, 'kind', NEW.kind, 'state', NEW.state, 'lease', NEW.run_lease,
            'worker', NEW.worker_id, 'attempt', NEW.attempt,
            'by', NEW.metadata ->> 'awa:triggered_by',
            -- Others may decide of it: it is overdue, or has a callback, or is cancelled.
            'excused', TG_OP = 'UPDATE' AND (coalesce(OLD.deadline_at < clock_timestamp(), false)
                       OR OLD.callback_token IS NOT NULL OR NEW.state = 'cancelled')));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER trace_changed AFTER INSERT OR UPDATE OR DELETE ON awa.jobs
    FOR EACH ROW EXECUTE FUNCTION trace.of_job();

CREATE FUNCTION trace.of_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM trace.note('key free', jsonb_build_object(
            'key', encode(OLD.unique_key, 'hex'), 'job', OLD.job_id));
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM trace.note('key held', jsonb_build_object(
            'key', encode(NEW.unique_key, 'hex'), 'job', NEW.job_id));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER trace_changed AFTER INSERT OR UPDATE OR DELETE ON awa.unique_claims
    FOR EACH ROW EXECUTE FUNCTION trace.of_key();

CREATE FUNCTION trace.of_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM trace.note(CASE TG_OP WHEN 'DELETE' THEN 'worker gone' ELSE 'fenced' END,
                       jsonb_build_object('worker', OLD.id));
    RETURN NULL;
END
$$;
CREATE TRIGGER trace_fenced AFTER UPDATE OF fenced_at ON awa.workers
    FOR EACH ROW WHEN (NEW.fenced_at IS NOT NULL) EXECUTE FUNCTION trace.of_worker();
CREATE TRIGGER trace_gone AFTER DELETE ON awa.workers
    FOR EACH ROW EXECUTE FUNCTION trace.of_worker();

-- What a settlement asked for, and what it was told: who, under which lease, and what is to
-- come with it. The rows do not say whose idea a change was.
DO $do$
DECLARE
    one record;
BEGIN
    SELECT pg_get_function_arguments(p.oid) AS parameters, p.pronargs AS count,
           (SELECT string_agg('$' || n, ', ') FROM generate_series(1, p.pronargs) AS n) AS given
      INTO one
      FROM pg_proc AS p WHERE p.oid = to_regproc('awa.settle');
    ALTER FUNCTION awa.settle RENAME TO settle_unrecorded;
    EXECUTE format($outer$
        CREATE FUNCTION awa.settle(%s) LANGUAGE plpgsql AS $wrapper$
        #variable_conflict use_column
        BEGIN
            SELECT * INTO stale, new_ids, new_holders, losers, holders
              FROM awa.settle_unrecorded(%s);
            PERFORM trace.note('settlement', jsonb_build_object(
                'worker', settle.worker,
                'plans', (SELECT jsonb_agg(jsonb_build_object(
                                 'number', p.number, 'job', p.job_id, 'lease', p.run_lease,
                                 'from', p.from_state, 'to', p.to_state,
                                 'token', settle.tokens[p.number] IS NOT NULL,
                                 'applied', settle.stale IS NULL OR p.number <> ALL (settle.stale)))
                            FROM unnest(settle.job_ids, settle.run_leases, settle.from_states,
                                        settle.to_states) WITH ORDINALITY
                                 AS p (job_id, run_lease, from_state, to_state, number)),
                'inserts', (SELECT jsonb_agg(jsonb_build_object(
                                   'plan', i.parent, 'kind', i.kind, 'job', i.id,
                                   'holder', i.holder,
                                   'key', CASE WHEN awa.holds(i.states, CASE
                                               WHEN i.run_at > now() THEN 'scheduled'
                                               ELSE 'available' END::awa.job_state)
                                          THEN encode(i.key, 'hex') END) ORDER BY i.number)
                              FROM unnest(settle.parents, settle.kinds, settle.new_ids, settle.new_holders,
                                          settle.unique_keys, settle.unique_states,
                                          settle.run_at) WITH ORDINALITY
                                   AS i (parent, kind, id, holder, key, states, run_at, number))));
        END $wrapper$ $outer$, one.parameters, one.given);
    IF to_regclass('awa.lane_jobs') IS NULL THEN
        RETURN;
    END IF;

    -- The lanes of the segmented engine.
    CREATE FUNCTION trace.of_lane_job() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            PERFORM trace.note('lane gone', jsonb_build_object('job', OLD.id));
        ELSE
            PERFORM trace.note('lane', jsonb_build_object(
                'job', NEW.id, 'kind', NEW.kind, 'segment', NEW.segment,
                'by', NEW.metadata ->> 'awa:triggered_by'));
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER trace_changed AFTER INSERT OR DELETE ON awa.lane_jobs
        FOR EACH ROW EXECUTE FUNCTION trace.of_lane_job();

    CREATE FUNCTION trace.of_lane_claim() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM trace.note('lane claimed', jsonb_build_object(
            'worker', NEW.worker_id, 'jobs', trace.members(NEW.ids)));
        RETURN NULL;
    END $$;
    CREATE FUNCTION trace.members(ids int8multirange) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
        SELECT jsonb_agg(i) FROM unnest(ids) AS r
         CROSS JOIN generate_series(lower(r), upper(r) - 1) AS i $$;
    CREATE TRIGGER trace_claimed AFTER INSERT ON awa.lane_claims
        FOR EACH ROW EXECUTE FUNCTION trace.of_lane_claim();

    CREATE FUNCTION trace.of_lane_end() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.completed THEN
            PERFORM trace.note('lane completed', jsonb_build_object('jobs', trace.members(NEW.ids)));
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER trace_ended AFTER INSERT ON awa.lane_ends
        FOR EACH ROW EXECUTE FUNCTION trace.of_lane_end();

    CREATE FUNCTION trace.of_truncation() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        jobs jsonb;
    BEGIN
        EXECUTE format('SELECT jsonb_agg(b.id) FROM %I.%I AS b', TG_TABLE_SCHEMA, TG_TABLE_NAME)
           INTO jobs;
        PERFORM trace.note('truncated', jsonb_build_object(
            'segment', right(TG_TABLE_NAME, 1)::int, 'jobs', coalesce(jobs, '[]')));
        RETURN NULL;
    END $$;
    FOR n IN 0..5 LOOP
        EXECUTE format('CREATE TRIGGER trace_truncated BEFORE TRUNCATE ON awa.lane_jobs_%s'
                       ' FOR EACH STATEMENT EXECUTE FUNCTION trace.of_truncation()', n);
    END LOOP;
END
$do$;

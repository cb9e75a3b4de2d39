-- count_jobs: how many jobs there are of a sort.
--
--   states     text[]  only these; null: all
--   kind       text    only this; null: all
--   queue      text    only this; null: all
--   tag        text    only with this; null: all
--   most       int     how many to count
--
-- Returns the number, `most` meaning at least so many.
--
-- Locks: none. Where few jobs match, it looks at all.
CREATE OR REPLACE FUNCTION awa.count_jobs(
    states text[], kind text, queue text, tag text, most int
) RETURNS int
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    rows int := awa.count_rows(states, kind, queue, tag, most);
BEGIN
    IF rows < most THEN
        rows := rows + (
            SELECT count(*) FROM awa.list_in_lanes(states, kind, queue, tag, NULL, most - rows));
    END IF;
    RETURN rows;
END
$$;

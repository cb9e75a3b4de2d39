-- canonical_json: spell JSON as unique keys compare it.
--
--   value  json  anything
--
-- Returns keys sorted by code point, no whitespace, numbers as docs/reference/unique-keys.md
-- says: the same as Python's json.dumps(value, sort_keys=True, separators=(',', ':'),
-- ensure_ascii=False). Of a key that an object has twice the last counts. Raises
-- numeric_value_out_of_range for a number with a fraction or an exponent that no double is near.
--
-- Locks: none.
CREATE OR REPLACE FUNCTION awa.canonical_json(value json) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
AS $$
DECLARE
    spelled text;
    sign text;
    digits text;
    point int;
    power int;
    number double precision;
    shorter bigint;
    candidate bigint;
    up int;
BEGIN
    CASE json_typeof(value)
    WHEN 'object' THEN
        -- The collation of bytes is that of code points: the database is UTF-8.
        RETURN (SELECT '{' || coalesce(string_agg(to_json(e.key)::text || ':'
                              || awa.canonical_json(e.value), ',' ORDER BY e.key COLLATE "C"), '')
                       || '}'
                  FROM (SELECT DISTINCT ON (each.key COLLATE "C") each.key, each.value
                          FROM json_each(canonical_json.value) WITH ORDINALITY AS each
                         ORDER BY each.key COLLATE "C", each.ordinality DESC) AS e);
    WHEN 'array' THEN
        RETURN (SELECT '[' || coalesce(string_agg(awa.canonical_json(e.value), ','
                                                  ORDER BY e.ordinality), '') || ']'
                  FROM json_array_elements(canonical_json.value) WITH ORDINALITY AS e);
    WHEN 'string' THEN
        RETURN to_json(value #>> '{}')::text;
    WHEN 'boolean' THEN
        RETURN value #>> '{}';
    WHEN 'null' THEN
        RETURN 'null';
    ELSE
        spelled := value #>> '{}';
    END CASE;
    IF spelled !~ '[.eE]' THEN
        RETURN CASE WHEN spelled = '-0' THEN '0' ELSE spelled END;
    END IF;
    -- The shortest digits that read back as the same double, as a fraction 0.digits times ten to
    -- the power of point; then in Python's form.
    number := spelled::double precision;
    spelled := number::text;
    sign := CASE WHEN starts_with(spelled, '-') THEN '-' ELSE '' END;
    spelled := ltrim(spelled, '-');
    digits := split_part(spelled, 'e', 1);
    point := length(split_part(digits, '.', 1))
             + coalesce(nullif(split_part(spelled, 'e', 2), '')::int, 0);
    digits := replace(digits, '.', '');
    point := point - length(digits) + length(ltrim(digits, '0'));
    digits := trim('0' FROM digits);
    IF digits = '' THEN
        RETURN sign || '0.0';
    END IF;
    -- PostgreSQL leaves out spellings that are exactly between two doubles, although they read back
    -- as the one that is even. Python does not. It takes many digits to be so near, or few bits;
    -- near the largest double there is none, and reading one might overflow.
    IF length(digits) >= 15 AND abs(number) < 1.7976931348623e308
       OR length(digits) > 1 AND abs(number) < 1e-300 THEN
        shorter := left(digits, -1)::bigint;
        up := CASE WHEN right(digits, 1) < '5' THEN 0 ELSE 1 END;
        FOREACH candidate IN ARRAY ARRAY[shorter + up, shorter + 1 - up] LOOP
            IF (candidate || 'e' || point - length(digits) + 1)::double precision = abs(number) THEN
                point := point + length(candidate::text) - length(digits) + 1;
                digits := rtrim(candidate::text, '0');
                EXIT;
            END IF;
        END LOOP;
    END IF;
    power := point - 1;
    IF power < -4 OR power >= 16 THEN
        RETURN sign || left(digits, 1)
               || CASE WHEN length(digits) > 1 THEN '.' || substr(digits, 2) ELSE '' END
               || 'e' || CASE WHEN power < 0 THEN '-' ELSE '+' END
               || lpad(abs(power)::text, greatest(2, length(abs(power)::text)), '0');
    ELSIF point <= 0 THEN
        RETURN sign || '0.' || repeat('0', -point) || digits;
    ELSIF point >= length(digits) THEN
        RETURN sign || digits || repeat('0', point - length(digits)) || '.0';
    END IF;
    RETURN sign || left(digits, point) || '.' || substr(digits, point + 1);
END
$$;

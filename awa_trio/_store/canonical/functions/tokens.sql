-- tokens: what is in a bucket.
--
--   of_queue  text              the queue
--   of_key    text              the limit key; empty for the bucket of the queue itself
--   rate      double precision  tokens that come in in a second
--   burst     double precision  tokens that it holds
--   now       timestamptz       the moment; by the clock, not of the transaction
--
-- Returns how many, with fractions. A clock that was set back brings nothing in, and loses
-- nothing.
--
-- Locks: none. The caller's settings hold here, too.
CREATE OR REPLACE FUNCTION awa.tokens(
    of_queue text, of_key text, rate double precision, burst double precision, now timestamptz
) RETURNS double precision
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce(
        (SELECT least(burst, b.tokens + rate * greatest(0, extract(
                      epoch FROM now - b.at)::double precision))
           FROM awa.buckets AS b WHERE b.queue = of_queue AND b.limit_key = of_key),
        burst);
END
$$;

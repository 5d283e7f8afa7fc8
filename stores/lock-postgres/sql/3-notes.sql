-- The notes beside the locks: the runs of jobs, what is done, what holders wait for. And the sweep of all tables.

-- Says what is remembered of a job.
CREATE OR REPLACE FUNCTION lock_core.last_run_v1(k text)
RETURNS TABLE (every_ms bigint, about text, started_ms bigint, succeeded boolean, good_ms bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT j.every_ms, j.about, floor(extract(epoch FROM c.read - j.started) * 1000)::bigint, j.succeeded,
      floor(extract(epoch FROM c.read - j.good) * 1000)::bigint
    FROM lock_core.job j, (SELECT clock_timestamp() AS read) c WHERE j.key = k AND j.until > c.read
$$;

-- Writes that the work under a lock is done for a version, if this owner has the lock: nobody else has it before this commits. Returns
-- whether it had. Kept until somebody forgets it, if no time is given.
CREATE OR REPLACE FUNCTION lock_core.mark_done_v1(k text, o uuid, v text, keep bigint, durably text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  l record;
  moment timestamptz;
BEGIN
  PERFORM lock_core.must_read_committed();
  PERFORM set_config('synchronous_commit', durably, true);
  SELECT * INTO l FROM lock_core.lock WHERE key = k AND owner = o FOR NO KEY UPDATE;
  moment := clock_timestamp();
  IF l.key IS NULL OR l.until <= moment THEN
    RETURN false;
  END IF;
  INSERT INTO lock_core.done (key, version, about, at, until) VALUES (k, v, l.about, moment, moment + lock_core.span(keep))
    ON CONFLICT (key, version) DO UPDATE SET about = EXCLUDED.about, at = EXCLUDED.at, until = EXCLUDED.until;
  RETURN true;
END $$;

-- Says for which versions the work under these locks is done: for one version, or for all, the first ten thousand.
CREATE OR REPLACE FUNCTION lock_core.done_v1(keys text[], v text)
RETURNS TABLE (key text, version text, about text, ago_ms bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT d.key, d.version, d.about, floor(extract(epoch FROM clock_timestamp() - d.at) * 1000)::bigint
    FROM lock_core.done d
    WHERE d.key = ANY (keys) AND (v IS NULL OR d.version = v) AND (d.until IS NULL OR d.until > clock_timestamp())
    ORDER BY d.key, d.version LIMIT 10000
$$;

-- Forgets that it is done. Returns whether it was.
CREATE OR REPLACE FUNCTION lock_core.forget_done_v1(k text, v text, durably text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  was boolean;
BEGIN
  PERFORM lock_core.must_read_committed();
  PERFORM set_config('synchronous_commit', durably, true);
  DELETE FROM lock_core.done WHERE key = k AND version = v RETURNING until IS NULL OR until > clock_timestamp() INTO was;
  RETURN coalesce(was, false);
END $$;

-- Keeps what a holder waits for, for three seconds, or with a null owner no longer. A note that another transaction keeps locked is left
-- alone: it says nothing after its three seconds.
CREATE OR REPLACE FUNCTION lock_core.set_blocked_v1(k text, o uuid, t bigint, s bigint, other text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '1s', true);
  PERFORM 1 FROM lock_core.blocked WHERE key = k FOR UPDATE SKIP LOCKED;
  IF NOT FOUND AND EXISTS (SELECT FROM lock_core.blocked WHERE key = k) THEN
    RETURN;
  END IF;
  IF o IS NULL THEN
    DELETE FROM lock_core.blocked WHERE key = k;
  ELSE
    INSERT INTO lock_core.blocked (key, owner, token, stamp, waits_for, until)
      VALUES (k, o, t, s, other, clock_timestamp() + interval '3 seconds')
      ON CONFLICT (key) DO UPDATE SET owner = EXCLUDED.owner, token = EXCLUDED.token, stamp = EXCLUDED.stamp,
        waits_for = EXCLUDED.waits_for, until = EXCLUDED.until;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION lock_core.blocked_v1(k text) RETURNS TABLE (owner text, token bigint, stamp bigint, waits_for text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT b.owner::text, b.token, b.stamp, b.waits_for FROM lock_core.blocked b
    -- A note from before the clock was set back says nothing any more.
    WHERE b.key = k AND b.until BETWEEN clock_timestamp() AND clock_timestamp() + interval '3 seconds'
$$;

-- Removes what nobody has used for ten minutes, a thousand rows at a time, at most once a minute for all. The first call says up to
-- which token, in a commit of its own: no row may be gone whose token the floor does not know.
CREATE OR REPLACE FUNCTION lock_core.sweep_begin_v1() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  highest bigint;
BEGIN
  PERFORM lock_core.must_read_committed();
  -- A sweep of the future is one from before the clock was set back.
  PERFORM 1 FROM lock_core.meta WHERE swept NOT BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp()
    FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT max(token) INTO highest FROM lock_core.lock WHERE CASE until WHEN 'epoch' THEN since ELSE until END < clock_timestamp() - interval '10 minutes';
  UPDATE lock_core.meta SET swept = clock_timestamp(), floor = greatest(floor, coalesce(highest, 0));
  RETURN coalesce(highest, 0);
END $$;

-- Sweeps the locks behind the key `after`. Returns the last key of a thousand, from which the next call goes on, or null after the last row.
CREATE OR REPLACE FUNCTION lock_core.sweep_v2(highest bigint, after text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  k text;
  swept bigint := 0;
BEGIN
  PERFORM lock_core.must_read_committed();
  IF highest > (SELECT floor FROM lock_core.meta) THEN
    RAISE EXCEPTION 'no row goes before the floor knows its token; call sweep_begin_v1 first' USING ERRCODE = 'LK003';
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  -- A row that is locked belongs to somebody, perhaps to a transaction that stands idle: the next sweep comes back to it.
  DELETE FROM lock_core.waiter WHERE seq IN (
    SELECT seq FROM lock_core.waiter WHERE confirmed NOT BETWEEN clock_timestamp() - interval '10 minutes' AND clock_timestamp() + interval '1 hour'
    FOR UPDATE SKIP LOCKED);
  DELETE FROM lock_core.job WHERE key IN (
    SELECT key FROM lock_core.job WHERE until < clock_timestamp() FOR UPDATE SKIP LOCKED);
  DELETE FROM lock_core.done WHERE (key, version) IN (
    SELECT key, version FROM lock_core.done WHERE until < clock_timestamp() FOR UPDATE SKIP LOCKED);
  DELETE FROM lock_core.blocked WHERE key IN (
    SELECT key FROM lock_core.blocked WHERE until < clock_timestamp() FOR UPDATE SKIP LOCKED);
  FOR k IN SELECT l.key FROM lock_core.lock l
      WHERE l.key > after AND CASE l.until WHEN 'epoch' THEN l.since ELSE l.until END < clock_timestamp() - interval '10 minutes' AND l.token <= highest
        AND NOT EXISTS (SELECT FROM lock_core.waiter w WHERE w.key = l.key)
      ORDER BY l.key LIMIT 1000 FOR UPDATE SKIP LOCKED LOOP
    swept := swept + 1;
    -- A name that a transaction has admitted, and not pinned, is locked in this table alone.
    PERFORM 1 FROM lock_core.fence WHERE resource = k AND by_pin FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      DELETE FROM lock_core.fence WHERE resource = k;
    END IF;
    DELETE FROM lock_core.lock WHERE key = k;
  END LOOP;
  RETURN CASE WHEN swept = 1000 THEN k END;
END $$;

-- For builds before version 4, which begin each thousand at the first key.
CREATE OR REPLACE FUNCTION lock_core.sweep_v1(highest bigint) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN lock_core.sweep_v2(highest, '') IS NULL THEN 0 ELSE 1000 END
$$;

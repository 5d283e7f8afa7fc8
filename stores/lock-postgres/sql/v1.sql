-- The locks of PostgreSQL, version 1: tables, and the functions that every client calls.
--
-- Functions are added, never changed: an older client goes on beside a newer one. Each takes its claims as arrays, sorted by key,
-- and is one transaction by itself. Nothing here waits for a user's transaction: a pin is a share of the row's key, which only a
-- takeover minds, and a takeover passes over a row that is pinned.
--
-- Whoever touches a lock or its queue holds the lock's row (FOR NO KEY UPDATE), so that nobody enters a queue behind the back of
-- a release.

CREATE SCHEMA lock_core;

-- Which functions there are, and what no token of a removed row exceeds.
CREATE TABLE lock_core.meta (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  version int NOT NULL,
  -- The oldest version whose clients still work.
  oldest int NOT NULL,
  floor bigint NOT NULL DEFAULT 0,
  swept timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO lock_core.meta (version, oldest) VALUES (1, 1);

-- A row stays when its lock is freed: its token is what the next one exceeds. `owner` is null while it is free, and while it is kept
-- after its release.
CREATE TABLE lock_core.lock (
  key text COLLATE "C" PRIMARY KEY,
  owner uuid,
  token bigint NOT NULL,
  until timestamptz NOT NULL,
  since timestamptz NOT NULL,
  -- What the holder asked for: what is left of it tells when it renewed.
  ttl_ms bigint,
  about text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE lock_core.waiter (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key text COLLATE "C" NOT NULL,
  owner uuid NOT NULL UNIQUE,
  inbox text NOT NULL,
  stamp bigint NOT NULL,
  grant_ms bigint NOT NULL,
  floor bigint NOT NULL,
  since timestamptz NOT NULL,
  confirmed timestamptz NOT NULL,
  -- 0: not tried yet, 1: passed over, because nobody was at its inbox, 2: it asked again after that.
  reach smallint NOT NULL DEFAULT 0,
  about text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX waiter_key ON lock_core.waiter (key, seq);

-- The newest token that each resource has admitted. Rows of pins go with their locks, and `statement` says when the last pin began.
CREATE TABLE lock_core.fence (
  resource text COLLATE "C" PRIMARY KEY,
  token bigint NOT NULL,
  by_pin boolean NOT NULL DEFAULT false,
  statement timestamptz
) WITH (fillfactor = 50);

-- What is remembered of the last run of a job.
CREATE TABLE lock_core.job (
  key text COLLATE "C" PRIMARY KEY,
  every_ms bigint NOT NULL,
  about text NOT NULL,
  started timestamptz NOT NULL,
  succeeded boolean NOT NULL,
  -- When the last run started that succeeded, or the first of those that did not.
  good timestamptz NOT NULL,
  until timestamptz NOT NULL
);

-- For which versions the work under a lock is done. Without an end it is done until somebody says otherwise.
CREATE TABLE lock_core.done (
  key text COLLATE "C" NOT NULL,
  version text COLLATE "C" NOT NULL,
  about text NOT NULL,
  at timestamptz NOT NULL,
  until timestamptz,
  PRIMARY KEY (key, version)
);

-- What the holder of a lock waits for.
CREATE TABLE lock_core.blocked (
  key text COLLATE "C" PRIMARY KEY,
  owner uuid NOT NULL,
  token bigint NOT NULL,
  stamp bigint NOT NULL,
  waits_for text NOT NULL,
  until timestamptz NOT NULL
);

-- A token is milliseconds · 2^20 of the server's clock, and above all that are known. STABLE, as extract() is: a function that claims
-- more than what it is made of is called, and takes 59 us, and is not put into the statement that uses it.
CREATE FUNCTION lock_core.draw(last bigint, known bigint, moment timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT greatest(
    last + 128,
    (known / 128 + 1) * 128,
    floor(extract(epoch FROM moment) * 1000)::bigint * 1048576
  )
$$;

-- A number that stands for the pins of a lock, of this schema: transactions that pin it share an advisory lock under it, by which they are seen.
CREATE FUNCTION lock_core.pin_number(k text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT hashtextextended('lock_core.' || k, 7302) $$;

-- A number that stands for the session that listens for an inbox: it holds an advisory lock under it.
CREATE FUNCTION lock_core.presence_v1(inbox text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT hashtextextended(inbox, 7301) $$;

CREATE FUNCTION lock_core.must_read_committed() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'a call of the lock store runs at the isolation level %; let it be a statement of its own, outside any transaction, on a connection whose default_transaction_isolation is read committed', current_setting('transaction_isolation')
      USING ERRCODE = 'LK003';
  END IF;
END $$;

-- Grants a free lock, whose row is locked FOR UPDATE, to the first in its queue that can be reached. Returns 'caller' if that is the
-- caller, who is granted in the reply instead, 'granted' if the lock has a new owner, or 'nobody'. It looks at 32, and the next move at
-- the rest.
CREATE FUNCTION lock_core.move_on(k text, caller uuid, moment timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  w record;
  present boolean;
  fresh bigint;
BEGIN
  FOR w IN SELECT * FROM lock_core.waiter WHERE key = k ORDER BY seq LIMIT 32 LOOP
    IF w.owner = caller THEN
      RETURN 'caller';
    END IF;
    -- It missed three confirmations: its process is gone. Or it knows of a token that can never be exceeded, and hears of that
    -- when it asks again.
    IF moment - w.confirmed > w.grant_ms * interval '1 ms' OR w.floor / 1048576 > extract(epoch FROM moment) * 1000 + 3600000 THEN
      DELETE FROM lock_core.waiter WHERE seq = w.seq;
      CONTINUE;
    END IF;
    -- Whoever listens holds this lock. If it can be had, nobody does.
    present := NOT pg_try_advisory_xact_lock_shared(lock_core.presence_v1(w.inbox));
    IF NOT present AND w.reach <> 2 THEN
      UPDATE lock_core.waiter SET reach = 1 WHERE seq = w.seq AND reach <> 1;
      CONTINUE;
    END IF;
    DELETE FROM lock_core.waiter WHERE seq = w.seq;
    UPDATE lock_core.lock l SET owner = w.owner, token = lock_core.draw(l.token, w.floor, moment),
        until = moment + w.grant_ms * interval '1 ms', since = moment, ttl_ms = w.grant_ms, about = w.about
      WHERE l.key = k RETURNING l.token INTO fresh;
    IF present THEN
      PERFORM pg_notify('lock_core_' || w.inbox, concat_ws('|', 'granted', w.owner::text, fresh, w.stamp, w.grant_ms, k));
    END IF;
    RETURN 'granted';
  END LOOP;
  RETURN 'nobody';
END $$;

-- Takes locks, each for itself. An inbox that is null does not queue. `outcome` is granted, held, queued, late (the deadline has passed
-- on the server's clock) or floor (no token exceeds the one that is known).
CREATE FUNCTION lock_core.acquire_v1(
  keys text[], owners uuid[], ttls bigint[], floors bigint[], abouts text[], deadlines bigint[],
  inboxes text[], stamps bigint[], grants bigint[], durably text
) RETURNS TABLE (outcome text, token bigint, owner text, since_us bigint, left_ms bigint, about text, pinned boolean, now_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  l record;
  i int;
  o uuid;
  moment timestamptz;
  known bigint;
  walked text;
BEGIN
  PERFORM lock_core.must_read_committed();
  PERFORM set_config('synchronous_commit', durably, true);
  FOR i IN 1 .. cardinality(keys) LOOP
    o := owners[i];
    known := floors[i];
    pinned := false;
    walked := NULL;
    outcome := NULL;
    LOOP
      SELECT * INTO l FROM lock_core.lock WHERE key = keys[i] FOR NO KEY UPDATE;
      -- Read when nothing is waited for any more.
      moment := clock_timestamp();
      now_us := floor(extract(epoch FROM moment) * 1000000);
      IF deadlines[i] < now_us THEN
        outcome := 'late';
        EXIT;
      END IF;
      IF known / 1048576 > now_us / 1000 + 3600000 THEN
        outcome := 'floor';
        EXIT;
      END IF;
      EXIT WHEN l.key IS NOT NULL;
      INSERT INTO lock_core.lock (key, owner, token, until, since, ttl_ms, about)
        SELECT keys[i], o, lock_core.draw(m.floor, known, moment), moment + ttls[i] * interval '1 ms', moment, ttls[i], abouts[i]
        FROM lock_core.meta m
        ON CONFLICT (key) DO NOTHING RETURNING lock.token INTO token;
      IF FOUND THEN
        outcome := 'granted';
        EXIT;
      END IF;
    END LOOP;
    IF outcome IS NULL AND l.owner = o AND l.until > moment THEN
      UPDATE lock_core.lock SET token = lock_core.draw(l.token, known, moment),
          until = greatest(l.until, moment + ttls[i] * interval '1 ms'), ttl_ms = ttls[i]
        WHERE key = keys[i] RETURNING lock.token INTO token;
      DELETE FROM lock_core.waiter w WHERE w.owner = o;
      outcome := 'granted';
    ELSIF outcome IS NULL AND l.until <= moment THEN
      -- FOR UPDATE before the update: a transaction that began before and pins later must see that the lock changed hands.
      PERFORM 1 FROM lock_core.lock WHERE key = keys[i] FOR UPDATE SKIP LOCKED;
      pinned := NOT FOUND;
      IF NOT pinned THEN
        walked := lock_core.move_on(keys[i], o, moment);
        IF walked IN ('caller', 'nobody') THEN
          UPDATE lock_core.lock SET owner = o, token = lock_core.draw(l.token, known, moment),
              until = moment + ttls[i] * interval '1 ms', since = moment, ttl_ms = ttls[i], about = abouts[i]
            WHERE key = keys[i] RETURNING lock.token INTO token;
          DELETE FROM lock_core.waiter w WHERE w.owner = o;
          outcome := 'granted';
        ELSE
          SELECT * INTO l FROM lock_core.lock WHERE key = keys[i];
        END IF;
      END IF;
    END IF;
    IF outcome IS NULL AND inboxes[i] IS NOT NULL THEN
      INSERT INTO lock_core.waiter AS w (key, owner, inbox, stamp, grant_ms, floor, since, confirmed, about)
        VALUES (keys[i], o, inboxes[i], stamps[i], grants[i], known, moment, moment, abouts[i])
        ON CONFLICT (owner) DO UPDATE SET inbox = EXCLUDED.inbox, stamp = EXCLUDED.stamp, grant_ms = EXCLUDED.grant_ms,
          floor = EXCLUDED.floor, confirmed = EXCLUDED.confirmed, about = EXCLUDED.about,
          reach = CASE w.reach WHEN 1 THEN 2 ELSE w.reach END;
      outcome := 'queued';
    END IF;
    IF outcome = 'granted' THEN
      owner := NULL; since_us := NULL; left_ms := NULL; about := NULL; pinned := false;
    ELSE
      token := l.token;
      owner := l.owner::text;
      since_us := floor(extract(epoch FROM l.since) * 1000000);
      left_ms := greatest(0, ceil(extract(epoch FROM l.until - moment) * 1000));
      about := l.about;
      outcome := coalesce(outcome, 'held');
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- Takes several locks, or none: the keys differ. `outcome` is granted for all; or held for those that are taken, and spared for the others;
-- or late or floor, as above, for one of them.
CREATE FUNCTION lock_core.acquire_all_v1(
  keys text[], owners uuid[], ttls bigint[], known bigint, about text, deadline bigint, durably text
) RETURNS TABLE (outcome text, token bigint, owner text, since_us bigint, left_ms bigint, holder text, pinned boolean, now_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  l record;
  i int;
  moment timestamptz;
  taken boolean[] := '{}';
  passed_over boolean[] := '{}';
BEGIN
  PERFORM lock_core.must_read_committed();
  PERFORM set_config('synchronous_commit', durably, true);
  FOR i IN 1 .. cardinality(keys) LOOP
    INSERT INTO lock_core.lock (key, token, until, since, about)
      SELECT keys[i], m.floor, clock_timestamp(), clock_timestamp(), '' FROM lock_core.meta m
      WHERE NOT EXISTS (SELECT FROM lock_core.lock WHERE key = keys[i]) ON CONFLICT (key) DO NOTHING;
    SELECT * INTO l FROM lock_core.lock WHERE key = keys[i] FOR NO KEY UPDATE;
    moment := clock_timestamp();
    passed_over[i] := false;
    taken[i] := l.until > moment AND l.owner IS DISTINCT FROM owners[i];
    IF l.until <= moment THEN
      PERFORM 1 FROM lock_core.lock WHERE key = keys[i] FOR UPDATE SKIP LOCKED;
      passed_over[i] := NOT FOUND;
      taken[i] := passed_over[i] OR lock_core.move_on(keys[i], owners[i], moment) = 'granted';
    END IF;
  END LOOP;
  FOR i IN 1 .. cardinality(keys) LOOP
    now_us := floor(extract(epoch FROM moment) * 1000000);
    pinned := passed_over[i];
    IF deadline < now_us OR known / 1048576 > now_us / 1000 + 3600000 THEN
      outcome := CASE WHEN deadline < now_us THEN 'late' ELSE 'floor' END;
    ELSIF true = ANY (taken) THEN
      outcome := CASE WHEN taken[i] THEN 'held' ELSE 'spared' END;
    ELSE
      outcome := 'granted';
      DELETE FROM lock_core.waiter w WHERE w.owner = owners[i];
      UPDATE lock_core.lock k SET
          since = CASE WHEN k.owner = owners[i] AND k.until > moment THEN k.since ELSE moment END,
          until = greatest(CASE WHEN k.owner = owners[i] THEN k.until END, moment + ttls[i] * interval '1 ms'),
          owner = owners[i], token = lock_core.draw(k.token, known, moment), ttl_ms = ttls[i], about = acquire_all_v1.about
        WHERE key = keys[i];
    END IF;
    SELECT k.token, k.owner::text, floor(extract(epoch FROM k.since) * 1000000)::bigint,
        greatest(0, ceil(extract(epoch FROM k.until - moment) * 1000))::bigint, k.about
      INTO token, owner, since_us, left_ms, holder FROM lock_core.lock k WHERE key = keys[i];
    RETURN NEXT;
  END LOOP;
END $$;

-- Raises leases, and never shortens one.
CREATE FUNCTION lock_core.renew_v1(keys text[], owners uuid[], ttls bigint[], durably text) RETURNS TABLE (renewed boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  i int;
  moment timestamptz;
BEGIN
  PERFORM lock_core.must_read_committed();
  PERFORM set_config('synchronous_commit', durably, true);
  FOR i IN 1 .. cardinality(keys) LOOP
    UPDATE lock_core.lock l SET until = greatest(l.until, clock_timestamp() + ttls[i] * interval '1 ms')
      WHERE l.key = keys[i] AND l.owner = owners[i] AND l.until > clock_timestamp();
    renewed := FOUND;
    RETURN NEXT;
  END LOOP;
END $$;

-- Ends claims: leaves their queues, frees what they hold or keeps it for a while, notes the runs that end with them, and grants what is
-- free to the next. `every` is null where no run ends. A release that grants commits durably; one that only frees would, if it were
-- lost, cost time and nothing else.
CREATE FUNCTION lock_core.release_v1(
  keys text[], owners uuid[], keeps bigint[], every bigint[], remembered bigint[], succeeded boolean[], durably text
) RETURNS TABLE (freed boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  l record;
  i int;
  moment timestamptz;
  grants boolean := false;
BEGIN
  PERFORM lock_core.must_read_committed();
  FOR i IN 1 .. cardinality(keys) LOOP
    freed := false;
    SELECT * INTO l FROM lock_core.lock WHERE key = keys[i] FOR NO KEY UPDATE;
    IF l.key IS NULL THEN
      -- The claim may be on its way in another session, which has not committed: this waits for it.
      INSERT INTO lock_core.lock (key, token, until, since, about)
        SELECT keys[i], m.floor, clock_timestamp(), clock_timestamp(), '' FROM lock_core.meta m ON CONFLICT (key) DO NOTHING;
      SELECT * INTO l FROM lock_core.lock WHERE key = keys[i] FOR NO KEY UPDATE;
    END IF;
    moment := clock_timestamp();
    DELETE FROM lock_core.waiter w WHERE w.owner = owners[i];
    IF l.owner = owners[i] AND l.until > moment THEN
      freed := true;
      IF every[i] IS NOT NULL THEN
        INSERT INTO lock_core.job AS j (key, every_ms, about, started, succeeded, good, until)
          VALUES (keys[i], every[i], l.about, l.since, succeeded[i], l.since, moment + remembered[i] * interval '1 ms')
          ON CONFLICT (key) DO UPDATE SET every_ms = EXCLUDED.every_ms, about = EXCLUDED.about, started = EXCLUDED.started,
            succeeded = EXCLUDED.succeeded, until = EXCLUDED.until,
            good = CASE WHEN EXCLUDED.succeeded OR j.until <= moment THEN EXCLUDED.good ELSE j.good END;
        grants := true;
      END IF;
      l.until := moment + keeps[i] * interval '1 ms';
      UPDATE lock_core.lock SET owner = NULL, until = l.until WHERE key = keys[i];
    END IF;
    IF l.until <= moment AND EXISTS (SELECT FROM lock_core.waiter w WHERE w.key = keys[i]) THEN
      PERFORM 1 FROM lock_core.lock WHERE key = keys[i] FOR UPDATE SKIP LOCKED;
      IF FOUND THEN
        grants := lock_core.move_on(keys[i], NULL, moment) = 'granted' OR grants;
      END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
  PERFORM set_config('synchronous_commit', CASE WHEN grants THEN durably ELSE 'off' END, true);
END $$;

-- Says who holds a lock, or for how long it is kept.
CREATE FUNCTION lock_core.holder_v1(k text)
RETURNS TABLE (token bigint, owner text, since_us bigint, left_ms bigint, about text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT l.token, l.owner::text, floor(extract(epoch FROM l.since) * 1000000)::bigint,
      ceil(extract(epoch FROM l.until - clock_timestamp()) * 1000)::bigint, l.about
    FROM lock_core.lock l WHERE l.key = k AND l.until > clock_timestamp()
$$;

-- Says what is remembered of a job.
CREATE FUNCTION lock_core.last_run_v1(k text)
RETURNS TABLE (every_ms bigint, about text, started_ms bigint, succeeded boolean, good_ms bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT j.every_ms, j.about, floor(extract(epoch FROM clock_timestamp() - j.started) * 1000)::bigint, j.succeeded,
      floor(extract(epoch FROM clock_timestamp() - j.good) * 1000)::bigint
    FROM lock_core.job j WHERE j.key = k AND j.until > clock_timestamp()
$$;

-- Writes that the work under a lock is done for a version, if this owner has the lock: nobody else has it before this commits. Returns
-- whether it had. Kept until somebody forgets it, if no time is given.
CREATE FUNCTION lock_core.mark_done_v1(k text, o uuid, v text, keep bigint, durably text) RETURNS boolean
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
  INSERT INTO lock_core.done (key, version, about, at, until) VALUES (k, v, l.about, moment, moment + keep * interval '1 ms')
    ON CONFLICT (key, version) DO UPDATE SET about = EXCLUDED.about, at = EXCLUDED.at, until = EXCLUDED.until;
  RETURN true;
END $$;

-- Says for which versions the work under these locks is done: for one version, or for all, the first ten thousand.
CREATE FUNCTION lock_core.done_v1(keys text[], v text)
RETURNS TABLE (key text, version text, about text, ago_ms bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT d.key, d.version, d.about, floor(extract(epoch FROM clock_timestamp() - d.at) * 1000)::bigint
    FROM lock_core.done d
    WHERE d.key = ANY (keys) AND (v IS NULL OR d.version = v) AND (d.until IS NULL OR d.until > clock_timestamp())
    ORDER BY d.key, d.version LIMIT 10000
$$;

-- Forgets that it is done. Returns whether it was.
CREATE FUNCTION lock_core.forget_done_v1(k text, v text, durably text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  was boolean;
BEGIN
  PERFORM lock_core.must_read_committed();
  PERFORM set_config('synchronous_commit', durably, true);
  DELETE FROM lock_core.done WHERE key = k AND version = v RETURNING until IS NULL OR until > clock_timestamp() INTO was;
  RETURN coalesce(was, false);
END $$;

-- Keeps what a holder waits for, for three seconds, or with a null owner no longer.
CREATE FUNCTION lock_core.set_blocked_v1(k text, o uuid, t bigint, s bigint, other text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  IF o IS NULL THEN
    DELETE FROM lock_core.blocked WHERE key = k;
  ELSE
    INSERT INTO lock_core.blocked (key, owner, token, stamp, waits_for, until)
      VALUES (k, o, t, s, other, clock_timestamp() + interval '3 seconds')
      ON CONFLICT (key) DO UPDATE SET owner = EXCLUDED.owner, token = EXCLUDED.token, stamp = EXCLUDED.stamp,
        waits_for = EXCLUDED.waits_for, until = EXCLUDED.until;
  END IF;
END $$;

CREATE FUNCTION lock_core.blocked_v1(k text) RETURNS TABLE (owner text, token bigint, stamp bigint, waits_for text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT b.owner::text, b.token, b.stamp, b.waits_for FROM lock_core.blocked b WHERE b.key = k AND b.until > clock_timestamp()
$$;

-- Removes what nobody has used for ten minutes, a thousand rows at a time, at most once a minute for all. The first call says up to
-- which token, in a commit of its own: no row may be gone whose token the floor does not know.
CREATE FUNCTION lock_core.sweep_begin_v1() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  highest bigint;
BEGIN
  PERFORM lock_core.must_read_committed();
  PERFORM 1 FROM lock_core.meta WHERE swept < clock_timestamp() - interval '1 minute' FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT max(token) INTO highest FROM lock_core.lock WHERE until < clock_timestamp() - interval '10 minutes';
  UPDATE lock_core.meta SET swept = clock_timestamp(), floor = greatest(floor, coalesce(highest, 0));
  RETURN coalesce(highest, 0);
END $$;

CREATE FUNCTION lock_core.sweep_v1(highest bigint) RETURNS bigint
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
  DELETE FROM lock_core.waiter WHERE confirmed < clock_timestamp() - interval '10 minutes';
  DELETE FROM lock_core.job WHERE until < clock_timestamp();
  DELETE FROM lock_core.done WHERE until < clock_timestamp();
  DELETE FROM lock_core.blocked WHERE until < clock_timestamp();
  FOR k IN SELECT l.key FROM lock_core.lock l
      WHERE l.until < clock_timestamp() - interval '10 minutes' AND l.token <= highest
        AND NOT EXISTS (SELECT FROM lock_core.waiter w WHERE w.key = l.key)
      ORDER BY l.key LIMIT 1000 FOR UPDATE SKIP LOCKED LOOP
    DELETE FROM lock_core.fence WHERE resource = k AND by_pin;
    DELETE FROM lock_core.lock WHERE key = k;
    swept := swept + 1;
  END LOOP;
  RETURN swept;
END $$;

-- Says of locks who has them, and of jobs under their keys what is remembered. A lock is `held` also after its lease, for as long as a
-- transaction keeps it: `pids` are the sessions of those that do, `pinned_ms` the age of the eldest.
CREATE FUNCTION lock_core.entries_v1(keys text[])
RETURNS TABLE (
  key text, held boolean, owner text, token bigint, since_us bigint, left_ms bigint, about text, ttl_ms bigint, now_us bigint,
  waiters bigint, pids int[], pinned_ms bigint,
  every_ms bigint, job_about text, started_ms bigint, succeeded boolean, good_ms bigint
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS moment),
  pin AS MATERIALIZED (
    -- One session may have the same pin more than once.
    SELECT (p.classid::bigint << 32) | p.objid::bigint AS number, array_agg(DISTINCT p.pid) AS pids,
        floor(extract(epoch FROM clock_timestamp() - min(a.xact_start)) * 1000)::bigint AS age_ms
      FROM pg_locks p LEFT JOIN pg_stat_activity a ON a.pid = p.pid
      WHERE p.locktype = 'advisory' AND p.objsubid = 1 AND p.mode = 'ShareLock' AND p.granted
        AND p.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      GROUP BY 1
  )
  SELECT k.key, coalesce(l.until > c.moment OR p.pids IS NOT NULL, false), l.owner::text, l.token,
      floor(extract(epoch FROM l.since) * 1000000)::bigint,
      greatest(0, ceil(extract(epoch FROM l.until - c.moment) * 1000))::bigint, l.about, l.ttl_ms,
      floor(extract(epoch FROM c.moment) * 1000000)::bigint,
      (SELECT count(*) FROM lock_core.waiter w WHERE w.key = k.key COLLATE "C"), p.pids, p.age_ms,
      j.every_ms, j.about, floor(extract(epoch FROM c.moment - j.started) * 1000)::bigint, j.succeeded,
      floor(extract(epoch FROM c.moment - j.good) * 1000)::bigint
    FROM unnest(keys) k(key) CROSS JOIN clock c
    LEFT JOIN lock_core.lock l ON l.key = k.key COLLATE "C"
    LEFT JOIN pin p ON p.number = lock_core.pin_number(k.key)
    LEFT JOIN lock_core.job j ON j.key = k.key COLLATE "C" AND j.until > c.moment
    ORDER BY k.key COLLATE "C"
$$;

-- Looks at the next keys of locks, jobs and what is done, in their order: of those that begin with `prefix`, the first `amount` after `last`.
CREATE FUNCTION lock_core.scan_v1(prefix text, last text, amount int) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT key FROM (
    (SELECT l.key FROM lock_core.lock l WHERE l.key >= prefix COLLATE "C" AND l.key > coalesce(last, '') COLLATE "C"
      ORDER BY l.key LIMIT amount)
    UNION
    (SELECT j.key FROM lock_core.job j WHERE j.key >= prefix COLLATE "C" AND j.key > coalesce(last, '') COLLATE "C"
      ORDER BY j.key LIMIT amount)
    UNION
    (SELECT DISTINCT d.key FROM lock_core.done d WHERE d.key >= prefix COLLATE "C" AND d.key > coalesce(last, '') COLLATE "C"
      ORDER BY d.key LIMIT amount)
  ) found WHERE starts_with(key, prefix) ORDER BY key COLLATE "C" LIMIT amount
$$;

-- Lists who waits for a lock, the first thousand.
CREATE FUNCTION lock_core.waiters_v1(k text) RETURNS TABLE (owner text, about text, waited_us bigint, confirmed_us bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT w.owner::text, w.about, floor(extract(epoch FROM clock_timestamp() - w.since) * 1000000)::bigint,
      floor(extract(epoch FROM clock_timestamp() - w.confirmed) * 1000000)::bigint
    FROM lock_core.waiter w WHERE w.key = k ORDER BY w.seq LIMIT 1000
$$;

-- Takes a lock away from this owner, and from no other, and tells its process who does so and why. A transaction that has pinned the
-- lock goes on, and keeps it until its end.
CREATE FUNCTION lock_core.revoke_v1(k text, o uuid, actor text, reason text, durably text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  done boolean;
BEGIN
  SELECT freed INTO done FROM lock_core.release_v1(ARRAY[k], ARRAY[o], '{0}', '{NULL}', '{NULL}', '{NULL}', durably);
  IF done THEN
    -- A message has less than 8000 bytes.
    PERFORM pg_notify('lock_core_' || 'revoked', concat_ws('|', 'revoked', o::text, replace(left(actor, 200), '|', '/'), left(reason, 1000)));
  END IF;
  RETURN done;
END $$;

-- Lets a write through if no newer token was seen of this resource, and remembers its token until the transaction ends and after.
-- For locks of any store.
CREATE FUNCTION lock_core.admit(resource text, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO lock_core.fence AS f (resource, token) VALUES ($1, $2)
    ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token, by_pin = false, statement = NULL WHERE f.token <= EXCLUDED.token;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the token % is stale: % was written under a newer one; roll back, the lock is lost', $2, quote_literal($1)
      USING ERRCODE = 'LK002';
  END IF;
END $$;

-- Keeps a lock for the transaction that calls this: until it commits or rolls back nobody else is granted the lock, even if its lease
-- ends, its process dies or its guard is released meanwhile. Renewals go on.
CREATE FUNCTION lock_core.keep(k text, t bigint, began timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- A grant owns 128 numbers: its process passes the lock on under the next.
  PERFORM 1 FROM lock_core.lock l WHERE l.key = k AND l.token = t / 128 * 128 FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the lock % is not held under the token %: it was lost, and may belong to somebody else; roll back', quote_literal(k), t
      USING ERRCODE = 'LK001';
  END IF;
  -- To be seen by, and no more: nobody waits for it, nor is it waited for.
  PERFORM pg_try_advisory_xact_lock_shared(lock_core.pin_number(k));
  -- Whoever had the lock before, in the same process, may be in a transaction still: this waits for its end.
  INSERT INTO lock_core.fence AS f (resource, token, by_pin, statement) VALUES (k, t, true, began)
    ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token, statement = EXCLUDED.statement WHERE f.token <= EXCLUDED.token;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the token % is stale: % was written under a newer one; roll back, the lock is lost', t, quote_literal(k)
      USING ERRCODE = 'LK002';
  END IF;
END $$;

-- For programs: refuses, at the end, to be the whole transaction, which would protect nothing.
CREATE FUNCTION lock_core.pin(key text, token bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT lock_core.keep(key, token, statement_timestamp())
$$;

-- For functions and DO blocks that are the whole transaction.
CREATE FUNCTION lock_core.pin_in_statement(key text, token bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT lock_core.keep(key, token, NULL)
$$;

-- A message that commits comes later than the one that pins, unless they are one and the same.
CREATE FUNCTION lock_core.check_pin() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NEW.statement = statement_timestamp() THEN
    RAISE EXCEPTION 'pin() was called outside of a transaction, where it keeps nothing; BEGIN before it, in a message of its own, and COMMIT after the writes'
      USING ERRCODE = 'LK004', HINT = 'Inside a function or a DO block that is the whole transaction, call pin_in_statement().';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER check_pin AFTER INSERT OR UPDATE ON lock_core.fence
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.statement IS NOT NULL) EXECUTE FUNCTION lock_core.check_pin();

CREATE FUNCTION lock_core.version_v1() RETURNS TABLE (version int, oldest int)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT version, oldest FROM lock_core.meta $$;

-- Users of the store need USAGE of the schema and EXECUTE, and nothing else.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lock_core FROM PUBLIC;

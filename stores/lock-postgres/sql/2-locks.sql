-- The functions that every client calls to take, keep and free locks.
--
-- Each function takes its claims as arrays, sorted by key, and is one transaction by itself. A step that touches a lock or its queue holds
-- the row of the lock (FOR NO KEY UPDATE), so no claim enters a queue while a release reads it. No function waits for a user's
-- transaction: a pin is a share of the row's key, which only a takeover minds, and a takeover passes over a row that is pinned.

-- The next four have a body that is parsed once, when they are made. So their names mean the same under every search_path, and PostgreSQL
-- can still put them into the statement that uses them: a function with SET is called instead, which takes 59 us. For the same reason
-- a function must not claim more than its parts do: draw() is STABLE, as extract() is, and so is ends(), as a time minus an interval is.

-- A time of so many milliseconds: at most a century, which fits every calendar, and never a negative one.
CREATE OR REPLACE FUNCTION lock_core.span(ms bigint) RETURNS interval
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN ms > 3162240000000 THEN 3162240000000 WHEN ms < 0 THEN 0 ELSE ms END * interval '1 ms';

-- When a lease ends, or the time for which a lock is kept. It lasts no longer than it was given, also if the clock was set back since.
CREATE OR REPLACE FUNCTION lock_core.ends(until timestamptz, ttl_ms bigint, moment timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE
RETURN CASE WHEN ttl_ms < 0 AND until > moment - ttl_ms * interval '1 ms' THEN moment - ttl_ms * interval '1 ms' ELSE until END;

-- A token is milliseconds * 2^20 of the server's clock, and above all that are known.
CREATE OR REPLACE FUNCTION lock_core.draw(last bigint, known bigint, moment timestamptz) RETURNS bigint
LANGUAGE sql STABLE
RETURN greatest(last + 128, (known / 128 + 1) * 128, floor(extract(epoch FROM moment) * 1000)::bigint * 1048576);

-- A number that stands for the session that listens for an inbox: it holds an advisory lock under it.
CREATE OR REPLACE FUNCTION lock_core.presence_v1(inbox text) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN hashtextextended(inbox, 7301);

-- Begins a call. The settings last until the commit, so a pooler's connection does not keep them. A call waits at most a second for a
-- locked row. Without that limit, its session would wait for as long as the other transaction is idle. The client must receive the
-- notice that a wait for a standby was cancelled, because the commit is then unknown.
CREATE OR REPLACE FUNCTION lock_core.must_read_committed() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'a call of the lock store runs at the isolation level %; let it be a statement of its own, outside any transaction, on a connection whose default_transaction_isolation is read committed', current_setting('transaction_isolation')
      USING ERRCODE = 'LK003';
  END IF;
  PERFORM set_config('lock_timeout', '1s', true), set_config('client_min_messages', 'warning', true);
END $$;

-- Grants a free lock, whose row is locked FOR UPDATE, to the first in its queue that can be reached. Returns 'caller' if that is the
-- caller, who is granted in the reply instead, 'granted' if the lock has a new owner, or 'nobody'. After 'granted' come a channel and the
-- message to send over it, if the new owner listens. It looks at 32, and the next move at the rest.
--
-- Rows may be of older or foreign clients: no number in one, and no name, may fail the step of another client.
CREATE OR REPLACE FUNCTION lock_core.walk(k text, caller uuid, moment timestamptz) RETURNS text[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  w record;
  lease bigint;
  present boolean;
  fresh bigint;
BEGIN
  FOR w IN SELECT * FROM lock_core.waiter WHERE key = k ORDER BY seq LIMIT 32 LOOP
    IF w.owner = caller THEN
      RETURN '{caller}';
    END IF;
    -- A transaction of a user may keep the row of a waiter locked. The waiters behind it go on, and it keeps its place.
    PERFORM 1 FROM lock_core.waiter WHERE seq = w.seq FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    lease := least(greatest(w.grant_ms, 1), 3600000);
    -- It missed three confirmations: its process is gone. Or it knows of a token that can never be exceeded, and hears of that
    -- when it asks again. Or no channel has the name of its inbox.
    IF moment - w.confirmed NOT BETWEEN interval '-1 hour' AND lease * interval '1 ms' OR w.floor / 1048576 > extract(epoch FROM moment) * 1000 + 3600000
        OR octet_length('lock_core_' || w.inbox) > 63 THEN
      DELETE FROM lock_core.waiter WHERE seq = w.seq;
      CONTINUE;
    END IF;
    -- A process that listens holds this lock. If it can be had, no process does. While the queue of messages is full, a message would fail
    -- the commit: then every waiter has to ask.
    present := NOT pg_try_advisory_xact_lock_shared(lock_core.presence_v1(w.inbox)) AND pg_notification_queue_usage() < 0.9;
    IF NOT present AND w.reach <> 2 THEN
      UPDATE lock_core.waiter SET reach = 1 WHERE seq = w.seq AND reach <> 1;
      CONTINUE;
    END IF;
    DELETE FROM lock_core.waiter WHERE seq = w.seq;
    UPDATE lock_core.lock l SET owner = w.owner,
        token = lock_core.draw(greatest(l.token, (SELECT m.floor FROM lock_core.meta m)), w.floor, moment),
        until = moment + lock_core.span(lease), since = moment, ttl_ms = -lease, about = w.about
      WHERE l.key = k RETURNING l.token INTO fresh;
    IF present THEN
      RETURN ARRAY['granted', 'lock_core_' || w.inbox, concat_ws('|', 'granted', w.owner::text, fresh, w.stamp, lease, k)];
    END IF;
    RETURN '{granted}';
  END LOOP;
  RETURN '{nobody}';
END $$;

-- The same, and sends the message.
CREATE OR REPLACE FUNCTION lock_core.move_on(k text, caller uuid, moment timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  walked text[] := lock_core.walk(k, caller, moment);
BEGIN
  PERFORM pg_notify(walked[2], walked[3]) WHERE walked[2] IS NOT NULL;
  RETURN walked[1];
END $$;

-- Takes locks, each for itself. An inbox that is null does not queue. `outcome` is granted, held, queued, late (the deadline has passed
-- on the server's clock) or floor (no token exceeds the one that is known). If a lease was over and a waiter was granted its lock, the
-- caller sends the message, as after release_v2.
CREATE OR REPLACE FUNCTION lock_core.acquire_v2(
  keys text[], owners uuid[], ttls bigint[], floors bigint[], abouts text[], deadlines bigint[],
  inboxes text[], stamps bigint[], grants bigint[], durably text
) RETURNS TABLE (
  outcome text, token bigint, owner text, since_us bigint, left_ms bigint, about text, pinned boolean, now_us bigint, channel text, message text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  l record;
  i int;
  o uuid;
  moment timestamptz;
  known bigint;
  ttl bigint;
  free boolean;
  walked text[];
BEGIN
  PERFORM lock_core.must_read_committed();
  PERFORM set_config('synchronous_commit', durably, true);
  FOR i IN 1 .. cardinality(keys) LOOP
    o := owners[i];
    known := floors[i];
    ttl := least(greatest(ttls[i], 0), 3162240000000);
    pinned := false;
    walked := NULL;
    outcome := NULL;
    channel := NULL;
    message := NULL;
    IF octet_length('lock_core_' || inboxes[i]) > 63 THEN
      RAISE EXCEPTION 'the inbox % is too long for the name of a channel, which has at most 63 bytes', quote_literal(left(inboxes[i], 80))
        USING ERRCODE = '22023';
    END IF;
    -- Most locks are free and have no waiter. The row of such a lock is locked once, in the way that the takeover below explains, and
    -- written once. The queue is read by a statement of its own: no claim enters it any more, because the row is locked.
    SELECT * INTO l FROM lock_core.lock WHERE key = keys[i] AND until <= clock_timestamp() FOR UPDATE SKIP LOCKED;
    free := FOUND;
    moment := clock_timestamp();
    now_us := floor(extract(epoch FROM moment) * 1000000);
    IF free AND deadlines[i] >= now_us AND known / 1048576 <= now_us / 1000 + 3600000 THEN
      UPDATE lock_core.lock SET owner = o,
          token = lock_core.draw(greatest(l.token, (SELECT m.floor FROM lock_core.meta m)), known, moment),
          until = moment + lock_core.span(ttl), since = moment, ttl_ms = -ttl, about = abouts[i]
        WHERE key = keys[i] AND NOT EXISTS (SELECT FROM lock_core.waiter w WHERE w.key = keys[i]) RETURNING lock.token INTO token;
      outcome := CASE WHEN FOUND THEN 'granted' END;
    ELSIF NOT free AND inboxes[i] IS NULL AND deadlines[i] >= now_us AND known / 1048576 <= now_us / 1000 + 3600000 THEN
      -- A look refuses what is held: it locks and writes nothing. A row of before the clock was set back is mended below.
      SELECT * INTO l FROM lock_core.lock
        WHERE key = keys[i] AND until > moment AND until <= lock_core.ends(until, ttl_ms, moment) AND owner IS DISTINCT FROM o;
      outcome := CASE WHEN FOUND THEN 'held' END;
    END IF;
    LOOP
      EXIT WHEN outcome IS NOT NULL;
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
        SELECT keys[i], o, lock_core.draw(m.floor, known, moment), moment + lock_core.span(ttl), moment, -ttl, abouts[i]
        FROM lock_core.meta m
        ON CONFLICT (key) DO NOTHING RETURNING lock.token INTO token;
      IF FOUND THEN
        outcome := 'granted';
        EXIT;
      END IF;
    END LOOP;
    -- The clock was set back since this was written. Without an outcome the row is locked here, so no fresh lease is shortened.
    IF outcome IS NULL AND l.until > lock_core.ends(l.until, l.ttl_ms, moment) THEN
      UPDATE lock_core.lock SET until = lock_core.ends(until, ttl_ms, moment) WHERE key = keys[i] RETURNING until INTO l.until;
    END IF;
    IF outcome IS NULL AND l.owner = o AND l.until > moment THEN
      UPDATE lock_core.lock SET token = lock_core.draw(greatest(l.token, (SELECT m.floor FROM lock_core.meta m)), known, moment),
          until = greatest(l.until, moment + lock_core.span(ttl)),
          ttl_ms = -greatest(ttl, ceil(extract(epoch FROM l.until - moment) * 1000)::bigint)
        WHERE key = keys[i] RETURNING lock.token INTO token;
      DELETE FROM lock_core.waiter w WHERE w.owner = o;
      outcome := 'granted';
    ELSIF outcome IS NULL AND l.until <= moment THEN
      -- FOR UPDATE before the update: a transaction that began before and pins later must see that the lock changed hands.
      PERFORM 1 FROM lock_core.lock WHERE key = keys[i] FOR UPDATE SKIP LOCKED;
      pinned := NOT FOUND;
      IF NOT pinned THEN
        walked := lock_core.walk(keys[i], o, moment);
        IF walked[1] IN ('caller', 'nobody') THEN
          UPDATE lock_core.lock SET owner = o,
              token = lock_core.draw(greatest(l.token, (SELECT m.floor FROM lock_core.meta m)), known, moment),
              until = moment + lock_core.span(ttl), since = moment, ttl_ms = -ttl, about = abouts[i]
            WHERE key = keys[i] RETURNING lock.token INTO token;
          DELETE FROM lock_core.waiter w WHERE w.owner = o;
          outcome := 'granted';
        ELSE
          channel := walked[2];
          message := walked[3];
          SELECT * INTO l FROM lock_core.lock WHERE key = keys[i];
        END IF;
      END IF;
    END IF;
    IF outcome IS NULL AND inboxes[i] IS NOT NULL THEN
      INSERT INTO lock_core.waiter AS w (key, owner, inbox, stamp, grant_ms, floor, since, confirmed, about)
        VALUES (keys[i], o, inboxes[i], stamps[i], least(greatest(grants[i], 1), 3600000), known, moment, moment, abouts[i])
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

-- For builds before version 6, which send no message.
CREATE OR REPLACE FUNCTION lock_core.acquire_v1(
  keys text[], owners uuid[], ttls bigint[], floors bigint[], abouts text[], deadlines bigint[],
  inboxes text[], stamps bigint[], grants bigint[], durably text
) RETURNS TABLE (outcome text, token bigint, owner text, since_us bigint, left_ms bigint, about text, pinned boolean, now_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  a record;
BEGIN
  FOR a IN SELECT * FROM lock_core.acquire_v2(keys, owners, ttls, floors, abouts, deadlines, inboxes, stamps, grants, durably) LOOP
    PERFORM pg_notify(a.channel, a.message) WHERE a.channel IS NOT NULL;
    RETURN QUERY SELECT a.outcome, a.token, a.owner, a.since_us, a.left_ms, a.about, a.pinned, a.now_us;
  END LOOP;
END $$;

-- Takes several locks, or none: the keys differ. `outcome` is granted for all; or held for those that are taken, and spared for the others;
-- or late or floor, as above, for one of them.
CREATE OR REPLACE FUNCTION lock_core.acquire_all_v1(
  keys text[], owners uuid[], ttls bigint[], known bigint, about text, deadline bigint, durably text
) RETURNS TABLE (outcome text, token bigint, owner text, since_us bigint, left_ms bigint, holder text, pinned boolean, now_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  l record;
  i int;
  moment timestamptz;
  ttl bigint;
  taken boolean[] := '{}';
  passed_over boolean[] := '{}';
BEGIN
  PERFORM lock_core.must_read_committed();
  PERFORM set_config('synchronous_commit', durably, true);
  FOR i IN 1 .. cardinality(keys) LOOP
    INSERT INTO lock_core.lock (key, token, until, since, about)
      SELECT keys[i], m.floor, 'epoch', clock_timestamp(), '' FROM lock_core.meta m
      WHERE NOT EXISTS (SELECT FROM lock_core.lock WHERE key = keys[i]) ON CONFLICT (key) DO NOTHING;
    SELECT * INTO l FROM lock_core.lock WHERE key = keys[i] FOR NO KEY UPDATE;
    moment := clock_timestamp();
    IF l.until > lock_core.ends(l.until, l.ttl_ms, moment) THEN
      UPDATE lock_core.lock SET until = lock_core.ends(until, ttl_ms, moment) WHERE key = keys[i] RETURNING until INTO l.until;
    END IF;
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
      ttl := least(greatest(ttls[i], 0), 3162240000000);
      DELETE FROM lock_core.waiter w WHERE w.owner = owners[i];
      UPDATE lock_core.lock k SET
          since = CASE WHEN k.owner = owners[i] AND k.until > moment THEN k.since ELSE moment END,
          until = greatest(CASE WHEN k.owner = owners[i] THEN k.until END, moment + lock_core.span(ttl)),
          owner = owners[i],
          token = lock_core.draw(greatest(k.token, (SELECT m.floor FROM lock_core.meta m)), known, moment),
          ttl_ms = -greatest(CASE WHEN k.owner = owners[i] THEN ceil(extract(epoch FROM k.until - moment) * 1000)::bigint END, ttl),
          about = acquire_all_v1.about
        WHERE key = keys[i];
    END IF;
    SELECT k.token, k.owner::text, floor(extract(epoch FROM k.since) * 1000000)::bigint,
        greatest(0, ceil(extract(epoch FROM k.until - moment) * 1000))::bigint, k.about
      INTO token, owner, since_us, left_ms, holder FROM lock_core.lock k WHERE key = keys[i];
    RETURN NEXT;
  END LOOP;
END $$;

-- Raises leases, and never shortens one. One statement locks all rows, and another one writes them. A row that another transaction keeps
-- locked delays no other lease: `renewed` is null for it at once. With patience (ms) the rows are waited for, in the order of their keys, so
-- that two calls never wait for each other in a ring. The call fails if a row stays locked. A key that is missing stays missing.
--
-- The settings of the function let a session plan its statements once, and find each row by its key. Without them, PostgreSQL plans the call
-- of a single lease anew each time, and may read the whole table because that was small once. No setting keeps a join by `=` from reading
-- the whole index. `= ANY (ARRAY[a.k])` does: only an index that is searched by the key serves it.
CREATE OR REPLACE FUNCTION lock_core.renew_v2(keys text[], owners uuid[], ttls bigint[], durably text, patience bigint)
RETURNS TABLE (renewed boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  untils timestamptz[];
  moment timestamptz;
BEGIN
  PERFORM lock_core.must_read_committed();
  PERFORM set_config('synchronous_commit', durably, true), set_config('lock_timeout', greatest(patience, 1)::text, true);
  IF patience > 0 THEN
    PERFORM 1 FROM lock_core.lock l WHERE l.key = ANY (keys) AND l.owner = ANY (owners) ORDER BY l.key FOR NO KEY UPDATE;
  END IF;
  -- The end of each lease whose row is locked now, and null for the others.
  untils := ARRAY(SELECT l.until FROM unnest(keys, owners) WITH ORDINALITY a(k, o, place) LEFT JOIN LATERAL (
      SELECT l.until FROM lock_core.lock l WHERE l.key = a.k AND l.owner = a.o FOR NO KEY UPDATE SKIP LOCKED) l ON true
    ORDER BY a.place);
  -- Read when nothing is waited for any more.
  moment := clock_timestamp();
  -- A lease that is asked for twice gets the longer time.
  UPDATE lock_core.lock l SET until = greatest(lock_core.ends(l.until, l.ttl_ms, moment), moment + lock_core.span(a.ttl)),
      ttl_ms = -greatest(a.ttl, ceil(extract(epoch FROM lock_core.ends(l.until, l.ttl_ms, moment) - moment) * 1000)::bigint)
    FROM (SELECT u.k, least(greatest(max(u.ms), 0), 3162240000000) FROM unnest(keys, ttls, untils) u(k, ms, until)
      WHERE u.until > moment GROUP BY u.k) a(k, ttl) WHERE l.key = ANY (ARRAY[a.k]);
  RETURN QUERY SELECT CASE WHEN a.until > moment THEN true
        WHEN a.until IS NOT NULL OR NOT EXISTS (
          SELECT FROM lock_core.lock l WHERE l.key = ANY (ARRAY[a.k]) AND l.owner = a.o AND l.until > moment) THEN false END
      FROM unnest(keys, owners, untils) WITH ORDINALITY a(k, o, until, place) ORDER BY a.place;
END $$;

-- For builds before version 3.
CREATE OR REPLACE FUNCTION lock_core.renew_v1(keys text[], owners uuid[], ttls bigint[], durably text) RETURNS TABLE (renewed boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN QUERY SELECT coalesce(r.renewed, false) FROM lock_core.renew_v2(keys, owners, ttls, durably, 1000) r;
END $$;

-- Ends claims: leaves their queues, frees what they hold or keeps it for a while, notes the runs that end with them, and grants what is
-- free to the next. `every` is null where no run ends. A release that grants commits durably; one that only frees would, if it were
-- lost, cost time and nothing else.
--
-- The caller sends each message over its channel in a transaction that is not durable. At its commit a message takes a lock that all
-- messages of the server share. In the commit here, it would be kept while the disk flushes, and one hand-off would wait for the other.
-- If the caller dies before it has sent a message, the new owner finds its lock when it asks again.
CREATE OR REPLACE FUNCTION lock_core.release_v2(
  keys text[], owners uuid[], keeps bigint[], every bigint[], remembered bigint[], succeeded boolean[], durably text
) RETURNS TABLE (freed boolean, channel text, message text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  l record;
  i int;
  moment timestamptz;
  grants boolean := false;
  walked text[];
BEGIN
  PERFORM lock_core.must_read_committed();
  FOR i IN 1 .. cardinality(keys) LOOP
    freed := false;
    IF every[i] IS NULL AND coalesce(keeps[i], 0) <= 0 THEN
      -- Most releases only free. This may wait for the row, and meanwhile a claim may have entered the queue. So the queue is read by the
      -- next statement, whose snapshot shows that claim; the snapshot of the update does not.
      UPDATE lock_core.lock k SET owner = NULL, until = 'epoch', since = clock_timestamp(), ttl_ms = NULL
        WHERE k.key = keys[i] AND k.owner = owners[i] AND k.until > clock_timestamp();
      freed := FOUND;
      IF freed AND NOT EXISTS (SELECT FROM lock_core.waiter w WHERE w.key = keys[i]) THEN
        RETURN NEXT;
        CONTINUE;
      END IF;
    END IF;
    SELECT * INTO l FROM lock_core.lock WHERE key = keys[i] FOR NO KEY UPDATE;
    IF l.key IS NULL THEN
      -- The claim may be on its way in another session, which has not committed: this waits for it.
      INSERT INTO lock_core.lock (key, token, until, since, about)
        SELECT keys[i], m.floor, 'epoch', clock_timestamp(), '' FROM lock_core.meta m ON CONFLICT (key) DO NOTHING;
      SELECT * INTO l FROM lock_core.lock WHERE key = keys[i] FOR NO KEY UPDATE;
    END IF;
    moment := clock_timestamp();
    DELETE FROM lock_core.waiter w WHERE w.owner = owners[i];
    IF l.owner = owners[i] AND l.until > moment THEN
      freed := true;
      IF every[i] IS NOT NULL THEN
        -- A transaction of a user may keep the note of the last run locked. Then that note stays: the release does not wait for it.
        PERFORM 1 FROM lock_core.job j WHERE j.key = keys[i] FOR UPDATE SKIP LOCKED;
        IF FOUND OR NOT EXISTS (SELECT FROM lock_core.job j WHERE j.key = keys[i]) THEN
          INSERT INTO lock_core.job AS j (key, every_ms, about, started, succeeded, good, until)
            VALUES (keys[i], every[i], l.about, l.since, succeeded[i], l.since, moment + lock_core.span(remembered[i]))
            ON CONFLICT (key) DO UPDATE SET every_ms = EXCLUDED.every_ms, about = EXCLUDED.about, started = EXCLUDED.started,
              succeeded = EXCLUDED.succeeded, until = EXCLUDED.until,
              good = CASE WHEN EXCLUDED.succeeded OR j.until <= moment THEN EXCLUDED.good ELSE j.good END;
          grants := true;
        END IF;
      END IF;
      IF keeps[i] > 0 THEN
        UPDATE lock_core.lock SET owner = NULL, until = moment + lock_core.span(keeps[i]), ttl_ms = -least(keeps[i], 3162240000000)
          WHERE key = keys[i] RETURNING until INTO l.until;
      ELSE
        UPDATE lock_core.lock SET owner = NULL, until = 'epoch', since = moment, ttl_ms = NULL
          WHERE key = keys[i] RETURNING until INTO l.until;
      END IF;
    END IF;
    IF l.until <= moment AND EXISTS (SELECT FROM lock_core.waiter w WHERE w.key = keys[i]) THEN
      PERFORM 1 FROM lock_core.lock WHERE key = keys[i] FOR UPDATE SKIP LOCKED;
      IF FOUND THEN
        walked := lock_core.walk(keys[i], NULL, moment);
        grants := walked[1] = 'granted' OR grants;
        channel := walked[2];
        message := walked[3];
      END IF;
    END IF;
    RETURN NEXT;
    channel := NULL;
    message := NULL;
  END LOOP;
  PERFORM set_config('synchronous_commit', CASE WHEN grants THEN durably ELSE 'off' END, true);
END $$;

-- For builds before version 5, which send no message.
CREATE OR REPLACE FUNCTION lock_core.release_v1(
  keys text[], owners uuid[], keeps bigint[], every bigint[], remembered bigint[], succeeded boolean[], durably text
) RETURNS TABLE (freed boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  ended record;
BEGIN
  FOR ended IN SELECT * FROM lock_core.release_v2(keys, owners, keeps, every, remembered, succeeded, durably) LOOP
    PERFORM pg_notify(ended.channel, ended.message) WHERE ended.channel IS NOT NULL;
    freed := ended.freed;
    RETURN NEXT;
  END LOOP;
END $$;

-- Says who holds a lock, or for how long it is kept.
CREATE OR REPLACE FUNCTION lock_core.holder_v1(k text)
RETURNS TABLE (token bigint, owner text, since_us bigint, left_ms bigint, about text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT l.token, l.owner::text, floor(extract(epoch FROM l.since) * 1000000)::bigint,
      ceil(extract(epoch FROM lock_core.ends(l.until, l.ttl_ms, c.moment) - c.moment) * 1000)::bigint, l.about
    FROM lock_core.lock l, (SELECT clock_timestamp() AS moment) c WHERE l.key = k AND l.until > c.moment
$$;

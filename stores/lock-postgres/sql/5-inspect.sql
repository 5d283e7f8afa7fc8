-- The functions by which people look at locks, and take them away. And those that a client calls when it connects.

-- Says of locks who has them, and of jobs under their keys what is remembered. A lock is `held` also after its lease, for as long as a
-- transaction keeps it: `pids` are the sessions of those that do, `pinned_ms` the age of the eldest. An advisory lock alone proves no pin:
-- every role that may connect can take one. A transaction that has pinned also has a share of the table of locks, which needs a right.
CREATE OR REPLACE FUNCTION lock_core.entries_v1(keys text[])
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
      WHERE p.virtualtransaction IN (
          SELECT t.virtualtransaction FROM pg_locks t
            WHERE t.locktype = 'relation' AND t.relation = 'lock_core.lock'::regclass AND t.mode = 'RowShareLock' AND t.granted)
        AND p.locktype = 'advisory' AND p.objsubid = 1 AND p.mode = 'ShareLock' AND p.granted
        AND p.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      GROUP BY 1
  )
  SELECT k.key, coalesce(l.until > c.moment OR p.pids IS NOT NULL, false), l.owner::text, l.token,
      floor(extract(epoch FROM l.since) * 1000000)::bigint,
      greatest(0, ceil(extract(epoch FROM lock_core.ends(l.until, l.ttl_ms, c.moment) - c.moment) * 1000))::bigint, l.about, abs(l.ttl_ms),
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
CREATE OR REPLACE FUNCTION lock_core.scan_v1(prefix text, last text, amount int) RETURNS SETOF text
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
CREATE OR REPLACE FUNCTION lock_core.waiters_v1(k text) RETURNS TABLE (owner text, about text, waited_us bigint, confirmed_us bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT w.owner::text, w.about, floor(extract(epoch FROM clock_timestamp() - w.since) * 1000000)::bigint,
      floor(extract(epoch FROM clock_timestamp() - w.confirmed) * 1000000)::bigint
    FROM lock_core.waiter w WHERE w.key = k ORDER BY w.seq LIMIT 1000
$$;

-- Takes a lock away from this owner, and from no other, and tells its process who does so and why. A transaction that has pinned the
-- lock goes on, and keeps it until its end.
CREATE OR REPLACE FUNCTION lock_core.revoke_v1(k text, o uuid, actor text, reason text, durably text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  done boolean;
BEGIN
  SELECT freed INTO done FROM lock_core.release_v1(ARRAY[k], ARRAY[o], '{0}', '{NULL}', '{NULL}', '{NULL}', durably);
  IF done AND pg_notification_queue_usage() < 0.9 THEN
    -- A message has less than 8000 bytes.
    PERFORM pg_notify('lock_core_' || 'revoked', concat_ws('|', 'revoked', o::text, replace(left(actor, 200), '|', '/'), left(reason, 1000)));
  END IF;
  RETURN done;
END $$;

-- Says which transactions keep the row of a lock locked, or the table of all locks, so that its calls wait. A row has the number of the
-- last transaction that locked it in xmax, or a number that stands for several of them. `gid` names a prepared one, which has no session.
CREATE OR REPLACE FUNCTION lock_core.kept_v1(k text) RETURNS TABLE (pid int, gid text, whole_table boolean, age_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  last xid;
  members xid[];
  found_in text[];
  ahead int[];
BEGIN
  -- First the table: a look at the row would wait for it. A statement that asks for the whole table holds up every later one.
  SELECT array_agg(l.virtualtransaction), array_agg(b.pid) INTO found_in, ahead
    FROM pg_locks l LEFT JOIN LATERAL unnest(pg_blocking_pids(l.pid)) b(pid) ON NOT l.granted
    WHERE l.locktype = 'relation' AND l.relation = 'lock_core.lock'::regclass AND l.pid IS DISTINCT FROM pg_backend_pid()
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock');
  whole_table := found_in IS NOT NULL;
  IF NOT whole_table THEN
    SELECT l.xmax INTO last FROM lock_core.lock l WHERE l.key = k;
    BEGIN
      members := ARRAY(SELECT m.xid FROM pg_get_multixact_members(last) m WHERE m.mode <> 'keysh');
    EXCEPTION WHEN OTHERS THEN -- It is the number of one transaction.
      members := '{}';
    END;
    SELECT array_agg(x.virtualtransaction) INTO found_in
      FROM pg_locks x WHERE x.locktype = 'transactionid' AND x.transactionid = ANY (members || last) AND x.granted;
    PERFORM 1 FROM lock_core.lock WHERE key = k AND found_in IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND OR found_in IS NULL THEN
      RETURN;
    END IF;
  END IF;
  RETURN QUERY
    SELECT l.pid, p.gid, whole_table, floor(extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
      LEFT JOIN pg_prepared_xacts p ON l.pid IS NULL AND p.transaction = l.transactionid
    WHERE (l.virtualtransaction = ANY (found_in) OR l.pid = ANY (ahead))
      AND l.locktype = CASE WHEN l.pid IS NULL THEN 'transactionid' ELSE 'virtualxid' END AND l.granted
      -- A call of another process has the row for a few milliseconds.
      AND coalesce(a.xact_start < clock_timestamp() - interval '0.5 s', true)
    ORDER BY a.xact_start, l.pid LIMIT 10;
END $$;

CREATE OR REPLACE FUNCTION lock_core.version_v1() RETURNS TABLE (version int, oldest int)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT version, oldest FROM lock_core.meta $$;

-- Every session that a client opens calls this. If the database is on another server than before, or that server was promoted, grants of
-- the last moments may be missing here, and the clock may be behind. So every later token exceeds those of the rows by far, and also what a
-- clock that is half an hour ahead has drawn. Returns whether the server is another one.
CREATE OR REPLACE FUNCTION lock_core.arrived_v1() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  here text;
  was text;
BEGIN
  SELECT c.system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) INTO here FROM pg_control_system() c;
  SELECT server INTO was FROM lock_core.home;
  IF was = here THEN
    RETURN false;
  END IF;
  PERFORM lock_core.must_read_committed();
  -- No standby needs it: one that is promoted later is another server again.
  PERFORM set_config('synchronous_commit', 'local', true);
  INSERT INTO lock_core.home (server) VALUES (here) ON CONFLICT (one) DO NOTHING;
  IF FOUND THEN
    RETURN false;
  END IF;
  SELECT server INTO was FROM lock_core.home FOR UPDATE;
  IF was <> here THEN
    UPDATE lock_core.meta SET floor = greatest(
      -- A second of tokens more, for grants of one key that are missing.
      greatest(floor, (SELECT max(token) FROM lock_core.lock)) + 1000::bigint * 1048576,
      floor(extract(epoch FROM clock_timestamp()) * 1000 + 1800000)::bigint * 1048576);
    UPDATE lock_core.home SET server = here;
  END IF;
  RETURN was <> here;
END $$;

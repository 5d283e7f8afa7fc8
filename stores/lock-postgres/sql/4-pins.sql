-- The functions that a program calls inside its own transaction.

-- A number that stands for the pins of a lock, of this schema: transactions that pin it share an advisory lock under it, by which they are seen.
CREATE OR REPLACE FUNCTION lock_core.pin_number(k text) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN hashtextextended('lock_core.' || k, 7302);

-- Lets a write through if no newer token was seen of this resource, and remembers its token until the transaction ends and after.
-- For locks of any store. A token from more than an hour ahead of the clock is refused, since it would refuse every later one. Tokens
-- of a store without a clock begin at 2^62; none comes near to half as many again.
CREATE OR REPLACE FUNCTION lock_core.admit(resource text, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  IF $2 / 1048576 > extract(epoch FROM clock_timestamp()) * 1000 + 3600000
    AND $2 NOT BETWEEN 4611686018427387904 AND 6917529027641081855 THEN
    RAISE EXCEPTION 'the token % of % lies more than an hour ahead of the clock of PostgreSQL, and would refuse every later one', $2, quote_literal($1)
      USING ERRCODE = '22023';
  END IF;
  INSERT INTO lock_core.fence AS f (resource, token) VALUES ($1, $2)
    ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token, by_pin = false, statement = NULL WHERE f.token <= EXCLUDED.token;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the token % is stale: % was written under a newer one; roll back, the lock is lost', $2, quote_literal($1)
      USING ERRCODE = 'LK002', HINT = 'See https://git.example.org/distributed-lock/blob/main/docs/troubleshooting.md#from-postgresql';
  END IF;
END $$;

-- Keeps a lock for the transaction that calls this: until it commits or rolls back nobody else is granted the lock, even if its lease
-- ends, its process dies or its guard is released meanwhile. Renewals go on.
--
-- Its callers have set the search path. A second change of the path would cost every pin 10 us or more, as SET CONSTRAINTS would.
CREATE OR REPLACE FUNCTION lock_core.keep(k text, t bigint, began timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  -- A grant owns 128 numbers: its process passes the lock on under the next.
  granted bigint := t / 128 * 128;
  there bigint;
  wrote xid;
BEGIN
  SELECT l.token INTO there FROM lock_core.lock l WHERE l.key = k FOR KEY SHARE;
  IF there IS DISTINCT FROM granted THEN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
      -- If the snapshot of the transaction does not show the newest row, PostgreSQL raises 40001 here. The exception below undoes this.
      INSERT INTO lock_core.lock (key, token, until, since, about) VALUES (k, 0, 'epoch', 'epoch', '') ON CONFLICT (key) DO NOTHING;
    END IF;
    RAISE EXCEPTION 'the lock % is not held under the token %: it was lost, and may belong to somebody else; roll back', quote_literal(k), t
      USING ERRCODE = 'LK001', HINT = 'See https://git.example.org/distributed-lock/blob/main/docs/troubleshooting.md#from-postgresql';
  END IF;
  -- Inspectors see the pin by this lock. It never waits, and no session waits for it.
  PERFORM pg_try_advisory_xact_lock_shared(lock_core.pin_number(k));
  -- An earlier holder of the same process may be in its transaction still: this waits for its end.
  INSERT INTO lock_core.fence AS f (resource, token, by_pin, statement) VALUES (k, t, true, began)
    ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token, statement = EXCLUDED.statement WHERE f.token <= EXCLUDED.token
    RETURNING xmin INTO wrote;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the token % is stale: % was written under a newer one; roll back, the lock is lost', t, quote_literal(k)
      USING ERRCODE = 'LK002', HINT = 'See https://git.example.org/distributed-lock/blob/main/docs/troubleshooting.md#from-postgresql';
  END IF;
  -- The check below belongs to the end of the transaction. If the program has called for immediate checks, it came now: it comes once more.
  IF current_setting('lock_core.checked', true) = 'on' THEN
    PERFORM set_config('lock_core.checked', 'off', true);
    SET CONSTRAINTS lock_core.check_pin DEFERRED;
    UPDATE lock_core.fence SET statement = began WHERE resource = k;
  END IF;
  -- A transaction within a transaction writes under a number of its own.
  IF wrote <> pg_current_xact_id()::xid THEN
    RAISE WARNING 'the lock % is pinned inside a savepoint: after ROLLBACK TO SAVEPOINT it is pinned no more', quote_literal(k)
      USING HINT = 'Pin before the first savepoint. Nested transactions of an ORM are savepoints.';
  END IF;
END $$;

-- For programs: refuses, at the end, to be the whole transaction, which would protect nothing. PostgreSQL plans the body of a function in
-- SQL anew in each call.
CREATE OR REPLACE FUNCTION lock_core.pin(key text, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM lock_core.keep($1, $2, statement_timestamp());
END $$;

-- For functions and DO blocks that are the whole transaction.
CREATE OR REPLACE FUNCTION lock_core.pin_in_statement(key text, token bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT lock_core.keep(key, token, NULL)
$$;

-- A message that commits comes later than the one that pins, unless they are one and the same. The pin itself cannot see which it is: the
-- extended protocol, too, begins the transaction of a single statement before the message that executes it. This runs with the search path
-- and the rights of the program, so its names are qualified.
CREATE OR REPLACE FUNCTION lock_core.check_pin() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  stack pg_catalog.text;
BEGIN
  IF NEW.statement OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp() THEN
    GET DIAGNOSTICS stack = PG_CONTEXT;
    IF pg_catalog.strpos(stack, 'lock_core.keep(') OPERATOR(pg_catalog.>) 0 THEN
      PERFORM pg_catalog.set_config('lock_core.checked', 'on', true);
      RETURN NULL;
    END IF;
    RAISE EXCEPTION 'pin() was called outside of a transaction, where it keeps nothing; BEGIN before it, in a message of its own, and COMMIT after the writes'
      USING ERRCODE = 'LK004', HINT = 'Inside a function or a DO block that is the whole transaction, call pin_in_statement(). See https://git.example.org/distributed-lock/blob/main/docs/troubleshooting.md#from-postgresql';
  END IF;
  RETURN NULL;
END $$;
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'lock_core.fence'::regclass AND tgname = 'check_pin') THEN
    CREATE CONSTRAINT TRIGGER check_pin AFTER INSERT OR UPDATE ON lock_core.fence
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.statement IS NOT NULL) EXECUTE FUNCTION lock_core.check_pin();
  END IF;
END $$;

-- Marks that the work under a lock is done for a version, in the transaction that does the work: both are committed, or neither. It pins
-- the lock, as pin() does. Where the work is done already it is refused, so that a second run rolls back.
CREATE OR REPLACE FUNCTION lock_core.mark_done(key text, token bigint, version text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  IF octet_length($3) NOT BETWEEN 1 AND 1024 THEN
    RAISE EXCEPTION 'a version has 1 to 1024 bytes, and this one has %', octet_length($3) USING ERRCODE = '22023';
  END IF;
  PERFORM lock_core.keep($1, $2, statement_timestamp());
  INSERT INTO lock_core.done AS d (key, version, about, at)
    SELECT $1, $3, l.about, clock_timestamp() FROM lock_core.lock l WHERE l.key = $1
    ON CONFLICT (key, version) DO UPDATE SET about = EXCLUDED.about, at = EXCLUDED.at, until = NULL
      WHERE d.until <= clock_timestamp();
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the work under % is done for % already; roll back', quote_literal($1), quote_literal($3)
      USING ERRCODE = 'LK005', HINT = 'See https://git.example.org/distributed-lock/blob/main/docs/troubleshooting.md#from-postgresql';
  END IF;
END $$;

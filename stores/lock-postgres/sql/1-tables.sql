-- The tables of the locks in PostgreSQL. The files of this folder, in the order of their names and in one transaction, make a new schema.
-- They also bring an older schema up to date, while programs of earlier builds are at work.
--
-- A function keeps its name, its arguments and the columns of its result: an older client calls it too. If one of them must change, the
-- function gets a new name (`NAME_v2`), and the old function stays.
--
-- A statement that needs a strong lock of a table runs only where its change is missing. Otherwise each migration would wait for every open
-- transaction that has pinned a lock, and every call would wait behind the migration.

-- Every name below means what it means to PostgreSQL. Otherwise a role that may create objects in `public` could have its own function run
-- here, as the owner of the schema. The last file puts the path of the session back.
DO $$
BEGIN
  PERFORM pg_catalog.set_config('lock_core.path', pg_catalog.current_setting('search_path'), false);
  PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false);
END $$;

DO $$
DECLARE
  who text;
BEGIN
  -- The last file takes rights from others in what is new. It leaves alone what an administrator may have granted since.
  PERFORM set_config('lock_core.known', (SELECT string_agg(p.proname, ' ') FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = 'lock_core'), false);
  PERFORM set_config('lock_core.known_tables', (SELECT string_agg(c.relname, ' ') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'lock_core'), false);
  IF to_regclass('lock_core.meta') IS NOT NULL THEN
    RETURN;
  END IF;
  -- An administrator may have made the schema for a role that may not make one.
  IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'lock_core') THEN
    CREATE SCHEMA lock_core;
    -- Default privileges may let a role make objects in each new schema. Such an object could be taken for one of the functions here.
    FOR who IN SELECT DISTINCT coalesce(quote_ident(r.rolname), 'PUBLIC')
        FROM pg_namespace n CROSS JOIN aclexplode(n.nspacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
        WHERE n.nspname = 'lock_core' AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner LOOP
      EXECUTE format('REVOKE CREATE ON SCHEMA lock_core FROM %s', who);
    END LOOP;
  END IF;

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

  -- A row stays when its lock is freed: the next token exceeds its token. `owner` is null while the lock is free, and while it is kept
  -- after its release. `until` of a free lock is the epoch, so the lock is free whatever the clock does. `since` then says when it was freed.
  CREATE TABLE lock_core.lock (
    key text COLLATE "C" PRIMARY KEY,
    owner uuid,
    token bigint NOT NULL,
    until timestamptz NOT NULL,
    since timestamptz NOT NULL,
    -- How long the lease is, or how long the lock is kept, as a negative number. Positive if a build before version 3 wrote it: then it is
    -- what the holder asked for at first, and a renewal may have promised more.
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

  -- The newest token that each resource has admitted. Rows of pins go with their locks. `statement` says when the message of the last pin
  -- began.
  CREATE TABLE lock_core.fence (
    resource text COLLATE "C" PRIMARY KEY,
    token bigint NOT NULL,
    by_pin boolean NOT NULL DEFAULT false,
    statement timestamptz
  ) WITH (fillfactor = 50);

  -- The record of the last run of a job.
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

  -- The lock that the holder of a lock waits for.
  CREATE TABLE lock_core.blocked (
    key text COLLATE "C" PRIMARY KEY,
    owner uuid NOT NULL,
    token bigint NOT NULL,
    stamp bigint NOT NULL,
    waits_for text NOT NULL,
    until timestamptz NOT NULL
  );
END $$;

-- The server that the tokens were drawn on: its system identifier and its timeline. Both change with the server that holds the database.
CREATE TABLE IF NOT EXISTS lock_core.home (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  server text NOT NULL
);

-- Version 2: work is marked as done in the transaction that does it. Run it after version 1, as the owner of the schema.
--
-- It may be run again, and beside programs of both versions: nothing of version 1 changes.

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
      USING ERRCODE = 'LK005';
  END IF;
END $$;

REVOKE ALL ON FUNCTION lock_core.mark_done(text, bigint, text) FROM PUBLIC;

-- Whoever may pin may mark.
DO $$
DECLARE
  who text;
BEGIN
  FOR who IN
    SELECT DISTINCT coalesce(quote_ident(r.rolname), 'PUBLIC')
    FROM pg_proc p CROSS JOIN aclexplode(p.proacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
    WHERE p.oid = 'lock_core.pin(text, bigint)'::regprocedure AND a.privilege_type = 'EXECUTE' AND a.grantee <> p.proowner
  LOOP
    EXECUTE 'GRANT EXECUTE ON FUNCTION lock_core.mark_done(text, bigint, text) TO ' || who;
  END LOOP;
END $$;

UPDATE lock_core.meta SET version = greatest(version, 2);

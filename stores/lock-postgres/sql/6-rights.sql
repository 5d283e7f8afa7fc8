-- Users of the store need USAGE of the schema and EXECUTE, and no right to a table.

DO $$
DECLARE
  known text[] := coalesce(string_to_array(current_setting('lock_core.known', true), ' '), '{}');
  known_tables text[] := coalesce(string_to_array(current_setting('lock_core.known_tables', true), ' '), '{}');
  made record;
  who text;
BEGIN
  FOR made IN SELECT p.proname AS name, p.oid::regprocedure AS call FROM pg_proc p
      WHERE p.pronamespace = 'lock_core'::regnamespace AND p.proname <> ALL (known) LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', made.call);
    -- A role that may call the older function may call the newer one that belongs to it.
    FOR who IN SELECT DISTINCT coalesce(quote_ident(r.rolname), 'PUBLIC')
        FROM (VALUES ('mark_done', 'pin'), ('arrived_v1', 'version_v1'), ('renew_v2', 'renew_v1'),
          ('kept_v1', 'entries_v1'), ('sweep_v2', 'sweep_v1'), ('release_v2', 'release_v1'), ('acquire_v2', 'acquire_v1')) v(newer, older)
          JOIN pg_proc p ON p.pronamespace = 'lock_core'::regnamespace AND p.proname = v.older AND p.proname = ANY (known)
          CROSS JOIN aclexplode(p.proacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
        WHERE v.newer = made.name AND a.privilege_type = 'EXECUTE' AND a.grantee <> p.proowner LOOP
      EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', made.call, who);
    END LOOP;
  END LOOP;
  -- Default privileges may give a role rights to each new table. With these it could write tokens and holders itself.
  FOR made IN SELECT DISTINCT c.oid::regclass AS name, CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind,
        a.privilege_type AS may, coalesce(quote_ident(r.rolname), 'PUBLIC') AS who
      FROM pg_class c CROSS JOIN aclexplode(c.relacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
      WHERE c.relnamespace = 'lock_core'::regnamespace AND c.relkind IN ('r', 'S') AND c.relname <> ALL (known_tables)
        AND a.grantee <> c.relowner AND a.privilege_type <> 'SELECT' LOOP
    EXECUTE format('REVOKE %s ON %s %s FROM %s', made.may, made.kind, made.name, made.who);
  END LOOP;
END $$;

-- An older text that runs later takes no version back.
UPDATE lock_core.meta SET version = greatest(version, 6);

DO $$
BEGIN
  PERFORM set_config('search_path', current_setting('lock_core.path'), false);
END $$;

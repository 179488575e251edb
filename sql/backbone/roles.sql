-- Roles of one cluster. Run before the migrations by whoever may create roles;
-- every statement is harmless when repeated. Passwords are set outside.
DO $$
DECLARE
    wanted record;
BEGIN
    FOR wanted IN
        SELECT *
        FROM (VALUES
            ('backbone_owner', true),     -- owns schema and tables; migrations only
            ('backbone_app', true),       -- the server
            ('backbone_reader', true),    -- reports and verification
            ('backbone_redactor', false),
            ('backbone_archiver', false),
            ('backbone_sealer', false),
            ('backbone_eraser', false),
            ('backbone_ks_owner', false)  -- owns the key store
        ) AS r (name, login)
    LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = wanted.name) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I %s NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS',
                    wanted.name, CASE WHEN wanted.login THEN 'LOGIN' ELSE 'NOLOGIN' END);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL; -- another database of this cluster is being migrated at the same time
            END;
        END IF;
    END LOOP;
END
$$;

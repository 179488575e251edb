-- Roles of one cluster. A role that may create roles runs this before the migrations;
-- every statement is harmless when repeated. Administrators set the passwords.
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
            ('backbone_outbox_reader', false), -- tools that tail the log through the outbox view
            ('backbone_eraser', true),    -- erasure and rotation of keys; not the server's role
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
    -- Earlier versions made this role without login.
    IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'backbone_eraser' AND NOT rolcanlogin) THEN
        BEGIN
            ALTER ROLE backbone_eraser LOGIN;
        EXCEPTION WHEN insufficient_privilege OR internal_error THEN
            NULL; -- another role has to do it; internal_error is another migration at the same time
        END;
    END IF;
END
$$;

-- The owner creates functions that belong to the redactor, to the archiver and to the sealer. It gains no right by
-- the membership: it owns the tables.
DO $$
BEGIN
    IF NOT pg_catalog.pg_has_role('backbone_owner', 'backbone_redactor', 'MEMBER') THEN
        GRANT backbone_redactor TO backbone_owner;
    END IF;
    IF NOT pg_catalog.pg_has_role('backbone_owner', 'backbone_archiver', 'MEMBER') THEN
        GRANT backbone_archiver TO backbone_owner;
    END IF;
    IF NOT pg_catalog.pg_has_role('backbone_owner', 'backbone_sealer', 'MEMBER') THEN
        GRANT backbone_sealer TO backbone_owner;
    END IF;
EXCEPTION WHEN unique_violation OR internal_error OR insufficient_privilege THEN
    NULL; -- another migration at the same time, or one that does not need it
END
$$;

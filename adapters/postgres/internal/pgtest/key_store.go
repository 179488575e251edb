package pgtest

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// Grants lists every privilege in a schema that its owner does not hold as such:
// "grantee object privileges".
func Grants(t *testing.T, conn *pgx.Conn, schema, owner string) []string {
	t.Helper()
	return Column(t, conn, `
		WITH grants AS (
			SELECT CASE WHEN c.relkind = 'S' THEN 'sequence ' ELSE '' END || c.relname AS object, a.grantee, a.privilege_type, a.is_grantable
			FROM pg_class c, aclexplode(c.relacl) a WHERE c.relnamespace = $1::text::regnamespace
			UNION ALL
			SELECT c.relname || '.' || t.attname, a.grantee, a.privilege_type, a.is_grantable
			FROM pg_attribute t JOIN pg_class c ON c.oid = t.attrelid, aclexplode(t.attacl) a WHERE c.relnamespace = $1::text::regnamespace
			UNION ALL
			SELECT p.proname || '()', a.grantee, a.privilege_type, a.is_grantable
			FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE p.pronamespace = $1::text::regnamespace
			UNION ALL
			SELECT 'schema', a.grantee, a.privilege_type, a.is_grantable
			FROM pg_namespace n, aclexplode(n.nspacl) a WHERE n.nspname = $1::text
		)
		SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(grantee) END || ' ' || object || ' ' ||
			string_agg(left(privilege_type, 1) || CASE WHEN is_grantable THEN '*' ELSE '' END, '' ORDER BY privilege_type)
		FROM grants WHERE grantee = 0 OR pg_get_userbyid(grantee) <> $2
		GROUP BY grantee, object ORDER BY 1`, schema, owner)
}

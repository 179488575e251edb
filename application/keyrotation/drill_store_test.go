package keyrotation_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/keystore"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/ports"
	keystoresql "github.com/erpbackbone/backbone/sql/keystore"
	"github.com/erpbackbone/backbone/test/testkit"
)

func as(t *testing.T, role, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("role", role)
	u.RawQuery = q.Encode()
	return u.String()
}

func TestDrillCrashAtEveryCallOnPostgreSQL(t *testing.T) {
	fingerprint, err := testkit.Fingerprint(keystoresql.Migrations)
	require.NoError(t, err)
	crashAtEveryCall(t, 5, func(t *testing.T) (ports.SubjectKeys, eraserStore) {
		dsn := testkit.Database(t, func(ctx context.Context, dsn string) error { return migrate.KeyStore(ctx, dsn, nil) }, "keystore_"+fingerprint)
		k, err := keystore.Open(t.Context(), keystore.Config{DSN: as(t, "backbone_app", dsn), EraserDSN: as(t, "backbone_eraser", dsn)})
		require.NoError(t, err)
		t.Cleanup(k.Close)
		return k, k.Rotation()
	})
}

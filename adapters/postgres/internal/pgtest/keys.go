package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	keystoresql "github.com/erpbackbone/backbone/sql/keystore"
	"github.com/erpbackbone/backbone/test/testkit"
)

// KeyStoreDatabase is a database of the test's own that holds a key store and
// nothing else.
func KeyStoreDatabase(t testing.TB) string {
	t.Helper()
	fingerprint, err := testkit.Fingerprint(keystoresql.Migrations)
	require.NoError(t, err)
	return testkit.Database(t, func(ctx context.Context, dsn string) error {
		return migrate.KeyStore(ctx, dsn, nil)
	}, "keystore_"+fingerprint)
}

func WithKeyStore(superuserDSN string) Option {
	return func(c *postgres.Config) { c.KeyStoreDSN = As("backbone_app", superuserDSN) }
}

// KeyTables changes states of keys as a superuser, without keys and without the
// ceremony of an erasure.
type KeyTables struct{ DSN string }

func (k KeyTables) do(t *testing.T, f func(conn *pgx.Conn) error) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), k.DSN)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.NoError(t, f(conn))
}

// The statements of the states, for one key: partition, subject, class.
const (
	MintKey = `INSERT INTO keystore.data_subjects AS d (created_at, key_ref, partition_id, active_version, class, tenant_id, subject_id, state)
		VALUES (now(), gen_random_uuid(), $1, 1, $3, 'demo', $2, 'active')
		ON CONFLICT ON CONSTRAINT data_subjects_pkey DO UPDATE SET active_version = d.active_version + 1
		RETURNING active_version`
	FenceKey = `INSERT INTO keystore.subject_fences (fenced_at, request_id, partition_id, class, subject_id)
		VALUES (now(), gen_random_uuid(), $1, $3, $2)`
	LockKey    = `SELECT FROM keystore.data_subjects WHERE partition_id = $1 AND subject_id = $2 AND class = $3 FOR UPDATE`
	DestroyKey = `UPDATE keystore.data_subjects SET state = 'destroyed', destroyed_at = now(), active_version = 0
		WHERE partition_id = $1 AND subject_id = $2 AND class = $3`
)

func KeyArguments(id ports.SubjectKeyID) []any {
	return []any{int32(id.Partition), string(id.Subject), int16(id.Class)}
}

// Mint makes the first or the next version of each key the active one.
func (k KeyTables) Mint(t *testing.T, ids ...ports.SubjectKeyID) {
	t.Helper()
	k.do(t, func(conn *pgx.Conn) error {
		for _, id := range ids {
			if _, err := conn.Exec(t.Context(), MintKey, KeyArguments(id)...); err != nil {
				return err
			}
		}
		return nil
	})
}

// Fence refuses new values sealed with the key.
func (k KeyTables) Fence(t *testing.T, id ports.SubjectKeyID) {
	t.Helper()
	k.do(t, func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), FenceKey, KeyArguments(id)...)
		return err
	})
}

// Destroy ends a key.
func (k KeyTables) Destroy(t *testing.T, id ports.SubjectKeyID) {
	t.Helper()
	k.do(t, func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), DestroyKey, KeyArguments(id)...)
		return err
	})
}

func KeyID(p event.PartitionID, subject string) ports.SubjectKeyID {
	return ports.SubjectKeyID{Partition: p, Subject: shredding.Subject(subject), Class: shredding.KeyStandard}
}

// Personal is an invoice with a value sealed with the first version of each subject's
// key.
func Personal(p event.PartitionID, subjects ...string) ports.AppendRequest {
	r := Invoice(p, 1)
	for _, subject := range subjects {
		r.Events[0].Sealed = append(r.Events[0].Sealed, event.SealedSubject{Subject: subject, KeyVersion: 1, Pointers: []string{"/data/contact"}})
	}
	return r
}

package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("OneDatabase", func(t *testing.T) {
		t.Parallel()
		conformance.RunEventStore(t, newHarness(func(_ *testing.T, dsn string) string { return dsn }))
	})
	t.Run("KeyStoreApart", func(t *testing.T) {
		t.Parallel()
		conformance.RunAppends(t, newHarness(func(t *testing.T, _ string) string { return pgtest.KeyStoreDatabase(t) }))
	})
}

// TestDrillConditionRaces runs five times as many races for an append condition as TestConformance.
func TestDrillConditionRaces(t *testing.T) {
	t.Parallel()
	h := newHarness(func(_ *testing.T, dsn string) string { return dsn })
	h.ConditionRaces *= 5
	conformance.RunConditionRaces(t, h)
}

// newHarness makes stores whose key stores are where keyStore says. Eight legal entities have tables of their
// own; the hundreds after them share tables, since each new table makes all statements be planned again.
func newHarness(keyStore func(t *testing.T, dsn string) (keysDSN string)) conformance.EventStoreHarness {
	var keysDSN string // of the newest store; the suite makes one after another
	return conformance.EventStoreHarness{
		New: func(t *testing.T, clock ports.Clock) conformance.Store {
			dsn := pgtest.Database(t)
			keysDSN = keyStore(t, dsn)
			pgtest.Execute(t, dsn, `CREATE SCHEMA conformance;
				CREATE TABLE conformance.rows (partition_id integer, key text, value text, PRIMARY KEY (partition_id, key));
				GRANT USAGE ON SCHEMA conformance TO backbone_app;
				GRANT SELECT, INSERT, UPDATE ON conformance.rows TO backbone_app`)
			return pgtest.Combine(pgtest.Open(t, dsn, pgtest.WithClock(clock), pgtest.WithKeyStore(keysDSN), pgtest.WithPhysicalPartitions(8)))
		},
		Keys: func(t *testing.T, _ conformance.Store) *conformance.KeyRegister {
			keys := pgtest.OpenKeys(t, keysDSN)
			return conformance.NewKeyRegister(keys, keys.Rotation(), keys.Erasures())
		},
		Leases: func(s conformance.Store) ports.Leases { return s.(pgtest.Combined).Database.Leases },
		ReadModel: func(_ *testing.T, s conformance.Store) conformance.ReadModel {
			return readModel{s.(pgtest.Combined).Database}
		},
		ConditionRaces: 200,
	}
}

type readModel struct{ store *postgres.Database }

func (readModel) Put(ctx context.Context, tx ports.ProjectionTx, p event.PartitionID, key, value string) error {
	_, err := tx.(pgx.Tx).Exec(ctx, `INSERT INTO conformance.rows VALUES ($1, $2, $3)
		ON CONFLICT (partition_id, key) DO UPDATE SET value = excluded.value`, int32(p), key, value)
	return err
}

func (m readModel) Committed(ctx context.Context, p event.PartitionID) (map[string]string, error) {
	rows, err := m.store.Pool().Query(ctx, `SELECT key, value FROM conformance.rows WHERE partition_id = $1`, int32(p))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	var key, value string
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error {
		out[key] = value
		return nil
	})
	return out, err
}

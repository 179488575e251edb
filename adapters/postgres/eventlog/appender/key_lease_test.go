package appender_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// statements records the names of the statements that a store sends, except the notifier's,
// whose time is not determined.
type statements struct {
	mu   sync.Mutex
	sent []string
}

var (
	queryName    = regexp.MustCompile(`^-- name: (\S+)`)
	functionName = regexp.MustCompile(`keystore\.\w+`)
)

func (s *statements) add(sql string) {
	name := strings.ToLower(strings.Join(strings.Fields(sql), " "))
	if m := queryName.FindStringSubmatch(sql); m != nil {
		name = m[1]
	} else if f := functionName.FindString(sql); f != "" {
		name = f
	}
	if name == "NotifyChannel" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, name)
}

func (s *statements) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := s.sent
	s.sent = nil
	return sent
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.add(data.SQL)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		s.add(q.SQL)
	}
	return ctx
}

func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

var (
	readsOfAnAppend = []string{
		"begin isolation level read committed", "LockPartitionHeads", "ListLastEvents", "ListStreamVersions", "ListIdempotencyKeys",
	}
	writesOfAnAppend = []string{"InsertEvents", "WriteEventRows", "InsertIdempotencyKeys"}
)

func TestAppend_StatementCount(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	apart := pgtest.KeyStoreDatabase(t)
	p := pgtest.NewPartitions(t, pgtest.Open(t, dsn), 1)[0]
	const lease, commit = "keystore.lease", "commit"
	begin := readsOfAnAppend[0]
	for name, c := range map[string]struct {
		keysDSN string
		sealed  []string
	}{
		"one database": {dsn, slices.Concat(readsOfAnAppend, []string{lease}, writesOfAnAppend, []string{commit})},
		"key store apart": {apart, slices.Concat(readsOfAnAppend, []string{begin, "set local synchronous_commit = off", lease},
			writesOfAnAppend, []string{"select 1", commit, "rollback"})},
	} {
		t.Run(name, func(t *testing.T) {
			sent := &statements{}
			s := pgtest.Open(t, dsn, pgtest.SingleAppender, pgtest.WithKeyStore(c.keysDSN), func(c *postgres.Config) { c.Tracer = sent })
			pgtest.KeyTables{DSN: c.keysDSN}.Mint(t, pgtest.KeyID(p, "employee:S-1"))
			_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1)) // opens the connection
			require.NoError(t, err)
			sent.take()

			_, err = s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
			require.NoError(t, err)
			require.Equal(t, slices.Concat(readsOfAnAppend, writesOfAnAppend, []string{commit}), sent.take(), "without personal values nothing is added")

			_, err = s.Appender.Append(t.Context(), pgtest.Personal(p, "employee:S-1"))
			require.NoError(t, err)
			require.Equal(t, c.sealed, sent.take())
		})
	}
}

// layout is where a test's key store is.
type layout struct {
	name  string
	keys  func(t *testing.T, dsn string) string
	apart bool
}

var layouts = []layout{
	{"OneDatabase", func(_ *testing.T, dsn string) string { return dsn }, false},
	{"KeyStoreApart", func(t *testing.T, _ string) string { return pgtest.KeyStoreDatabase(t) }, true},
}

func TestKeyLease_HundredSubjectsInOneGroup(t *testing.T) {
	t.Parallel()
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			keysDSN := l.keys(t, dsn)
			observed := &pgtest.Groups{}
			s := pgtest.Open(t, dsn, pgtest.SingleAppender, pgtest.WithKeyStore(keysDSN), func(c *postgres.Config) { c.Metrics = observed })
			p := pgtest.NewPartitions(t, s, 1)[0]
			keys := pgtest.KeyTables{DSN: keysDSN}
			var requests []ports.AppendRequest
			var minted []ports.SubjectKeyID
			for i := range 10 {
				var subjects []string
				for j := range 10 {
					subjects = append(subjects, fmt.Sprintf("employee:H-%d", 10*i+j))
					minted = append(minted, pgtest.KeyID(p, subjects[j]))
				}
				requests = append(requests, pgtest.Personal(p, subjects...))
			}
			keys.Mint(t, minted...)
			keys.Fence(t, pgtest.KeyID(p, "employee:H-57"))
			for i, o := range appendInOneGroup(t, s, p, requests...) {
				if i == 5 {
					require.Equal(t, "pii.subject_erased", fault.CodeOf(o.err))
					continue
				}
				require.NoError(t, o.err)
			}
			require.Equal(t, []int{1, 10}, observed.Seen())
			require.Equal(t, 10, pgtest.RequireVerified(t, s, p))
			counts, err := s.PersonalRecords.CountPersonalRecords(t.Context(), p, "employee:H-99")
			require.NoError(t, err)
			require.Len(t, counts, 1)
			requireNoLease(t, keysDSN, pgtest.KeyID(p, "employee:H-99"))
		})
	}
}

// requireNoLease checks that no session has locked the key's row.
func requireNoLease(t *testing.T, keysDSN string, id ports.SubjectKeyID) {
	t.Helper()
	conn := pgtest.Connect(t, keysDSN)
	_, err := conn.Exec(t.Context(), pgtest.LockKey+" NOWAIT", pgtest.KeyArguments(id)...)
	require.NoError(t, err)
}

func TestKeyLease_LockedKeyIsSkipped(t *testing.T) {
	t.Parallel()
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			keysDSN := l.keys(t, dsn)
			s := pgtest.Open(t, dsn, pgtest.SingleAppender, pgtest.WithKeyStore(keysDSN))
			p := pgtest.NewPartitions(t, s, 1)[0]
			keys, busy, free := pgtest.KeyTables{DSN: keysDSN}, pgtest.KeyID(p, "employee:B-1"), pgtest.KeyID(p, "employee:B-2")
			keys.Mint(t, busy, free)
			conn := pgtest.Connect(t, keysDSN)
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), pgtest.LockKey, pgtest.KeyArguments(busy)...)
			require.NoError(t, err)
			got := appendInOneGroup(t, s, p, pgtest.Personal(p, string(busy.Subject)), pgtest.Personal(p, string(free.Subject)), pgtest.Invoice(p, 1))
			f, ok := fault.As(got[0].err)
			require.True(t, ok)
			require.Equal(t, "pii.key_moved", f.Code)
			require.Equal(t, "/events/0/data/contact", f.Field)
			require.NoError(t, got[1].err)
			require.NoError(t, got[2].err)
			require.NoError(t, tx.Rollback(t.Context()))
			_, err = s.Appender.Append(t.Context(), pgtest.Personal(p, string(busy.Subject)))
			require.NoError(t, err)
		})
	}
}

// An eraser waits for the group in flight and for no later one.
func TestKeyLease_EraserWaitsForGroupInFlightOnly(t *testing.T) {
	t.Parallel()
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			keysDSN := l.keys(t, dsn)
			n := &network{}
			hanging := pgtest.Open(t, dsn, throughNetwork(n), pgtest.WithKeyStore(keysDSN))
			other := pgtest.Open(t, dsn, pgtest.WithKeyStore(keysDSN))
			books := pgtest.NewPartitions(t, other, 2)
			keys, id := pgtest.KeyTables{DSN: keysDSN}, pgtest.KeyID(books[0], "employee:W-1")
			keys.Mint(t, id)
			openConnections(t, hanging, pgtest.Personal(books[0], string(id.Subject)))
			held, thaw := n.freeze(t)
			inFlight := send(context.Background(), hanging, pgtest.Personal(books[0], string(id.Subject)))
			pgtest.Receive(t, held, "what it is about to write: it has its lease and has written nothing")
			keys.Fence(t, id)
			erased := make(chan struct{})
			go func() {
				defer close(erased)
				keys.Destroy(t, id)
			}()
			observer := pgtest.Connect(t, keysDSN)
			testkit.Eventually(t, pgtest.WaitLimit, func() bool { return pgtest.CountLockWaiters(t, observer) == 1 }, "the eraser waits for the lease")
			thaw()
			require.NoError(t, (<-inFlight).err)
			pgtest.Receive(t, erased, "the destruction")
			require.Equal(t, 2, pgtest.RequireVerified(t, other, books[0]))
			_, err := other.Appender.Append(t.Context(), pgtest.Personal(books[0], string(id.Subject)))
			require.Equal(t, "pii.subject_erased", fault.CodeOf(err))
		})
	}
}

func TestKeyLease_MissingSchemaRefusesPersonalValuesOnly(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]string{
		"schema":    "DROP SCHEMA keystore CASCADE",
		"functions": "DROP FUNCTION keystore.lease, keystore.key_states",
		"rights":    "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA keystore FROM backbone_app",
	} {
		for _, l := range layouts {
			t.Run(name+l.name, func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.Database(t)
				keysDSN := l.keys(t, dsn)
				s := pgtest.Open(t, dsn, pgtest.SingleAppender, pgtest.WithKeyStore(keysDSN))
				p := pgtest.NewPartitions(t, s, 1)[0]
				pgtest.Execute(t, keysDSN, spoil)
				got := appendInOneGroup(t, s, p, pgtest.Personal(p, "employee:M-1"), pgtest.Invoice(p, 1))
				require.Equal(t, "store.not_migrated", fault.CodeOf(got[0].err))
				require.Equal(t, fault.Unavailable, fault.KindOf(got[0].err))
				require.NoError(t, got[1].err)
			})
		}
	}
}

func TestGroup_HalvingKeepsIntents(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn, pgtest.SingleAppender)
	p := pgtest.NewPartitions(t, s, 1)[0]
	id := pgtest.KeyID(p, "employee:P-1")
	pgtest.KeyTables{DSN: dsn}.Mint(t, id)
	poison := pgtest.Personal(p, string(id.Subject))
	poison.Events[0].Payload = []byte(`{"data":`)
	sound := pgtest.Personal(p, string(id.Subject))
	sound.Intent = &ports.IntentWrite{
		Intent: intent.Intent{ID: sound.Events[0].ID, Type: "hr.hire", Status: intent.Executed, CreatedAt: time.Now(), UpdatedAt: time.Now()},
		Sealed: []event.SealedSubject{{Subject: string(id.Subject), KeyVersion: 1, Pointers: []string{"/email"}}},
	}
	got := appendInOneGroup(t, s, p, sound, poison, pgtest.Personal(p, string(id.Subject)))
	require.NoError(t, got[0].err)
	require.Equal(t, "append.rejected_by_store", fault.CodeOf(got[1].err))
	require.NoError(t, got[2].err)
	counts, err := s.PersonalRecords.CountPersonalRecords(t.Context(), p, id.Subject)
	require.NoError(t, err)
	require.Len(t, counts, 2)
	require.Equal(t, shredding.KeyStandard, counts[0].Class)
	require.EqualValues(t, 2, counts[0].Records)
	requireNoLease(t, dsn, id)
}

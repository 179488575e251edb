package entities_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/entities"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/snapshots"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// counter is an entity whose state tells which events were folded, in which order.
type counter struct {
	Sum   int64    `json:"sum"`
	Order []uint64 `json:"order"`
}

type folds struct{ version int }

func (f folds) EntityFold(entityType string) (module.EntityFold, bool) {
	return module.EntityFold{
		EntityType: "meter", Version: f.version, New: func(string) any { return &counter{} },
		Apply: func(s any, e event.Recorded, data []byte) error {
			var d struct{ N int64 }
			c := s.(*counter)
			err := json.Unmarshal(data, &d)
			c.Sum, c.Order = c.Sum+d.N, append(c.Order, uint64(e.Sequence))
			return err
		},
	}, entityType == "meter"
}

type synchronousBackground struct{}

func (synchronousBackground) Do(_ string, f func(context.Context)) bool {
	f(context.Background())
	return true
}

type clock struct{}

func (clock) Now() time.Time { return time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC) }

// entityFixture is a log with meters, and a service that reads them.
type entityFixture struct {
	*entities.Service
	store   *memory.Database
	entity  ports.LegalEntity
	log     *logLines
	reads   *countingLog
	elapsed time.Duration
	secrets *testkit.Secrets
	stored  *snapshots.Entities
}

// countingLog counts the events that are read with their data.
type countingLog struct {
	entities.Log
	read    int
	largest int // bytes of payloads in one answer
}

func (l *countingLog) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	found, err := l.Log.SearchEvents(ctx, q, scan)
	bytes := 0
	for i := range found.Events {
		bytes += len(found.Events[i].Payload)
	}
	l.read, l.largest = l.read+len(found.Events), max(l.largest, bytes)
	return found, err
}

type logLines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func newEntityFixture(t require.TestingT, change ...func(*entities.Config)) *entityFixture {
	store := memory.New(memory.Config{LogName: "plant.example", Clock: clock{}})
	le, err := store.Directory.CreateLegalEntity(context.Background(), ports.LegalEntity{TenantID: "acme", Code: "USMF", Name: "US", TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	p := &entityFixture{store: store, entity: le, log: &logLines{}, reads: &countingLog{Log: store.Events}, secrets: &testkit.Secrets{}}
	logger := slog.New(slog.NewJSONHandler(p.log, nil))
	p.stored = snapshots.NewEntities(store.Snapshots, snapshots.NewAuthenticator(p.secrets, logger, nil))
	c := entities.Config{
		Log: p.reads, Snapshots: p.stored, Positions: query.New(query.Config{Log: store.Events, Clock: clock{}}), Folds: folds{1}, Background: synchronousBackground{}, Clock: clock{},
		Logger: logger, Limits: entities.Limits{SnapshotEvery: 10, FoldTimeout: 500 * time.Millisecond}, Elapsed: func(time.Time) time.Duration { return p.elapsed },
	}
	for _, f := range change {
		f(&c)
	}
	p.Service, err = entities.New(c)
	require.NoError(t, err)
	return p
}

// write appends events about an entity of the type; each takes effect on its day.
func (p *entityFixture) write(t require.TestingT, entityType, data string, days ...string) {
	r := ports.AppendRequest{Partition: p.entity.Partition}
	for _, day := range days {
		e := event.Prepared{
			Skeleton: event.Skeleton{
				Partition: p.entity.Partition, ID: ulid.Make(), Type: "plant.meter.read", SchemaVersion: 1, EffectiveDate: event.MustDate(day),
				OccurredAt: clock{}.Now(), Scope: event.Scope{TenantID: "acme", LegalEntity: "USMF"}, ActorType: event.System, ActorID: "s", CorrelationID: "c",
				Stream: event.StreamID{Type: "m", ID: "1"}, Source: event.Source{System: "t", Channel: "t"},
			},
			Payload: []byte(`{"data":` + data + `,"dimensions":{},"entity_refs":[]}`), Keys: []string{event.EntityKey(entityType, "M-1")},
		}
		e.PayloadHash, e.PayloadHashDone = event.HashPayload(e.Salt, e.Payload), true
		r.Events = append(r.Events, e)
	}
	_, err := p.store.Appender.Append(context.Background(), r)
	require.NoError(t, err)
}

func (p *entityFixture) read(t require.TestingT, change ...func(*entities.Query)) entities.State {
	q := entities.Query{LegalEntity: p.entity, Type: "meter", ID: "M-1", Consistency: entities.Strong}
	for _, f := range change {
		f(&q)
	}
	got, err := p.Read(context.Background(), q)
	require.NoError(t, err)
	return got
}

func state(t require.TestingT, s entities.State) counter {
	var c counter
	require.NoError(t, json.Unmarshal(s.State, &c))
	return c
}

func with(c entities.Consistency) func(*entities.Query) {
	return func(q *entities.Query) { q.Consistency = c }
}

func days(day string, n int) []string { return strings.Fields(strings.Repeat(day+" ", n)) }

// An entity with events of a megabyte each is folded a few of them at a time, also where
// a day leaves out what comes last.
func TestRead_ByteLimit(t *testing.T) {
	t.Parallel()
	p := newEntityFixture(t)
	large := `{"n":1,"text":"` + strings.Repeat("x", 1<<20) + `"}`
	for range 10 {
		p.write(t, "machine", large, "2026-03-01")
	}
	p.write(t, "machine", `{"n":2}`, "2026-04-01")
	got := p.read(t, func(q *entities.Query) { q.Type = "machine" })
	require.Equal(t, 11, got.EventCount)
	require.Equal(t, entities.Strong, got.Reached)
	day := event.MustDate("2026-03-31")
	got = p.read(t, func(q *entities.Query) { q.Type, q.AsOf = "machine", &day })
	require.Equal(t, 10, got.EventCount)
	require.Positive(t, p.reads.largest)
	require.LessOrEqual(t, p.reads.largest, 8<<20)
}

func TestRead_DefaultFold(t *testing.T) {
	t.Parallel()
	p := newEntityFixture(t)
	p.write(t, "machine", `{"a":1.50,"b":"x"}`, "2026-03-01")
	p.write(t, "machine", `{"b":"y","c":{"d":[1]}}`, "2026-03-01")
	p.write(t, "machine", `[1]`, "2026-03-01")
	got := p.read(t, func(q *entities.Query) { q.Type = "machine" })
	require.Equal(t, `{"a":1.50,"b":"y","c":{"d":[1]}}`, string(got.State), "exact text")
	require.Equal(t, 3, got.EventCount)
	require.Equal(t, entities.Strong, got.Reached)
	_, err := p.Read(t.Context(), entities.Query{LegalEntity: p.entity, Type: "machine", ID: "M-2", Consistency: entities.Strong})
	require.Equal(t, "entity.not_found", fault.CodeOf(err))
}

func TestRead_Consistency(t *testing.T) {
	t.Parallel()
	p := newEntityFixture(t)
	p.write(t, "meter", `{"n":1}`, days("2026-03-01", 10)...)
	require.Nil(t, p.read(t, with(entities.Eventual)).Snapshot, "without a snapshot the log is folded")
	require.Nil(t, p.read(t).Snapshot, "ten events are not more than ten")
	p.write(t, "meter", `{"n":1}`, "2026-03-01")
	require.EqualValues(t, 11, p.read(t).Version)
	p.write(t, "meter", `{"n":1}`, days("2026-03-02", 3)...)

	type answer struct {
		reached                  entities.Consistency
		version, asOf, head      event.Sequence
		count, folded, readEvent int
	}
	look := func(level entities.Consistency) answer {
		before := p.reads.read
		s := p.read(t, with(level))
		require.NotNil(t, s.Snapshot)
		require.EqualValues(t, s.EventCount, state(t, s).Sum)
		return answer{s.Reached, s.Version, s.AsOf, s.Head, s.EventCount, s.Folded, p.reads.read - before}
	}
	require.Equal(t, answer{entities.Strong, 14, 14, 14, 14, 3, 3}, look(entities.Strong))
	require.Equal(t, answer{entities.Verified, 11, 11, 14, 11, 0, 0}, look(entities.Verified))
	require.Equal(t, answer{entities.Eventual, 11, 11, 14, 11, 0, 0}, look(entities.Eventual))

	p.write(t, "other", `{}`, "2026-03-01") // an event of another entity
	require.Equal(t, answer{entities.Strong, 14, 15, 14, 14, 3, 3}, look(entities.Strong))

	// An event of the time before the snapshot: verified sees it and folds, eventual does not look.
	p.write(t, "meter", `{"n":1}`, "2026-02-01")
	require.Equal(t, answer{entities.Eventual, 11, 11, 16, 11, 0, 0}, look(entities.Eventual))
	s := p.read(t, with(entities.Verified))
	require.Equal(t, entities.Strong, s.Reached, "it folds as a strong read does")
	require.EqualValues(t, 15, state(t, s).Sum)
	require.Nil(t, s.Snapshot)
	all, _, err := p.store.Snapshots.EntitySnapshots(t.Context(), p.entity.Partition, "meter", "M-1")
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.False(t, all[0].Stale, "the new one")
	require.True(t, all[1].Stale)
	require.Equal(t, answer{entities.Strong, 16, 16, 16, 15, 0, 0}, look(entities.Strong))
}

func TestRead_AfterBackDatedEvent(t *testing.T) {
	t.Parallel()
	p := newEntityFixture(t)
	for _, month := range []string{"2026-01-15", "2026-02-15", "2026-03-15"} {
		p.write(t, "meter", `{"n":1}`, days(month, 11)...)
		p.read(t)
	}
	p.write(t, "meter", `{"n":1}`, "2026-02-20")
	s := p.read(t)
	require.NotNil(t, s.Snapshot)
	require.EqualValues(t, 22, s.Snapshot.AsOf, "that of February has nothing later in it")
	require.Equal(t, 12, s.Folded)
	order := state(t, s).Order
	require.Len(t, order, 34)
	for i, n := range order {
		require.EqualValues(t, i+1, n, "recorded order")
	}
}

func TestRead_UnusableSnapshot(t *testing.T) {
	t.Parallel()
	p := newEntityFixture(t)
	p.write(t, "meter", `{"n":2}`, days("2026-03-01", 12)...)
	p.read(t)
	require.NotNil(t, p.read(t).Snapshot)

	other := newEntityFixture(t, func(c *entities.Config) {
		c.Snapshots, c.Log, c.Positions, c.Folds = p.stored, p.reads, p.Positions, folds{2}
	})
	got, err := other.Read(t.Context(), entities.Query{LegalEntity: p.entity, Type: "meter", ID: "M-1"})
	require.NoError(t, err)
	require.Nil(t, got.Snapshot)
	require.Equal(t, 12, got.Folded)

	otherwise := newEntityFixture(t, func(c *entities.Config) {
		c.Snapshots, c.Log, c.Positions, c.ReadingID = p.stored, p.reads, p.Positions, func(string) string { return "with an upcaster" }
	})
	got, err = otherwise.Read(t.Context(), entities.Query{LegalEntity: p.entity, Type: "meter", ID: "M-1"})
	require.NoError(t, err)
	require.Nil(t, got.Snapshot, "its events are read in another way")

	for _, damaged := range []string{`[]`, `null`, `"x"`, `{"sum":"much"}`, `{"sum":9007199254740993.5}`} {
		_, err = p.stored.Save(t.Context(), p.entity.TenantID, ports.EntitySnapshot{
			Partition: p.entity.Partition, EntityType: "meter", EntityID: "M-1", AsOf: 12, Version: 12, Fold: "1", EventCount: 12,
			EffectiveThrough: event.MustDate("2026-03-01"), State: json.RawMessage(damaged),
		}, 0)
		require.NoError(t, err)
		for _, level := range []entities.Consistency{entities.Strong, entities.Verified, entities.Eventual} {
			s := p.read(t, with(level))
			require.EqualValues(t, 24, state(t, s).Sum, damaged)
		}
		require.NotNil(t, p.read(t).Snapshot, "a sound one took its place")
	}
	require.Contains(t, p.log.b.String(), "snapshot.damaged")
	require.NotContains(t, p.log.b.String(), "much")
}

func TestRead_ForgedSnapshot(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(*ports.EntitySnapshot){
		"state":             func(s *ports.EntitySnapshot) { s.State = json.RawMessage(`{"sum":1000000}`) },
		"entity":            func(s *ports.EntitySnapshot) { s.EntityID, s.State = "M-1", json.RawMessage(`{}`) },
		"as of":             func(s *ports.EntitySnapshot) { s.AsOf++ },
		"as of, in future":  func(s *ports.EntitySnapshot) { s.AsOf = 1 << 60 },
		"version":           func(s *ports.EntitySnapshot) { s.Version++ },
		"event count":       func(s *ports.EntitySnapshot) { s.EventCount++ },
		"effective through": func(s *ports.EntitySnapshot) { s.EffectiveThrough-- },
		"redactions":        func(s *ports.EntitySnapshot) { s.Redactions++ },
		"created at":        func(s *ports.EntitySnapshot) { s.CreatedAt = s.CreatedAt.Add(time.Hour) },
		"mac":               func(s *ports.EntitySnapshot) { s.MAC = make([]byte, 32) },
		"no mac":            func(s *ports.EntitySnapshot) { s.MAC = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, level := range []entities.Consistency{entities.Strong, entities.Verified, entities.Eventual} {
				p := newEntityFixture(t)
				p.write(t, "meter", `{"n":2}`, days("2026-03-01", 12)...)
				p.read(t)
				p.write(t, "meter", `{"n":2}`, "2026-03-13")
				stored, _, err := p.store.Snapshots.EntitySnapshots(t.Context(), p.entity.Partition, "meter", "M-1")
				require.NoError(t, err)
				require.Len(t, stored, 1)
				require.NoError(t, p.store.Snapshots.RemoveEntitySnapshot(t.Context(), stored[0]))
				forged := stored[0]
				forge(&forged)
				kept, err := p.store.Snapshots.SaveEntitySnapshot(t.Context(), forged, 0)
				require.NoError(t, err)
				require.True(t, kept)

				s := p.read(t, with(level))
				require.EqualValues(t, 26, state(t, s).Sum)
				require.Equal(t, 13, s.EventCount)
				require.Nil(t, s.Snapshot)
				require.Contains(t, p.log.b.String(), "snapshot.forged")
				healed := p.read(t, with(level))
				require.EqualValues(t, 26, state(t, healed).Sum)
				require.NotNil(t, healed.Snapshot, "the read stored a genuine one")
				require.EqualValues(t, 13, healed.Snapshot.AsOf)
			}
		})
	}
}

// TestRead_StaleEditedToValid checks that the mark of a stale snapshot, which no MAC covers,
// only saves reads from finding the back-dated event again.
func TestRead_StaleEditedToValid(t *testing.T) {
	t.Parallel()
	for level, asOf := range map[entities.Consistency]event.Sequence{entities.Strong: 13, entities.Verified: 13, entities.Eventual: 12} {
		p := newEntityFixture(t)
		p.write(t, "meter", `{"n":2}`, days("2026-03-01", 12)...)
		p.read(t)
		p.write(t, "meter", `{"n":2}`, "2026-01-01") // no read has noticed it and marked the snapshot
		s := p.read(t, with(level))
		require.Equal(t, asOf, s.AsOf)
		require.EqualValues(t, 2*asOf, state(t, s).Sum, "the state as of the sequence that is answered")
	}
}

func TestRead_WithoutKeyService(t *testing.T) {
	t.Parallel()
	p := newEntityFixture(t)
	p.write(t, "meter", `{"n":2}`, days("2026-03-01", 12)...)
	p.read(t)
	p.secrets.Err = fault.New(fault.Unavailable, "kms.unavailable", "down")
	for _, level := range []entities.Consistency{entities.Strong, entities.Verified, entities.Eventual} {
		s := p.read(t, with(level))
		require.Nil(t, s.Snapshot)
		require.EqualValues(t, 24, state(t, s).Sum)
	}
	require.Contains(t, p.log.b.String(), "kms.unavailable")
	p.secrets.Err = nil
	require.NotNil(t, p.read(t).Snapshot, "it was not removed")
}

func TestRead_FoldTimeout(t *testing.T) {
	t.Parallel()
	p := newEntityFixture(t, func(c *entities.Config) { c.SnapshotEvery = 100 })
	for range 13 {
		p.write(t, "meter", `{"n":1}`, days("2026-03-01", 100)...)
	}
	p.elapsed = time.Hour
	var asOf []event.Sequence
	for {
		s := p.read(t)
		require.EqualValues(t, s.EventCount, state(t, s).Sum)
		require.EqualValues(t, 1300, s.Head)
		asOf = append(asOf, s.AsOf)
		if s.Reached == entities.Strong {
			break
		}
		require.Equal(t, entities.Verified, s.Reached)
		require.Equal(t, s.AsOf, s.Version)
	}
	require.Equal(t, []event.Sequence{500, 1000, 1300}, asOf, "each read comes further than the one before")
	require.Contains(t, p.log.b.String(), "took too long")
}

// TestRead_EqualsSimpleFold writes random events, back-dated ones among them, and
// reads at random levels, days and moments, also with snapshots that come and go.
func TestRead_EqualsSimpleFold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := newEntityFixture(rt, func(c *entities.Config) { c.SnapshotEvery = rapid.IntRange(1, 6).Draw(rt, "every") })
		var effective []event.Date
		start := event.MustDate("2026-01-01")
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			if len(effective) == 0 || rapid.Bool().Draw(rt, "write") {
				for range rapid.IntRange(1, 8).Draw(rt, "events") {
					d := start.AddDays(len(effective) - rapid.SampledFrom([]int{0, 0, 0, 1, 10}).Draw(rt, "back"))
					effective = append(effective, d)
					p.write(rt, "meter", `{"n":1}`, d.String())
				}
				continue
			}
			q := entities.Query{LegalEntity: p.entity, Type: "meter", ID: "M-1", Consistency: rapid.SampledFrom([]entities.Consistency{entities.Strong, entities.Verified, entities.Eventual}).Draw(rt, "level")}
			known := len(effective)
			if rapid.Bool().Draw(rt, "back in knowledge") {
				known = rapid.IntRange(1, known).Draw(rt, "known")
				q.KnownAt = fmt.Sprintf("seq:%d", known)
			}
			if rapid.Bool().Draw(rt, "back in time") {
				d := start.AddDays(rapid.IntRange(-5, len(effective)).Draw(rt, "as of"))
				q.AsOf = &d
			}
			got, err := p.Read(context.Background(), q)
			want := func(until event.Sequence) (order []uint64) {
				for i, d := range effective[:min(known, int(until))] {
					if q.AsOf == nil || d <= *q.AsOf {
						order = append(order, uint64(i+1))
					}
				}
				return order
			}
			if len(want(event.Sequence(known))) == 0 {
				require.Equal(rt, "entity.not_found", fault.CodeOf(err))
				continue
			}
			require.NoError(rt, err)
			require.EqualValues(rt, len(effective), got.Head)
			if q.Consistency == entities.Strong {
				require.Equal(rt, entities.Strong, got.Reached)
				require.EqualValues(rt, known, got.AsOf)
			}
			order := state(rt, got).Order
			require.Equal(rt, want(got.AsOf), order, "everything up to as_of_sequence")
			require.EqualValues(rt, order[len(order)-1], got.Version)
			require.Equal(rt, len(order), got.EventCount)
		}
	})
}

func TestRead_KnownAtInvalid(t *testing.T) {
	t.Parallel()
	p := newEntityFixture(t)
	p.write(t, "meter", `{"n":1}`, "2026-03-01")
	for knownAt, code := range map[string]string{"seq:2": "report.known_at_in_future", "yesterday": "report.known_at_invalid", "seq:0": "entity.not_found"} {
		_, err := p.Read(t.Context(), entities.Query{LegalEntity: p.entity, Type: "meter", ID: "M-1", KnownAt: knownAt, Consistency: entities.Strong})
		require.Equal(t, code, fault.CodeOf(err), knownAt)
	}
	before := event.MustDate("2026-02-28")
	_, err := p.Read(t.Context(), entities.Query{LegalEntity: p.entity, Type: "meter", ID: "M-1", AsOf: &before, Consistency: entities.Strong})
	require.Equal(t, "entity.not_found", fault.CodeOf(err))
}

// TestNewRefusesMissingLimits checks that a limit which the caller left out is no default.
func TestNewRefusesMissingLimits(t *testing.T) {
	t.Parallel()
	c := newEntityFixture(t).Config
	c.FoldTimeout = 0
	_, err := entities.New(c)
	require.ErrorContains(t, err, "FoldTimeout")
}

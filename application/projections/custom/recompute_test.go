package custom_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// recomputeFixture is a fixture that recomputes rows, with what happens while the log is read.
type recomputeFixture struct {
	*customFixture
	targets  *projections.Targets
	personal []event.Sequence // of events that hold values of a person
	while    func()           // once, when the log is read from its beginning
	le       ports.LegalEntity
	largest  int // bytes of payloads in one answer
}

func newRecomputeFixture(t *testing.T, change func(*custom.RecomputeConfig)) *recomputeFixture {
	t.Helper()
	g := &recomputeFixture{customFixture: newCustomFixture(t)}
	c := custom.RecomputeConfig{Store: g.store.ProjectionRows, Log: g, Records: g, Letters: g.store.ProjectionVersions, RecomputeLimits: recomputeLimits}
	if change != nil {
		change(&c)
	}
	g.service = testkit.Must(custom.New(custom.Config{Compiler: jq.NewWithLimits(untimedLimits()), Rows: g.store.ProjectionRows, Register: g.store.ProjectionVersions, Decisions: g.decisions, Entities: g.store.Directory, Events: g.store.Events, Recompute: c}))
	g.targets = testkit.Must(projections.NewTargets(projections.TargetsConfig{Register: g.store.ProjectionVersions, Checkpoints: g.store.Projections, CustomRows: g.service, MaxEvents: 10_000}))
	g.le = g.entity(t, "acme", "USMF")
	return g
}

// SearchEvents is the log.
func (g *recomputeFixture) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	if q.Key == "" && q.After == 0 && g.while != nil {
		then := g.while
		g.while = nil
		then()
	}
	found, err := g.store.Events.SearchEvents(ctx, q, scan)
	g.largest = max(g.largest, payloadBytes(found.Events))
	return found, err
}

func (g *recomputeFixture) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	events, more, err := g.store.Events.ReadStream(ctx, q)
	g.largest = max(g.largest, payloadBytes(events))
	return events, more, err
}

func (g *recomputeFixture) CountPersonalRecords(context.Context, event.PartitionID, shredding.Subject) ([]ports.PersonalCount, error) {
	return nil, nil
}

func (g *recomputeFixture) PersonalIntents(context.Context, event.PartitionID, shredding.Subject, event.ID, int) ([]event.ID, error) {
	return nil, nil
}

func (g *recomputeFixture) PersonalEvents(ctx context.Context, p event.PartitionID, _ shredding.Subject, after event.Sequence, _ int) (out []event.Recorded, err error) {
	for _, s := range g.personal {
		if s <= after {
			continue
		}
		one, err := g.store.Events.Events(ctx, ports.EventQuery{Partition: p, From: s, To: s, Limit: 1})
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	return out, nil
}

// bill writes an event of a stream that refers to a machine and counts for a vendor.
func (g *recomputeFixture) bill(t require.TestingT, stream, machine, vendor, amount string, text ...string) event.Sequence {
	payload := fmt.Sprintf(`{"data":{"vendor":%q,"amount":%q,"text":%q},"dimensions":{},"entity_refs":[{"entity_type":"machine","entity_id":%q,"role":"for"}]}`, vendor, amount, strings.Join(text, ""), machine)
	result, err := g.store.Appender.Append(context.Background(), ports.AppendRequest{Partition: g.le.Partition, Events: []event.Prepared{{
		Skeleton: event.Skeleton{
			ID: g.ids.NewID(start), Type: posted, SchemaVersion: 1, Stream: event.StreamID{Type: "bill", ID: stream},
			Scope: event.Scope{TenantID: g.le.TenantID, LegalEntity: g.le.Code}, ActorType: event.Human, ActorID: "p-1", ActorName: "clerk",
		}, Payload: []byte(payload), Keys: []string{event.EntityKey("machine", machine)},
	}}})
	require.NoError(t, err)
	return result.Events[0].Sequence
}

// damage writes rows that no event makes.
func (g *recomputeFixture) damage(t require.TestingT, p projection.Projection, rows map[string]string, gone ...string) {
	g.write(t, g.le, "shop.other", `{}`)
	_, _, err := g.store.Projections.Advance(context.Background(), ports.ProjectionAdvance{ProjectionWork: g.work(p)}, rowWriter{g.store.ProjectionRows, rows, gone})
	require.NoError(t, err)
}

func (g *recomputeFixture) work(p projection.Projection) ports.ProjectionWork {
	return ports.ProjectionWork{Projection: p.Name, Version: p.Version, Partition: g.le.Partition}
}

type rowWriter struct {
	store ports.ProjectionRows
	rows  map[string]string
	gone  []string
}

func (s rowWriter) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	var rows []ports.ProjectionRow
	for key, state := range s.rows {
		rows = append(rows, ports.ProjectionRow{Key: key, State: json.RawMessage(state), Sequence: 1})
	}
	return s.store.StoreProjectionRows(ctx, tx, b, rows, s.gone)
}

func (g *recomputeFixture) rebuild(entity event.StreamID, subject shredding.Subject, dry bool) (projections.TargetReport, error) {
	return g.targets.Rebuild(context.Background(), projections.TargetOrder{
		Name: projection.CustomName("acme", "sums"), Partitions: []event.PartitionID{g.le.Partition}, Entity: entity, Subject: subject, DryRun: dry, By: "ada",
	})
}

var machine = event.StreamID{Type: "machine", ID: "M-1"}

// spending has two vendors, whose rows events of several machines contribute to, and a
// third without the machine of the tests.
func (g *recomputeFixture) spending(t *testing.T) (p projection.Projection, fresh map[string]string) {
	t.Helper()
	p = g.create(t, "sums", definition("acme", ".data.vendor", sums, posted))
	g.bill(t, "1", "M-1", "V-1", "1")
	g.bill(t, "2", "M-2", "V-1", "2")
	g.bill(t, "3", "M-1", "V-2", "4")
	g.bill(t, "4", "M-3", "V-3", "8")
	g.advance(t, p, g.le, 2)
	fresh = g.rows(t, "sums", g.le)
	require.Equal(t, map[string]string{"V-1": `{"n":2,"sum":3}`, "V-2": `{"n":1,"sum":4}`, "V-3": `{"n":1,"sum":8}`}, fresh)
	return p, fresh
}

func TestRecompute_Entity(t *testing.T) {
	t.Parallel()
	g := newRecomputeFixture(t, nil)
	p, fresh := g.spending(t)
	none, err := g.rebuild(event.StreamID{Type: "machine", ID: "M-9"}, "", false)
	require.NoError(t, err)
	require.Empty(t, none.Rebuilt)
	right, err := g.rebuild(machine, "", false)
	require.NoError(t, err)
	require.Zero(t, right.Rows())

	bad := map[string]string{"V-1": `{"n":7}`, "V-3": `{"n":8}`}
	g.damage(t, p, bad, "V-2")
	before, err := g.store.Projections.Checkpoints(t.Context(), p.Name, p.Version)
	require.NoError(t, err)
	dry, err := g.rebuild(machine, "", true)
	require.NoError(t, err)
	require.Equal(t, []any{uint64(2), 2, 3}, []any{dry.Rows(), dry.Rebuilt[0].Entities, dry.Rebuilt[0].Events})
	require.Equal(t, bad, g.rows(t, "sums", g.le), "nothing is changed")

	done, err := g.rebuild(machine, "", false)
	require.NoError(t, err)
	require.EqualValues(t, 2, done.Rows())
	want := maps.Clone(fresh)
	want["V-3"] = bad["V-3"]
	require.Equal(t, want, g.rows(t, "sums", g.le), "and what the entity has no part in stays")
	after, err := g.store.Projections.Checkpoints(t.Context(), p.Name, p.Version)
	require.NoError(t, err)
	require.Equal(t, before[0].Generation+1, after[0].Generation, "reports in several pages notice")
	_, err = g.rebuild(event.StreamID{Type: "bill", ID: "4"}, "", false)
	require.NoError(t, err)
	require.Equal(t, fresh, g.rows(t, "sums", g.le), "a stream is an entity too")
}

func TestRecompute_Person(t *testing.T) {
	t.Parallel()
	g := newRecomputeFixture(t, nil)
	p, fresh := g.spending(t)
	g.damage(t, p, map[string]string{"V-1": `1`, "V-2": `2`, "V-3": `3`})
	g.personal = []event.Sequence{2, 4}
	done, err := g.rebuild(event.StreamID{}, "person:ada", false)
	require.NoError(t, err)
	require.EqualValues(t, 2, done.Rows())
	fresh["V-2"] = "2"
	require.Equal(t, fresh, g.rows(t, "sums", g.le))
}

// TestRecompute_DuringProgress has events come, and the rows be replaced,
// while the log is read.
func TestRecompute_DuringProgress(t *testing.T) {
	t.Parallel()
	g := newRecomputeFixture(t, nil)
	p, _ := g.spending(t)
	g.damage(t, p, map[string]string{"V-1": `{"n":7}`})
	g.while = func() {
		g.bill(t, "5", "M-2", "V-1", "16")
		g.bill(t, "6", "M-2", "V-3", "1")
		g.advance(t, p, g.le, 1)
	}
	_, err := g.rebuild(machine, "", false)
	require.NoError(t, err)
	require.Equal(t, `{"n":3,"sum":19}`, g.rows(t, "sums", g.le)["V-1"], "with the events that came in the meantime")
	g.damage(t, p, map[string]string{"V-1": `{"n":7}`})
	g.while = func() {
		_, _, resetter, err := g.service.Prepare(p)
		require.NoError(t, err)
		_, err = g.store.Projections.Reset(context.Background(), ports.ProjectionOperation{ProjectionWork: g.work(p)}, resetter)
		require.NoError(t, err)
		g.advance(t, p, g.le, 100)
	}
	again, err := g.rebuild(machine, "", false)
	require.NoError(t, err)
	require.Zero(t, again.Rows(), "the reset has mended them")
	require.Equal(t, `{"n":3,"sum":19}`, g.rows(t, "sums", g.le)["V-1"])
}

func TestRecompute_SkippedEventIsSkippedAgain(t *testing.T) {
	t.Parallel()
	g := newRecomputeFixture(t, nil)
	p, fresh := g.spending(t)
	g.bill(t, "5", "M-1", "V-1", "no number")
	_, err := g.store.Projections.Isolate(t.Context(), ports.ProjectionFailure{ProjectionWork: g.work(p), At: 4, Code: "transform.failed"}, projection.SkipEvent)
	require.NoError(t, err)
	g.damage(t, p, map[string]string{"V-1": `{"n":7}`})
	done, err := g.rebuild(machine, "", false)
	require.NoError(t, err)
	require.Equal(t, 1, done.Rebuilt[0].PassedOver)
	require.Equal(t, fresh, g.rows(t, "sums", g.le))
}

func TestRecompute_Limits(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*custom.RecomputeConfig){
		func(c *custom.RecomputeConfig) { c.MaxEvents = 1 },
		func(c *custom.RecomputeConfig) { c.MaxRead = 3 },
	} {
		g := newRecomputeFixture(t, change)
		g.spending(t)
		_, err := g.rebuild(machine, "", false)
		require.Equal(t, projection.CodeTargetTooLarge, fault.CodeOf(err))
		require.Contains(t, err.Error(), "rebuild the legal entity instead")
	}
}

// After a redaction of the text that is the key, no event leads to the row under the earlier text.
func TestRecompute_RedactedKey(t *testing.T) {
	t.Parallel()
	g := newRecomputeFixture(t, nil)
	p, _ := g.spending(t)
	g.bill(t, "5", "M-1", "Vendor [REDACTED]", "1")
	g.advance(t, p, g.le, 1)
	_, err := g.rebuild(machine, "", false)
	require.Equal(t, projection.CodeTargetUnsupported, fault.CodeOf(err))
	left, err := g.targets.RecomputeReaders(t.Context(), posted, g.le, machine, 1)
	require.NoError(t, err)
	require.Equal(t, []string{p.Name}, left)
}

// An event of the stream of an entity usually refers to it too, and is one event.
func TestRecompute_CountsEventOfOwnEntityOnce(t *testing.T) {
	t.Parallel()
	g := newRecomputeFixture(t, func(c *custom.RecomputeConfig) { c.MaxEvents = 4 })
	p, _ := g.spending(t) // two of them refer to the machine
	own := func() {
		_, err := g.store.Appender.Append(context.Background(), ports.AppendRequest{Partition: g.le.Partition, Events: []event.Prepared{{
			Skeleton: event.Skeleton{
				ID: g.ids.NewID(start), Type: "machine.moved", SchemaVersion: 1, Stream: machine,
				Scope: event.Scope{TenantID: g.le.TenantID, LegalEntity: g.le.Code}, ActorType: event.Human, ActorID: "p-1", ActorName: "clerk",
			},
			Payload: []byte(`{"data":{},"dimensions":{},"entity_refs":[{"entity_type":"machine","entity_id":"M-1","role":"of"}]}`),
			Keys:    []string{event.EntityKey("machine", "M-1")},
		}}})
		require.NoError(t, err)
		g.advance(t, p, g.le, 100)
	}
	own()
	own()
	_, err := g.rebuild(machine, "", false)
	require.NoError(t, err, "four events")
	own()
	_, err = g.rebuild(machine, "", false)
	require.Equal(t, projection.CodeTargetTooLarge, fault.CodeOf(err), "five")
}

// A version may continue without an event while its log is read: that is looked at again, and
// refuses nothing.
func TestRecompute_EventSkippedDuringRead(t *testing.T) {
	t.Parallel()
	g := newRecomputeFixture(t, nil)
	p, fresh := g.spending(t)
	g.damage(t, p, map[string]string{"V-1": `{"n":7}`})
	g.while = func() {
		var before event.Sequence
		for range 600 { // more than is read while the checkpoint is held
			before = g.write(t, g.le, "shop.other", `{}`)
		}
		g.advance(t, p, g.le, 100)
		g.bill(t, "5", "M-1", "V-1", "no number")
		_, err := g.store.Projections.Isolate(context.Background(), ports.ProjectionFailure{ProjectionWork: g.work(p), At: before, Code: "transform.failed"}, projection.SkipEvent)
		require.NoError(t, err)
	}
	done, err := g.rebuild(machine, "", false)
	require.NoError(t, err)
	require.Equal(t, 1, done.Rebuilt[0].PassedOver)
	require.Equal(t, fresh, g.rows(t, "sums", g.le))
}

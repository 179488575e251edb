package erasure_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// faultInjector counts the points before and after each call of a worker to its ports, and
// injects a fault at one of them: the process dies, the call fails, or its result is lost.
type faultInjector struct {
	mu     sync.Mutex
	points []string
	failAt int  // 1-based; 0: never
	kill   bool // the worker dies at the point; else the call fails

	written map[string]map[string]bool // the contents that the worker exported, by name
}

var errInjected = fault.New(fault.Unavailable, "test.injected", "injected")

func (x *faultInjector) reachPoint(name string) error {
	x.mu.Lock()
	x.points = append(x.points, name)
	fails := len(x.points) == x.failAt
	x.mu.Unlock()
	if !fails {
		return nil
	}
	if x.kill {
		runtime.Goexit() // nothing after it runs but deferred calls, and nothing recovers
	}
	return errInjected
}

func injectAround[T any](x *faultInjector, name string, f func() (T, error)) (T, error) {
	var nothing T
	if err := x.reachPoint("before " + name); err != nil {
		return nothing, err
	}
	out, err := f()
	if err != nil {
		return out, err
	}
	if err := x.reachPoint("after " + name); err != nil {
		return nothing, err
	}
	return out, nil
}

func inject(x *faultInjector, name string, f func() error) error {
	_, err := injectAround(x, name, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// withFaults returns a configuration whose calls go through the faultInjector.
func withFaults(c erasure.Config, x *faultInjector) erasure.Config {
	c.Register = faultyRegister{c.Register, x}
	c.Exports = faultyExports{c.Exports, x}
	c.Opener = faultyServices{x: x, opener: c.Opener}
	c.Chains = faultyServices{x: x, chains: c.Chains}
	c.Announcer = faultyServices{x: x, announcer: c.Announcer}
	c.Notes = faultyNotes{c.Notes, x}
	c.Copies = faultyCopies{c.Copies, x}
	c.Streams = faultyServices{x: x, streams: c.Streams}
	c.Records = faultyRecords{c.Records, x}
	c.LegalEntities = faultyEntities{c.LegalEntities, x}
	c.Journal = faultyJournal{c.Journal, x}
	return c
}

type faultyJournal struct {
	ports.AdministrativeLog
	x *faultInjector
}

func (j faultyJournal) RecordRevision(ctx context.Context, tenantID string, actor event.Actor, r ports.Revision) error {
	return inject(j.x, "record "+r.Type, func() error { return j.AdministrativeLog.RecordRevision(ctx, tenantID, actor, r) })
}

type faultyRegister struct {
	ports.ErasureRegister
	x *faultInjector
}

func (b faultyRegister) MoveErasure(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	return injectAround(b.x, "move to "+string(r.State), func() (ports.ErasureRequest, error) { return b.ErasureRegister.MoveErasure(ctx, r) })
}

func (b faultyRegister) FenceErasure(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	return injectAround(b.x, "fence", func() (ports.ErasureRequest, error) { return b.ErasureRegister.FenceErasure(ctx, r) })
}

func (b faultyRegister) DestroyErasure(ctx context.Context, id event.ID, check func(ctx context.Context) error) (ports.Destruction, ports.ErasureRequest, error) {
	type both struct {
		d ports.Destruction
		r ports.ErasureRequest
	}
	out, err := injectAround(b.x, "destroy", func() (both, error) {
		d, r, err := b.ErasureRegister.DestroyErasure(ctx, id, check)
		return both{d, r}, err
	})
	return out.d, out.r, err
}

func (b faultyRegister) SaveReceipt(ctx context.Context, number uint64, note []byte, exported bool) error {
	return inject(b.x, fmt.Sprintf("save receipt, exported %t", exported), func() error { return b.ErasureRegister.SaveReceipt(ctx, number, note, exported) })
}

func (b faultyRegister) Receipts(ctx context.Context, from uint64, limit int) ([]ports.ErasureReceipt, error) {
	return injectAround(b.x, "receipts", func() ([]ports.ErasureReceipt, error) { return b.ErasureRegister.Receipts(ctx, from, limit) })
}

func (b faultyRegister) NodesBehind(ctx context.Context, generation int64, since time.Time) (int, error) {
	return injectAround(b.x, "nodes", func() (int, error) { return b.ErasureRegister.NodesBehind(ctx, generation, since) })
}

func (b faultyRegister) Holds(ctx context.Context, tenantID string, s shredding.Subject, on event.Date) ([]ports.LegalHold, error) {
	return injectAround(b.x, "holds", func() ([]ports.LegalHold, error) { return b.ErasureRegister.Holds(ctx, tenantID, s, on) })
}

type faultyExports struct {
	ports.ExportStore
	x *faultInjector
}

func (b faultyExports) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	b.x.mu.Lock()
	if b.x.written[name] == nil {
		b.x.written[name] = map[string]bool{}
	}
	b.x.written[name][string(content)] = true
	b.x.mu.Unlock()
	return inject(b.x, "put "+name, func() error { return b.ExportStore.PutIfAbsent(ctx, name, content) })
}

func (b faultyExports) Get(ctx context.Context, name string) ([]byte, error) {
	return injectAround(b.x, "get "+name, func() ([]byte, error) { return b.ExportStore.Get(ctx, name) })
}

type faultyNotes struct {
	ports.NoteSigner
	x *faultInjector
}

func (b faultyNotes) SignNote(ctx context.Context, text []byte) ([]byte, error) {
	return injectAround(b.x, "sign", func() ([]byte, error) { return b.NoteSigner.SignNote(ctx, text) })
}

type faultyRecords struct {
	ports.PersonalRecords
	x *faultInjector
}

func (b faultyRecords) PersonalEvents(ctx context.Context, p event.PartitionID, s shredding.Subject, after event.Sequence, limit int) ([]event.Recorded, error) {
	return injectAround(b.x, "events", func() ([]event.Recorded, error) {
		return b.PersonalRecords.PersonalEvents(ctx, p, s, after, limit)
	})
}

type faultyEntities struct {
	entities
	x *faultInjector
}

type entities = ports.LegalEntities

func (b faultyEntities) LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	return injectAround(b.x, "legal entities", func() ([]ports.LegalEntity, error) { return b.entities.LegalEntities(ctx, tenantID) })
}

func (b faultyEntities) Partitions(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	return injectAround(b.x, "partitions", func() ([]ports.LegalEntity, error) { return b.entities.Partitions(ctx, tenantID) })
}

type faultyServices struct {
	x         *faultInjector
	opener    module.Opener
	chains    erasure.Chains
	announcer erasure.Announcer
	streams   erasure.Streams
}

func (b faultyServices) Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error {
	return inject(b.x, "open", func() error { return b.opener.Open(ctx, documents, r) })
}

func (b faultyServices) VerifyChain(ctx context.Context, le ports.LegalEntity) (erasure.ChainVerdict, error) {
	return injectAround(b.x, "verify chain", func() (erasure.ChainVerdict, error) { return b.chains.VerifyChain(ctx, le) })
}

func (b faultyServices) Announce(ctx context.Context, a erasure.Announcement) error {
	return inject(b.x, "announce in "+a.LegalEntity.Code, func() error { return b.announcer.Announce(ctx, a) })
}

type faultyCopies struct {
	erasure.Copies
	x *faultInjector
}

func (b faultyCopies) Forget(ctx context.Context, name string, p event.PartitionID, s shredding.Subject, passed event.Sequence) error {
	return inject(b.x, "recompute rows", func() error { return b.Copies.Forget(ctx, name, p, s, passed) })
}

func (b faultyCopies) CountCopies(ctx context.Context, name string, p event.PartitionID, s shredding.Subject) (int64, error) {
	return injectAround(b.x, "count copies", func() (int64, error) { return b.Copies.CountCopies(ctx, name, p, s) })
}

func (b faultyServices) EventsOfStream(ctx context.Context, p event.PartitionID, s event.StreamID, from event.Version, limit int) ([]event.Recorded, error) {
	return injectAround(b.x, "stream", func() ([]event.Recorded, error) { return b.streams.EventsOfStream(ctx, p, s, from, limit) })
}

// runWithFault runs a worker with a fault at a point and another worker that finishes, and
// returns the points that the first one reached.
func runWithFault(t *testing.T, failAt int, kill bool) []string {
	t.Helper()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 2)
	b.appendEvents(t, b.us, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	x := &faultInjector{kill: kill, written: map[string]map[string]bool{}}
	worker := testkit.Must(erasure.NewWorker(withFaults(b.config, x)))
	worker.FollowUp(t.Context()) // whose failures are not those of a request
	x.points, x.failAt = nil, failAt
	var running sync.WaitGroup
	running.Go(func() { worker.RunOnce(t.Context()) })
	running.Wait()
	point := "no fault"
	if failAt > 0 {
		require.GreaterOrEqual(t, len(x.points), failAt)
		point = x.points[failAt-1]
	}
	if kill {
		require.Empty(t, b.observer.failures, point)
	} else if failAt > 0 {
		require.Len(t, b.observer.failures, 1, point)
	}
	b.clock.Advance(5 * time.Minute) // signed documents must not depend on the time of the attempt
	points := x.points
	x.failAt = 0
	testkit.Must(erasure.NewWorker(withFaults(b.config, x))).RunOnce(t.Context())

	s = b.getStatus(t, s.ID)
	require.Equal(t, "completed", s.State, "%s: %+v", point, s.Steps)
	if kill {
		require.Empty(t, b.observer.failures, point)
	}
	require.Equal(t, []string{"certificates/" + s.ID.String() + ".json", erasure.ReceiptName(1)}, b.exports.names(), point)
	receipts := b.listReceipts(t)
	require.Len(t, receipts, 1, point)
	require.True(t, receipts[0].Exported, point)
	require.Equal(t, b.exports.documents[erasure.ReceiptName(1)], receipts[0].Note, point)
	for name, written := range x.written {
		require.Len(t, written, 1, "%s: every attempt at %s wrote the same bytes", point, name)
	}
	require.Len(t, b.announcements(t, b.de), 1, point)
	require.Len(t, b.announcements(t, b.us), 1, point)
	c, _ := b.readCertificate(t, s.ID)
	require.Equal(t, erasure.CertificateCounts{Events: 3, Redacted: 6, Keys: 9, Versions: 2}, c.Counts, point)
	b.requireAppendRefused(t, b.de)
	require.Len(t, x.written, 2, point)
	return points
}

func TestWorker_CrashAtEveryStep(t *testing.T) {
	t.Parallel()
	points := runWithFault(t, 0, true)
	require.Greater(t, len(points), 60)
	for failAt := 1; failAt <= len(points); failAt++ {
		runWithFault(t, failAt, true)
	}
}

func TestWorker_FailureAtEveryStep(t *testing.T) {
	t.Parallel()
	points := runWithFault(t, 0, false)
	require.Greater(t, len(points), 60)
	for failAt := 1; failAt <= len(points); failAt++ {
		runWithFault(t, failAt, false)
	}
}

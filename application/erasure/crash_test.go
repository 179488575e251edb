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

// breaker counts the moments before and after each call of a worker to the outside,
// and breaks at one of them: the process dies, the call fails, or its answer is lost.
type breaker struct {
	mu    sync.Mutex
	seen  []string
	at    int // 1-based; 0: never
	death bool

	written map[string]map[string]bool // what was to be exported, by name
}

var errBroken = fault.New(fault.Unavailable, "test.broken", "broken on purpose")

func (x *breaker) point(name string) error {
	x.mu.Lock()
	x.seen = append(x.seen, name)
	broken := len(x.seen) == x.at
	x.mu.Unlock()
	if !broken {
		return nil
	}
	if x.death {
		runtime.Goexit() // nothing after it runs but deferred calls, and nothing recovers
	}
	return errBroken
}

func around[T any](x *breaker, name string, f func() (T, error)) (T, error) {
	var nothing T
	if err := x.point("before " + name); err != nil {
		return nothing, err
	}
	out, err := f()
	if err != nil {
		return out, err
	}
	if err := x.point("after " + name); err != nil {
		return nothing, err
	}
	return out, nil
}

func run(x *breaker, name string, f func() error) error {
	_, err := around(x, name, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// fragile is a configuration whose every call goes through the breaker.
func fragile(c erasure.Config, x *breaker) erasure.Config {
	c.Register = brokenRegister{c.Register, x}
	c.Exports = brokenExports{c.Exports, x}
	c.Opener = brokenParts{x: x, opener: c.Opener}
	c.Chains = brokenParts{x: x, chains: c.Chains}
	c.Announcer = brokenParts{x: x, announcer: c.Announcer}
	c.Notes = brokenNotes{c.Notes, x}
	c.Copies = brokenCopies{c.Copies, x}
	c.Streams = brokenParts{x: x, streams: c.Streams}
	c.Records = brokenRecords{c.Records, x}
	c.LegalEntities = brokenEntities{c.LegalEntities, x}
	return c
}

type brokenRegister struct {
	ports.ErasureRegister
	x *breaker
}

func (b brokenRegister) MoveErasure(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	return around(b.x, "move to "+string(r.State), func() (ports.ErasureRequest, error) { return b.ErasureRegister.MoveErasure(ctx, r) })
}

func (b brokenRegister) FenceErasure(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	return around(b.x, "fence", func() (ports.ErasureRequest, error) { return b.ErasureRegister.FenceErasure(ctx, r) })
}

func (b brokenRegister) DestroyErasure(ctx context.Context, id event.ID) (ports.Destruction, ports.ErasureRequest, error) {
	type both struct {
		d ports.Destruction
		r ports.ErasureRequest
	}
	out, err := around(b.x, "destroy", func() (both, error) {
		d, r, err := b.ErasureRegister.DestroyErasure(ctx, id)
		return both{d, r}, err
	})
	return out.d, out.r, err
}

func (b brokenRegister) SaveReceipt(ctx context.Context, number uint64, note []byte, exported bool) error {
	return run(b.x, fmt.Sprintf("save receipt, exported %t", exported), func() error { return b.ErasureRegister.SaveReceipt(ctx, number, note, exported) })
}

func (b brokenRegister) Receipts(ctx context.Context, from uint64, limit int) ([]ports.ErasureReceipt, error) {
	return around(b.x, "receipts", func() ([]ports.ErasureReceipt, error) { return b.ErasureRegister.Receipts(ctx, from, limit) })
}

func (b brokenRegister) NodesBehind(ctx context.Context, generation int64, since time.Time) (int, error) {
	return around(b.x, "nodes", func() (int, error) { return b.ErasureRegister.NodesBehind(ctx, generation, since) })
}

func (b brokenRegister) Holds(ctx context.Context, tenantID string, s shredding.Subject, on event.Date) ([]ports.LegalHold, error) {
	return around(b.x, "holds", func() ([]ports.LegalHold, error) { return b.ErasureRegister.Holds(ctx, tenantID, s, on) })
}

type brokenExports struct {
	ports.ExportStore
	x *breaker
}

func (b brokenExports) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	b.x.mu.Lock()
	if b.x.written[name] == nil {
		b.x.written[name] = map[string]bool{}
	}
	b.x.written[name][string(content)] = true
	b.x.mu.Unlock()
	return run(b.x, "put "+name, func() error { return b.ExportStore.PutIfAbsent(ctx, name, content) })
}

func (b brokenExports) Get(ctx context.Context, name string) ([]byte, error) {
	return around(b.x, "get "+name, func() ([]byte, error) { return b.ExportStore.Get(ctx, name) })
}

type brokenNotes struct {
	ports.NoteSigner
	x *breaker
}

func (b brokenNotes) SignNote(ctx context.Context, text []byte) ([]byte, error) {
	return around(b.x, "sign", func() ([]byte, error) { return b.NoteSigner.SignNote(ctx, text) })
}

type brokenRecords struct {
	ports.PersonalRecords
	x *breaker
}

func (b brokenRecords) PersonalEvents(ctx context.Context, p event.PartitionID, s shredding.Subject, after event.Sequence, limit int) ([]event.Recorded, error) {
	return around(b.x, "events", func() ([]event.Recorded, error) {
		return b.PersonalRecords.PersonalEvents(ctx, p, s, after, limit)
	})
}

type brokenEntities struct {
	entities
	x *breaker
}

type entities = ports.LegalEntities

func (b brokenEntities) LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	return around(b.x, "legal entities", func() ([]ports.LegalEntity, error) { return b.entities.LegalEntities(ctx, tenantID) })
}

type brokenParts struct {
	x         *breaker
	opener    module.Opener
	chains    erasure.Chains
	announcer erasure.Announcer
	streams   erasure.Streams
}

func (b brokenParts) Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error {
	return run(b.x, "open", func() error { return b.opener.Open(ctx, documents, r) })
}

func (b brokenParts) VerifyChain(ctx context.Context, le ports.LegalEntity) (erasure.ChainVerdict, error) {
	return around(b.x, "verify chain", func() (erasure.ChainVerdict, error) { return b.chains.VerifyChain(ctx, le) })
}

func (b brokenParts) Announce(ctx context.Context, a erasure.Announcement) error {
	return run(b.x, "announce in "+a.LegalEntity.Code, func() error { return b.announcer.Announce(ctx, a) })
}

type brokenCopies struct {
	erasure.Copies
	x *breaker
}

func (b brokenCopies) Forget(ctx context.Context, name string, p event.PartitionID, s shredding.Subject, passed event.Sequence) error {
	return run(b.x, "fold anew", func() error { return b.Copies.Forget(ctx, name, p, s, passed) })
}

func (b brokenCopies) CountCopies(ctx context.Context, name string, p event.PartitionID, s shredding.Subject) (int64, error) {
	return around(b.x, "count copies", func() (int64, error) { return b.Copies.CountCopies(ctx, name, p, s) })
}

func (b brokenParts) EventsOfStream(ctx context.Context, p event.PartitionID, s event.StreamID, from event.Version, limit int) ([]event.Recorded, error) {
	return around(b.x, "stream", func() ([]event.Recorded, error) { return b.streams.EventsOfStream(ctx, p, s, from, limit) })
}

// brokenAt lets a first worker break at a moment and others finish, and returns the
// moments there were.
func brokenAt(t *testing.T, at int, death bool) []string {
	t.Helper()
	b := setup(t)
	b.hire(t, b.de, contacted, "E-1", 2)
	b.hire(t, b.us, contacted, "E-1", 1)
	s := b.approved(t)
	x := &breaker{at: at, death: death, written: map[string]map[string]bool{}}
	var worked sync.WaitGroup
	worked.Go(func() { testkit.Must(erasure.NewWorker(fragile(b.config, x))).RunOnce(t.Context()) })
	worked.Wait()
	moment := "nowhere"
	if at > 0 {
		require.GreaterOrEqual(t, len(x.seen), at)
		moment = x.seen[at-1]
	}
	if death {
		require.Empty(t, b.observer.failures, moment)
	} else if at > 0 {
		require.Len(t, b.observer.failures, 1, moment)
	}
	b.clock.Advance(5 * time.Minute) // what is signed must not depend on when
	moments := x.seen
	x.at = 0
	testkit.Must(erasure.NewWorker(fragile(b.config, x))).RunOnce(t.Context())

	s = b.get(t, s.ID)
	require.Equal(t, "completed", s.State, "%s: %+v", moment, s.Steps)
	if death {
		require.Empty(t, b.observer.failures, moment)
	}
	require.Equal(t, []string{"certificates/" + s.ID.String() + ".json", erasure.ReceiptName(1)}, b.exports.names(), moment)
	receipts := b.receipts(t)
	require.Len(t, receipts, 1, moment)
	require.True(t, receipts[0].Exported, moment)
	require.Equal(t, b.exports.documents[erasure.ReceiptName(1)], receipts[0].Note, moment)
	for name, written := range x.written {
		require.Len(t, written, 1, "%s: all attempts at %s wrote the same bytes", moment, name)
	}
	require.Len(t, b.announcements(t, b.de), 1, moment)
	require.Len(t, b.announcements(t, b.us), 1, moment)
	c, _ := b.certificate(t, s.ID)
	require.Equal(t, erasure.CertificateCounts{Events: 3, Redacted: 6, Keys: 6, Versions: 2}, c.Counts, moment)
	b.refusesAppends(t, b.de)
	require.Len(t, x.written, 2, moment)
	return moments
}

func TestWorker_CrashAtEveryStep(t *testing.T) {
	t.Parallel()
	moments := brokenAt(t, 0, true)
	require.Greater(t, len(moments), 60)
	t.Logf("%d moments", len(moments))
	for at := 1; at <= len(moments); at++ {
		brokenAt(t, at, true)
	}
}

func TestWorker_FailureAtEveryStep(t *testing.T) {
	t.Parallel()
	for at := 1; at <= len(brokenAt(t, 0, false)); at++ {
		brokenAt(t, at, false)
	}
}

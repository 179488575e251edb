package erasure

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const (
	gateRetryAfter = time.Minute
	gateTimeout    = 15 * time.Second
	staleAfter     = 3 // intervals without a check until a verdict expires
)

// GateConfig is what a Gate needs.
type GateConfig struct {
	Exports  ports.ExportStore
	Receipts ports.ErasureReceipts
	Clock    ports.Clock
	Interval time.Duration // how often to compare; positive
	Logger   *slog.Logger
	Closed   func(closed bool) // called with every verdict; may be nil
}

// Gate compares the receipts in the export store with those in the register. A database
// that was restored from a backup, or a standby that lost the last commits, may lack
// erasures. The Gate then closes: the vault neither seals nor opens personal data, keys in
// memory included, and no erasure is fenced or destroyed and no KEK rotated, until an operator
// replays the receipts (Replay). Requests without personal data continue.
//
// The Gate also closes when it cannot read the export store or the register, which is in the
// key store, because erasures may be missing unnoticed. Such a Gate opens by itself with the
// next check that succeeds. Each check is at most an Interval after the one before. Every cause
// has the code pii.receipts_behind; the detail names the cause and the next step.
//
// The vault asks LastVerdict, which reads nothing, at every use of a key. Fences, destructions
// and rotations call Check, which compares.
type Gate struct {
	config GateConfig

	mu       sync.Mutex
	verdict  error
	at       time.Time
	exported uint64 // the newest receipt known to be exported; receipts never vanish
}

// NewGate makes a Gate, which is closed until the first check. It refuses an Interval that is
// not positive.
func NewGate(c GateConfig) (*Gate, error) {
	if err := fault.RequirePositive("erasure.GateConfig", struct{ Interval time.Duration }{c.Interval}); err != nil {
		return nil, err
	}
	if c.Closed == nil {
		c.Closed = func(bool) {}
	}
	return &Gate{config: c}, nil
}

// Run checks at once and then in each interval, until ctx ends.
func (g *Gate) Run(ctx context.Context) {
	tick := time.NewTicker(g.config.Interval)
	defer tick.Stop()
	for {
		_ = g.Check(ctx) // Check stores and logs the verdict
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// LastVerdict returns the verdict of the last check: nil, or pii.receipts_behind (Unavailable),
// also before the first check and when the last one is more than three intervals old.
func (g *Gate) LastVerdict() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at.IsZero() || g.config.Clock.Now().Sub(g.at) > staleAfter*g.config.Interval {
		return receiptsBehind("the receipts of erasures were not compared yet, so this database may lack erasures; wait until they are compared")
	}
	return g.verdict
}

// Check compares the receipts, stores the verdict and returns it.
func (g *Gate) Check(ctx context.Context) error {
	comparing, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	verdict := g.compare(comparing)
	if ctx.Err() != nil {
		return verdict // the process ends, so the verdict says nothing about receipts
	}
	g.mu.Lock()
	before, first := g.verdict, g.at.IsZero()
	g.verdict, g.at = verdict, g.config.Clock.Now()
	g.mu.Unlock()
	g.config.Closed(verdict != nil)
	switch {
	case verdict != nil && (before == nil || first):
		f, _ := fault.As(verdict)
		g.config.Logger.ErrorContext(ctx, "personal data is withheld", "code", f.Code, "detail", f.Detail, "cause", fault.CodeOf(f.Unwrap()))
	case verdict == nil && before != nil:
		g.config.Logger.InfoContext(ctx, "the receipts match the register; personal data is served again")
	}
	return verdict
}

func receiptsBehind(detail string) *fault.Error {
	return fault.New(fault.Unavailable, "pii.receipts_behind", detail).WithRetryAfter(gateRetryAfter)
}

// compare requires that the register has the newest receipt of the export store, and that the
// export store has the newest receipt that the register has as exported. It reads the export
// store first, because an erasure that runs at the same time stores its receipt in the
// register first.
func (g *Gate) compare(ctx context.Context) error {
	const unreadable = "the receipts of erasures outside the database cannot be read; make the export store available again"
	names, err := g.config.Exports.List(ctx, receiptFolder)
	if err != nil {
		return receiptsBehind(unreadable).WithCause(err)
	}
	newest := uint64(0)
	for _, name := range names {
		newest = max(newest, receiptNumber(name))
	}
	if err := g.requireNewestExported(ctx, newest); err != nil || newest == 0 {
		return err
	}
	exported, err := g.config.Exports.Get(ctx, ReceiptName(newest))
	if err != nil {
		return receiptsBehind(unreadable).WithCause(err)
	}
	registered, err := g.config.Receipts.Receipts(ctx, newest, 1)
	if err != nil {
		return registerUnavailable(err)
	}
	restored := receiptsBehind("this database was restored from before an erasure; run `backbone erasure replay`")
	if len(registered) == 0 || registered[0].Number != newest {
		return restored
	}
	// Each receipt holds the hash of the one before: if the last ones are equal, all are.
	if note := registered[0].Note; len(note) > 0 {
		if !bytes.Equal(note, exported) {
			return restored
		}
		return nil
	}
	receipt, err := parseUnverified(exported)
	if err != nil || receipt.RequestID != registered[0].RequestID {
		return restored.WithCause(err)
	}
	return nil
}

// requireNewestExported requires that the export store has the register's newest exported
// receipt. A store without it is not the one that receipts were exported to, such as the
// empty mount point of a share, and cannot prove that the register is complete.
func (g *Gate) requireNewestExported(ctx context.Context, newest uint64) error {
	exported, err := g.newestExported(ctx)
	if err != nil {
		return registerUnavailable(err)
	}
	if exported <= newest {
		return nil
	}
	// It may have been exported after the names were listed.
	if _, err := g.config.Exports.Get(ctx, ReceiptName(exported)); err != nil {
		return receiptsBehind("the export store lacks receipts that were exported to it; mount the right one, or export them again with `backbone erasure replay`").WithCause(err)
	}
	return nil
}

func registerUnavailable(err error) error {
	return receiptsBehind("the register of erasures cannot be read; make the key store available again").WithCause(err)
}

// newestExported returns the number of the newest receipt that the register has as exported.
func (g *Gate) newestExported(ctx context.Context) (uint64, error) {
	g.mu.Lock()
	newest := g.exported
	g.mu.Unlock()
	err := ports.EachReceipt(ctx, g.config.Receipts, newest+1, func(r ports.ErasureReceipt) error {
		if r.Exported {
			newest = max(newest, r.Number)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.exported = max(g.exported, newest)
	return newest, nil
}

// parseUnverified reads a note without checking its signature.
func parseUnverified(note []byte) (Receipt, error) {
	text, _, _ := bytes.Cut(note, []byte("\n\n"))
	return ParseReceipt(append(bytes.Clone(text), '\n'))
}

// ReplayConfig is what Replay needs.
type ReplayConfig struct {
	Exports      ports.ExportStore
	Register     ports.ErasureRegister
	Notes        ports.NoteOpener
	VerifierKeys []string                         // of all keys that ever signed receipts
	Progress     func(done, total int, r Receipt) // may be nil
}

// reexport writes again the receipts that the register has as exported and the export store
// lacks. A receipt that was never exported is left to the worker.
func reexport(ctx context.Context, c ReplayConfig) error {
	return ports.EachReceipt(ctx, c.Register, 1, func(r ports.ErasureReceipt) error {
		if len(r.Note) == 0 || !r.Exported {
			return nil
		}
		// If the store has other bytes under the name, Replay finds them when it checks the chain.
		if err := c.Exports.PutIfAbsent(ctx, ReceiptName(r.Number), r.Note); err != nil && fault.KindOf(err) != fault.Conflict {
			return err
		}
		return nil
	})
}

// Replay repeats every erasure that has a receipt in the export store, in the order of the
// receipts: it fences the subjects, so that nothing is sealed for them, and destroys the keys
// with the receipt's fingerprints (ports.ErasureRegister.ReplayErasure). First it writes the
// receipts that the register has as exported and the export store lacks. It may be repeated
// and interrupted. It returns how many receipts it replayed.
//
//	erasure.receipt_invalid  Invalid: a receipt is missing, not signed with one of the
//	                         keys, or not the successor of the one before. The receipts
//	                         before it stay replayed, none after it was; restore it and
//	                         call Replay again
func Replay(ctx context.Context, c ReplayConfig) (int, error) {
	if err := reexport(ctx, c); err != nil {
		return 0, err
	}
	names, err := c.Exports.List(ctx, receiptFolder)
	if err != nil {
		return 0, err
	}
	var previous ports.ErasureReceipt
	done := 0
	for _, name := range names {
		number := receiptNumber(name)
		if number == 0 {
			continue
		}
		note, err := c.Exports.Get(ctx, name)
		if err != nil {
			return done, err
		}
		text, err := c.Notes.OpenNote(note, c.VerifierKeys...)
		if err != nil {
			return done, invalidReceipt(number, err)
		}
		r, err := ParseReceipt(text)
		if err != nil {
			return done, invalidReceipt(number, err)
		}
		follows := number == 1 && r.Previous == [32]byte{} || number > 1 && number == previous.Number+1 && r.Previous == noteHash(previous.Note)
		if r.Number != number || !follows {
			return done, invalidReceipt(number, nil)
		}
		receipt := ports.ErasureReceipt{Number: number, RequestID: r.RequestID, TenantID: r.TenantID, Note: note, Exported: true}
		if err := c.Register.ReplayErasure(ctx, receipt, r.Keys); err != nil {
			return done, err
		}
		previous, done = receipt, done+1
		if c.Progress != nil {
			c.Progress(done, len(names), r)
		}
	}
	return done, nil
}

func invalidReceipt(number uint64, err error) error {
	return fault.New(fault.Invalid, "erasure.receipt_invalid",
		"receipt %d is not signed with a known key, or does not follow the one before it; restore the document from another copy, or name the older verifier key too", number).WithCause(err)
}

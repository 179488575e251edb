package erasure

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/blindindex"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
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
	Keys     ports.SubjectKeys
	DataKeys ports.DataKeys // nil: keys are known by their stored fingerprints only
	Clock    ports.Clock
	Interval time.Duration // how often to compare; positive
	Logger   *slog.Logger
	Closed   func(closed bool) // called with every verdict; may be nil
}

// Gate compares the receipts in the export store with those in the register, and the keys that
// they name with the key store. A database that was restored from a backup, or a standby that
// lost the last commits, may lack erasures, and a superuser of the database may put destroyed
// keys back. The Gate then closes: the vault neither seals nor opens personal data, keys in
// memory included, and no erasure is fenced or destroyed and no KEK rotated, until an operator
// replays the receipts (Replay). Requests without personal data continue.
//
// The Gate also closes when it cannot read the export store, the register or the key store,
// because erasures may be missing unnoticed. Such a Gate opens by itself with the next check
// that succeeds. Each check is at most an Interval after the one before. Every cause has the
// code pii.receipts_behind; the detail names the cause and the next step.
//
// The vault asks LastVerdict, which reads nothing, at every use of a key, and RequireLive for
// each key that it unwraps. Fences, destructions and rotations call Check, which compares.
type Gate struct {
	config GateConfig

	mu      sync.Mutex
	verdict error
	at      time.Time

	checking  ports.Lock // held by the check that compares
	exported  uint64     // the newest receipt seen in the export store; receipts never vanish
	destroyed destroyedKeys
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
	return &Gate{config: c, checking: ports.NewLock(), destroyed: destroyedKeys{fingerprints: map[shredding.Fingerprint]struct{}{}}}, nil
}

// Run checks at once and then in each interval, until ctx ends.
func (g *Gate) Run(ctx context.Context) {
	tick := time.NewTicker(g.config.Interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		_ = g.Check(ctx) // Check stores and logs the verdict
		select {
		case <-ctx.Done():
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

// RequireLive returns pii.receipts_behind for the fingerprint of a key that a receipt names as
// destroyed. The caller computes the fingerprint from the key itself, since the stored one may
// be forged. The Gate knows the receipts of the last check and of the last Learn.
func (g *Gate) RequireLive(f shredding.Fingerprint) error {
	if !g.destroyed.contains(f) {
		return nil
	}
	err := keyIsBack()
	g.config.Logger.Error("a destroyed key was in the key store and was not used", "code", err.Code, "fingerprint", hex.EncodeToString(f[:]))
	return err
}

// Learn reads the fingerprints of the keys that were destroyed since the last call, before their
// receipts are exported. The vault calls it before it reports that it has evicted these keys, and
// an erasure waits for these reports: once it is completed, no node uses a key that comes back.
func (g *Gate) Learn(ctx context.Context) error { return g.destroyed.learn(ctx, g.config.Receipts) }

// Check compares the receipts and keys, stores the verdict and returns it.
func (g *Gate) Check(ctx context.Context) error {
	comparing, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	verdict := g.compare(comparing, false)
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

const codeReceiptsBehind = "pii.receipts_behind"

func receiptsBehind(detail string) *fault.Error {
	return fault.New(fault.Unavailable, codeReceiptsBehind, detail).WithRetryAfter(gateRetryAfter)
}

func keyIsBack() *fault.Error {
	return receiptsBehind("the key store has a key again that an erasure destroyed; run `backbone erasure replay`, and find out who put it back")
}

// Compare compares all receipts and keys, however long it takes, and returns what is wrong with
// them, "" if nothing is. An error means that they could not be compared.
func (g *Gate) Compare(ctx context.Context) (finding string, err error) {
	return findingOf(g.compare(ctx, true))
}

// findingOf tells what was found from what could not be compared, which has a cause.
func findingOf(err error) (string, error) {
	if f, ok := fault.As(err); ok && f.Unwrap() == nil {
		return f.Detail, nil
	}
	return "", err
}

// CompareTenant compares the receipts of one tenant, and the keys that they name, however long it
// takes: what is wrong with those of another tenant is not its business. Otherwise it is Compare.
func (g *Gate) CompareTenant(ctx context.Context, tenantID string) (finding string, err error) {
	names, err := g.config.Exports.List(ctx, receiptFolder)
	if err != nil {
		return "", receiptsBehind(exportsUnreadable).WithCause(err)
	}
	unknown := map[uint64]bool{} // exported ones that the register lacks
	for _, name := range names {
		unknown[receiptNumber(name)] = true
	}
	delete(unknown, 0)
	destroyed := destroyedKeys{fingerprints: map[shredding.Fingerprint]struct{}{}}
	differs := false
	err = ports.EachReceipt(ctx, g.config.Receipts, 1, func(r ports.ErasureReceipt) error {
		isExported := unknown[r.Number] || r.Exported
		delete(unknown, r.Number)
		if r.TenantID != tenantID || !isExported {
			return nil
		}
		note, receipt, err := g.exportedReceipt(ctx, r.Number)
		if err != nil {
			return err
		}
		isUnsigned := len(r.Note) == 0 && receipt.RequestID == r.RequestID // restored to between the destruction and the signature
		differs = differs || receipt.TenantID != tenantID || !isUnsigned && !bytes.Equal(note, r.Note)
		destroyed.addKeys(receipt)
		return nil
	})
	switch {
	case fault.CodeOf(err) == codeReceiptsBehind:
		return "", err
	case err != nil:
		return "", registerUnavailable(err)
	}
	for number := range unknown {
		_, receipt, err := g.exportedReceipt(ctx, number)
		if err != nil {
			return "", err
		}
		differs = differs || receipt.TenantID == tenantID
	}
	if differs {
		return receiptsDiffer().Detail, nil
	}
	return findingOf(g.compareKeys(ctx, &destroyed, true))
}

// compareKeys requires that no destroyed key is back. A key that only the key service can tell
// is passed over while the service cannot open it, unless mustOpen is set.
func (g *Gate) compareKeys(ctx context.Context, d *destroyedKeys, mustOpen bool) error {
	found, unopened, err := d.compare(ctx, g.config.Keys, g.config.DataKeys)
	switch {
	case err != nil:
		return registerUnavailable(err)
	case found:
		return keyIsBack()
	case unopened != nil && mustOpen:
		return receiptsBehind("a key of a person who was erased cannot be opened; make the key service available again, and enable its keys").WithCause(unopened)
	}
	return nil
}

// exportedReceipt reads a receipt of the export store; one that has not the form of a receipt is of no tenant.
func (g *Gate) exportedReceipt(ctx context.Context, number uint64) (note []byte, r Receipt, err error) {
	if note, err = g.config.Exports.Get(ctx, ReceiptName(number)); err != nil {
		return nil, r, receiptsBehind(exportsUnreadable).WithCause(err)
	}
	r, err = parseUnverified(note)
	if err != nil || r.Number != number {
		return note, Receipt{}, nil //nolint:nilerr // it differs from that of the register
	}
	return note, r, nil
}

const exportsUnreadable = "the receipts of erasures outside the database cannot be read; make the export store available again"

func receiptsDiffer() *fault.Error {
	return receiptsBehind("this database was restored from before an erasure, or its receipts were changed; run `backbone erasure replay`")
}

// compare requires that the register has the receipts of the export store, that the export
// store has the receipts that the register has as exported, and that no key that they name is
// back. It reads the export store first, because an erasure that runs at the same time stores
// its receipt in the register first. An error has a cause if something could not be read.
// mustOpen is that of compareKeys.
func (g *Gate) compare(ctx context.Context, mustOpen bool) error {
	if err := g.checking.Acquire(ctx); err != nil {
		return receiptsBehind(exportsUnreadable).WithCause(err)
	}
	defer g.checking.Release()
	names, err := g.config.Exports.List(ctx, receiptFolder)
	if err != nil {
		return receiptsBehind(exportsUnreadable).WithCause(err)
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
		return receiptsBehind(exportsUnreadable).WithCause(err)
	}
	if err := g.readReceipts(ctx, newest, exported); err != nil {
		return err
	}
	return g.compareKeys(ctx, &g.destroyed, mustOpen)
}

// readReceipts reads the receipts of the register that no check has read before, up to the
// newest exported one. Each receipt holds the hash of the one before: if they follow each other
// and the newest one is the exported one, all are the exported ones.
func (g *Gate) readReceipts(ctx context.Context, newest uint64, exported []byte) error {
	restored := receiptsDiffer()
	complete := false
	err := ports.EachReceipt(ctx, g.config.Receipts, min(g.destroyed.newest+1, newest), func(r ports.ErasureReceipt) error {
		if r.Number > newest {
			return nil
		}
		note := r.Note
		if r.Number == newest && len(note) == 0 { // restored to between the destruction and the signature
			if receipt, err := parseUnverified(exported); err != nil || receipt.RequestID != r.RequestID {
				return restored
			}
			note = exported
		}
		complete = r.Number == newest && bytes.Equal(note, exported)
		if r.Number == newest && !complete || r.Number > g.destroyed.newest && !g.destroyed.add(r.Number, note) {
			return restored
		}
		return nil
	})
	switch {
	case fault.CodeOf(err) == codeReceiptsBehind:
		return err
	case err != nil:
		return registerUnavailable(err)
	case !complete || g.destroyed.newest < newest:
		return restored
	}
	return nil
}

// requireNewestExported requires that the export store has the newest receipt that it once had,
// and those that the register has as exported. A store without them is not the one that
// receipts were exported to, such as the empty mount point of a share, and cannot prove that
// the register is complete.
func (g *Gate) requireNewestExported(ctx context.Context, newest uint64) error {
	lacks := func(number uint64) error {
		// It may have been exported after the names were listed.
		if _, err := g.config.Exports.Get(ctx, ReceiptName(number)); err != nil {
			return receiptsBehind("the export store lacks receipts that were exported to it; mount the right one, or export them again with `backbone erasure replay`").WithCause(err)
		}
		return nil
	}
	if g.exported > newest {
		return lacks(g.exported)
	}
	err := ports.EachReceipt(ctx, g.config.Receipts, newest+1, func(r ports.ErasureReceipt) error {
		if !r.Exported {
			return nil
		}
		return lacks(r.Number)
	})
	if err != nil && fault.CodeOf(err) != codeReceiptsBehind {
		return registerUnavailable(err)
	}
	if err == nil {
		g.exported = newest
	}
	return err
}

func registerUnavailable(err error) error {
	return receiptsBehind("the register of erasures cannot be read; make the key store available again").WithCause(err)
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
	Keys         ports.SubjectKeys
	DataKeys     ports.DataKeys
	Notes        ports.NoteOpener
	VerifierKeys []string                         // of all keys that ever signed receipts
	Progress     func(done, total int, r Receipt) // may be nil
}

// reexport writes again the receipts that the register has as exported and the export store
// lacks. A receipt that was never exported is left to the worker, and one that is not signed
// with a known key is not a receipt: the export store would keep it for ever.
func reexport(ctx context.Context, c ReplayConfig) error {
	return ports.EachReceipt(ctx, c.Register, 1, func(r ports.ErasureReceipt) error {
		if len(r.Note) == 0 || !r.Exported {
			return nil
		}
		if _, err := c.Notes.OpenNote(r.Note, c.VerifierKeys...); err != nil {
			return nil //nolint:nilerr // it stays in the register, where the gate finds it
		}
		// If the store has other bytes under the name, Replay finds them when it checks the chain.
		if err := c.Exports.PutIfAbsent(ctx, ReceiptName(r.Number), r.Note); err != nil && fault.KindOf(err) != fault.Conflict {
			return err
		}
		return nil
	})
}

// Replay repeats every erasure that has a receipt in the export store, in the order of the
// receipts, whatever the database says of them: it fences the subjects, so that nothing is
// sealed for them, and destroys the keys with the receipt's fingerprints
// (ports.ErasureRegister.ReplayErasure), also those that were stored under another fingerprint
// than their own. First it writes the receipts that the register has as exported and the export
// store lacks. It may be repeated and interrupted. It returns how many receipts it replayed.
//
//	erasure.receipt_invalid  Invalid: a receipt is missing, not signed with one of the
//	                         keys, or not the successor of the one before. The receipts
//	                         before it stay replayed, none after it was; restore it and
//	                         call Replay again
//	erasure.receipt_changed  Internal: the register has another receipt under a number. All
//	                         erasures were repeated nevertheless
//	kms.*                    of the key service, which opens keys that a receipt does not name
func Replay(ctx context.Context, c ReplayConfig) (int, error) {
	if err := reexport(ctx, c); err != nil {
		return 0, err
	}
	names, err := c.Exports.List(ctx, receiptFolder)
	if err != nil {
		return 0, err
	}
	var previous ports.ErasureReceipt
	var changed error
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
		switch err := c.destroyAgain(ctx, receipt, r.Keys); {
		case fault.CodeOf(err) == "erasure.receipt_changed":
			changed = err
		case err != nil:
			return done, err
		}
		previous, done = receipt, done+1
		if c.Progress != nil {
			c.Progress(done, len(names), r)
		}
	}
	return done, changed
}

func (c ReplayConfig) destroyAgain(ctx context.Context, receipt ports.ErasureReceipt, keys []ports.ReplayKey) error {
	replayed := c.Register.ReplayErasure(ctx, receipt, keys)
	if replayed != nil && fault.CodeOf(replayed) != "erasure.receipt_changed" {
		return replayed
	}
	keys, forged, err := forgedFingerprints(ctx, c, keys)
	if err != nil {
		return err
	}
	if forged {
		return c.Register.ReplayErasure(ctx, receipt, keys)
	}
	return replayed
}

// ForgetReplayed deletes from the index what the persons of replayed receipts are found by: a restored
// database has those again who were erased since. The index is not built again, and a partition that it
// has not begun has none of them.
func ForgetReplayed(ctx context.Context, index Index, receipts []Receipt) error {
	for _, r := range receipts {
		for _, k := range r.Keys {
			err := index.ForgetSubject(ctx, k.Partition, k.Subject, []shredding.KeyClass{k.Class}, 0)
			if err != nil && fault.CodeOf(err) != blindindex.CodeBehind {
				return err
			}
		}
	}
	return nil
}

func invalidReceipt(number uint64, err error) error {
	return fault.New(fault.Invalid, "erasure.receipt_invalid",
		"receipt %d is not signed with a known key, or does not follow the one before it; restore the document from another copy, or name the older verifier key too", number).WithCause(err)
}

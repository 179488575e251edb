package globallog

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// ProvableLog is the global log as a Prover reads it.
type ProvableLog interface {
	Checkpoints
	GlobalPositions(ctx context.Context, events []ports.EventPosition) (map[ports.EventPosition]globallog.Position, error)
}

// Prover makes proofs for readers who have no access to the log. Safe for concurrent use.
type Prover struct {
	log ProvableLog

	reading ports.Lock // guards the rest
	newest  *ports.SignedCheckpoint
	readAt  time.Time
}

// NewProver makes a Prover.
func NewProver(log ProvableLog) *Prover { return &Prover{log: log, reading: ports.NewLock()} }

// awaitInterval is how often all that wait for a checkpoint ask for it together.
const awaitInterval = 250 * time.Millisecond

// Await waits until a checkpoint has all of the events, and proves each. It returns the error of ctx if none has until
// then, and fault global_log.not_signed (NotFound) at once if there is none at all, as without a key service.
func (p *Prover) Await(ctx context.Context, events []ports.EventPosition) (proofs []globallog.Proof, err error) {
	var looked uint64
	for {
		newest, err := p.recent(ctx)
		if err != nil {
			return nil, err
		}
		if newest == nil {
			return nil, notSigned()
		}
		if newest.Size > looked {
			looked = newest.Size
			if proofs, err = p.proveAll(ctx, events, *newest); err != nil || proofs != nil {
				return proofs, err
			}
		}
		if err := ports.Sleep(ctx, awaitInterval); err != nil {
			return nil, err
		}
	}
}

// recent is the newest checkpoint as it was at most an interval ago. One caller reads it for all.
func (p *Prover) recent(ctx context.Context) (*ports.SignedCheckpoint, error) {
	if err := p.reading.Acquire(ctx); err != nil {
		return nil, err
	}
	defer p.reading.Release()
	if time.Since(p.readAt) >= awaitInterval {
		newest, err := p.log.NewestCheckpoint(ctx)
		if err != nil {
			return nil, err
		}
		p.newest, p.readAt = newest, time.Now()
	}
	return p.newest, nil
}

// proveAll proves events under a checkpoint; nil if it lacks one of them.
func (p *Prover) proveAll(ctx context.Context, events []ports.EventPosition, c ports.SignedCheckpoint) ([]globallog.Proof, error) {
	positions, err := p.log.GlobalPositions(ctx, events)
	if err != nil {
		return nil, err
	}
	proofs, read := make([]globallog.Proof, len(events)), globallog.Remember(hashesOf(ctx, p.log))
	for i, e := range events {
		position, isKnown := positions[e]
		if !isKnown || uint64(position) >= c.Size {
			return nil, nil
		}
		hashes, err := globallog.ProveInclusion(c.Size, position, read)
		if err != nil {
			return nil, err
		}
		proofs[i] = globallog.Proof{Position: position, Hashes: hashes, Checkpoint: c.Note}
	}
	return proofs, nil
}

// Prove proves that an event is in the log that was signed last. extra is what the reader needs to compute its
// checksum. Fault global_log.not_signed (NotFound) for an event that is not signed yet.
func (p *Prover) Prove(ctx context.Context, e ports.EventPosition, extra []byte) (globallog.Proof, error) {
	newest, err := p.log.NewestCheckpoint(ctx)
	if err != nil {
		return globallog.Proof{}, err
	}
	var proofs []globallog.Proof
	if newest != nil {
		if proofs, err = p.proveAll(ctx, []ports.EventPosition{e}, *newest); err != nil {
			return globallog.Proof{}, err
		}
	}
	if proofs == nil {
		return globallog.Proof{}, notSigned()
	}
	proofs[0].Extra = extra
	return proofs[0], nil
}

func notSigned() *fault.Error {
	return fault.New(fault.NotFound, "global_log.not_signed", "no checkpoint has the event yet; a server with a key service signs one every few seconds while there are new events, so try again")
}

// ProveExtension proves that the log that was signed last begins with that of an earlier checkpoint. Fault
// global_log.not_signed (NotFound) if none is as large.
func (p *Prover) ProveExtension(ctx context.Context, earlier globallog.Checkpoint) (globallog.Extension, error) {
	newest, err := p.log.NewestCheckpoint(ctx)
	if err != nil {
		return globallog.Extension{}, err
	}
	if newest == nil || newest.Size < earlier.Size {
		return globallog.Extension{}, fault.New(fault.NotFound, "global_log.not_signed", "no checkpoint here has the %d events of the earlier one: the log was set back or cut, or this is another log; run `backbone verify` with that checkpoint", earlier.Size)
	}
	hashes, err := globallog.ProveConsistency(newest.Size, earlier.Size, hashesOf(ctx, p.log))
	return globallog.Extension{From: earlier.Size, Hashes: hashes, Checkpoint: newest.Note}, err
}

func hashesOf(ctx context.Context, tree ports.GlobalTree) globallog.ReadHashes {
	return func(level int, from, n uint64) ([]event.Hash, error) { return tree.GlobalHashes(ctx, level, from, n) }
}

// OpenCheckpoint opens a checkpoint that the log signed with one of the keys, and returns the others that did: the
// verifier keys of witnesses. Faults: note.key_invalid, note.not_verified, global_log.checkpoint_malformed (all Invalid).
func OpenCheckpoint(note []byte, opener ports.CheckpointOpener, keys ...string) (c globallog.Checkpoint, witnesses []string, err error) {
	origin, _, _ := strings.Cut(string(note), "\n")
	isOwn := func(key string) bool { return strings.HasPrefix(key, origin+"+") && globallog.IsLogKey(key) }
	text, signers, err := opener.OpenCosigned(note, keys...)
	if err != nil && !slices.ContainsFunc(keys, isOwn) && fault.CodeOf(err) == "note.not_verified" {
		return c, nil, keyMissing(origin)
	}
	if err != nil {
		return c, nil, err
	}
	if c, err = globallog.ParseCheckpoint(text); err != nil {
		return c, nil, err
	}
	own := slices.IndexFunc(signers, isOwn)
	if own < 0 {
		return c, nil, keyMissing(origin)
	}
	return c, slices.DeleteFunc(signers, globallog.IsLogKey), nil
}

func keyMissing(origin string) *fault.Error {
	return fault.New(fault.Invalid, "note.not_verified", "the checkpoint has no signature of %q, the log that it is of, with a key that was given; give the verifier key of that name", origin)
}

// VerifyProof checks that the event with a checksum is in a log that was signed with one of the keys. Faults:
// global_log.not_included and those of OpenCheckpoint.
func VerifyProof(p globallog.Proof, checksum event.Hash, opener ports.CheckpointOpener, keys ...string) (c globallog.Checkpoint, witnesses []string, err error) {
	if c, witnesses, err = OpenCheckpoint(p.Checkpoint, opener, keys...); err != nil {
		return c, nil, err
	}
	return c, witnesses, globallog.CheckInclusion(p.Hashes, c, p.Position, checksum)
}

// VerifyExtension checks that the log of an extension begins with that of an earlier checkpoint, which may be of an
// earlier incarnation. Faults: global_log.inconsistent and those of OpenCheckpoint.
func VerifyExtension(x globallog.Extension, earlier []byte, opener ports.CheckpointOpener, keys ...string) (from, to globallog.Checkpoint, err error) {
	if from, _, err = OpenCheckpoint(earlier, opener, keys...); err != nil {
		return from, to, err
	}
	if to, _, err = OpenCheckpoint(x.Checkpoint, opener, keys...); err != nil {
		return from, to, err
	}
	begin := from
	if from.IsOf(to) {
		begin.Origin = to.Origin
	}
	return from, to, globallog.CheckConsistency(x.Hashes, to, begin)
}

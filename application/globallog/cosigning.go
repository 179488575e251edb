package globallog

import (
	"context"
	"slices"
	"sync"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// cosigned returns the note of a checkpoint with the signatures of the witnesses that answer. All are asked at the same
// time.
func (c *Checkpointer) cosigned(ctx context.Context, s ports.SignedCheckpoint) []byte {
	signatures := make([][]byte, len(c.Witnesses))
	var asking sync.WaitGroup
	for i, w := range c.Witnesses {
		asking.Go(func() {
			lines, err := c.askWitness(ctx, s, w, &c.witnessed[i])
			if err == nil {
				signatures[i] = lines
			} else if ctx.Err() == nil {
				c.Logger.WarnContext(ctx, "a witness did not sign a checkpoint of the global log", "witness", w.VerifierKey(), "code", fault.CodeOf(err))
			}
			c.Observer.CheckpointWitnessed(err == nil, fault.CodeOf(err) == "witness.inconsistent")
		})
	}
	asking.Wait()
	return slices.Concat(append([][]byte{s.Note}, signatures...)...)
}

// askWitness asks one witness for the line of its signature. from is the size of the newest checkpoint that it has
// signed, as far as is known.
func (c *Checkpointer) askWitness(ctx context.Context, s ports.SignedCheckpoint, w ports.Witness, from *uint64) (line []byte, err error) {
	var lines []byte
	for range 2 { // the witness may name another size
		x := globallog.Extension{From: *from, Checkpoint: s.Note}
		if x.Hashes, err = globallog.ProveConsistency(s.Size, *from, hashesOf(ctx, c.Log)); err != nil {
			return nil, err
		}
		lines, err = w.AddCheckpoint(ctx, x)
		f, _ := fault.As(err)
		size, isSize := uint64(0), false
		if f != nil && f.Code == "witness.size_differs" {
			size, isSize = f.Actual.(uint64)
		}
		if !isSize || size > s.Size {
			break
		}
		*from = size
	}
	if err != nil {
		return nil, err
	}
	line, err = c.Opener.Signature(textOf(s, c.LogName).Text(), lines, w.VerifierKey()) // nothing else of the answer is kept
	if err != nil {
		return nil, fault.New(fault.Unavailable, "witness.unavailable", "the witness answered with another signature than that of its key; check the key").WithCause(err)
	}
	*from = s.Size
	return line, nil
}

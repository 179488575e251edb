package verify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// ExportSummary describes an export.
type ExportSummary struct {
	Events   uint64
	Head     event.Sequence
	Checksum event.Hash
}

// Export writes the log of one legal entity, up to its head at the time of the call, to an
// export file, which Dump verifies without database and network. Sealed values stay sealed.
// Export verifies nothing: it writes damaged data as it is. It keeps a few pages of events
// in memory.
//
// Faults: verify.export_interrupted (Conflict: a payload was redacted during the export) and
// those of the store; Export returns an error of the writer unchanged.
func Export(ctx context.Context, store Store, le ports.LegalEntity, at time.Time, w io.Writer, progress Progress) (ExportSummary, error) {
	x := exporter{out: w, digest: sha256.New()}
	installation, err := store.Installation(ctx)
	if err != nil {
		return x.summary, err
	}
	redactions, err := store.Redactions(ctx, le.Partition)
	if err != nil {
		return x.summary, err
	}
	head, err := store.Head(ctx, le.Partition)
	if err != nil {
		return x.summary, err
	}
	x.summary.Checksum = head.Genesis
	if err := x.write(headerLine{
		lineHeader, exportFormat, installation.LogName, le.TenantID, le.Code, le.Partition, hex.EncodeToString(head.Genesis[:]), at.UTC(),
	}); err != nil {
		return x.summary, err
	}
	for _, r := range redactions {
		if err := x.write(lineOfRedaction(r)); err != nil {
			return x.summary, err
		}
	}
	if err := x.events(ctx, store, le, head, progress); err != nil {
		return x.summary, err
	}
	after, err := store.Redactions(ctx, le.Partition)
	if err != nil {
		return x.summary, err
	}
	if !slices.EqualFunc(redactions, after, func(a, b ports.Redaction) bool { return a.ID == b.ID }) {
		return x.summary, fault.New(fault.Conflict, "verify.export_interrupted", "a payload was redacted while the log was exported; export it again")
	}
	digest := x.digest.Sum(nil)
	return x.summary, x.write(trailerLine{
		lineTrailer, x.summary.Events, len(redactions), x.summary.Head, hex.EncodeToString(x.summary.Checksum[:]), hex.EncodeToString(digest),
	})
}

type exporter struct {
	out     io.Writer
	digest  hash.Hash
	summary ExportSummary
}

func (x *exporter) write(line any) error {
	text, err := encodeLine(line)
	if err != nil {
		return err
	}
	x.digest.Write(text)
	_, err = x.out.Write(text)
	return err
}

func (x *exporter) events(ctx context.Context, store Store, le ports.LegalEntity, head ports.Head, progress Progress) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows := newPersonalRows(ctx, store, le.Partition, head.Sequence)
	defer rows.stop()
	for p := range readAhead(ctx, store, le.Partition, 0) {
		if len(p.unreadable) > 0 {
			return fault.New(fault.FailedPrecondition, "verify.export_unreadable", "event %d cannot be read, so it cannot be exported; verify the log", p.unreadable[0])
		}
		if p.err != nil {
			return p.err
		}
		for i := range p.events {
			e := &p.events[i]
			if e.Sequence > head.Sequence {
				return nil
			}
			personal, err := rows.rowsOf(e.Sequence, func(ports.PersonalRow) {}) // the file cannot hold rows without an event
			if err != nil {
				return err
			}
			if err := x.write(lineOf(e, personal)); err != nil {
				return err
			}
			x.summary.Events++
			x.summary.Head, x.summary.Checksum = e.Sequence, e.Checksum
		}
		if progress != nil && len(p.events) > 0 {
			progress(le.Code, x.summary.Events, max(uint64(head.Sequence), x.summary.Events))
		}
	}
	return ctx.Err()
}

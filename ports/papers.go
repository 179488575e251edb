package ports

import (
	"context"
	"iter"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// Papers stores the sealed bytes of papers, named by their SHA-256. They never change. Bytes are
// stored before the event that names them is appended, so an event never names bytes that are not there.
// Suite: test/conformance, RunPapers.
type Papers interface {
	// AddPaper stores sealed bytes for the paper with an id; bytes that are there already change nothing.
	AddPaper(ctx context.Context, p event.PartitionID, c PaperContent) error
	// PaperContent returns the bytes with a digest; paper.content_missing (Internal) if there are none.
	PaperContent(ctx context.Context, p event.PartitionID, digest event.Hash) (PaperContent, error)
	// SweepPapers deletes bytes that no event names and that were stored before a time, at least a
	// day ago. It returns how many it deleted.
	SweepPapers(ctx context.Context, before time.Time) (int64, error)
}

// PaperAudit reads the sealed bytes for verification.
type PaperAudit interface {
	// PaperContents iterates over all of a partition, in any order. It holds one at a time, and
	// uses a connection until the iteration ends.
	PaperContents(ctx context.Context, p event.PartitionID) iter.Seq2[PaperContent, error]
}

// PaperContent is the sealed bytes of a paper.
type PaperContent struct {
	PaperID string
	SHA256  event.Hash // of Sealed
	Sealed  []byte
}

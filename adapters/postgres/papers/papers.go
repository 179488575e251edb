// Package papers stores the sealed bytes of papers in the log's database. The service of
// application/papers and verification call its [Store].
package papers

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/papersdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/paper"
	"github.com/erpbackbone/backbone/ports"
)

// Store implements ports.Papers and ports.PaperAudit.
type Store struct {
	db      *pg.Database
	queries *papersdb.Queries
}

// New makes a Store over db.
func New(db *pg.Database) *Store { return &Store{db: db, queries: papersdb.New()} }

var (
	_ ports.Papers     = (*Store)(nil)
	_ ports.PaperAudit = (*Store)(nil)
)

// AddPaper implements ports.Papers.
func (s *Store) AddPaper(ctx context.Context, p event.PartitionID, c ports.PaperContent) error {
	return pg.Translate(ctx, s.queries.InsertPaper(ctx, s.db.Reads, &papersdb.InsertPaperParams{
		PartitionID: int32(p), Sha256: c.SHA256[:], PaperID: c.PaperID, Sealed: c.Sealed,
	}))
}

// PaperContent implements ports.Papers.
func (s *Store) PaperContent(ctx context.Context, p event.PartitionID, digest event.Hash) (ports.PaperContent, error) {
	row, err := s.queries.GetPaper(ctx, s.db.Reads, &papersdb.GetPaperParams{PartitionID: int32(p), Sha256: digest[:]})
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.PaperContent{}, paper.ContentMissing()
	}
	return ports.PaperContent{PaperID: row.PaperID, SHA256: digest, Sealed: row.Sealed}, pg.Translate(ctx, err)
}

// SweepPapers implements ports.Papers.
func (s *Store) SweepPapers(ctx context.Context, before time.Time) (int64, error) {
	n, err := s.queries.SweepPapers(ctx, s.db.Reads, before)
	return n, pg.Translate(ctx, err)
}

// PaperContents implements ports.PaperAudit.
func (s *Store) PaperContents(ctx context.Context, p event.PartitionID) iter.Seq2[ports.PaperContent, error] {
	return func(yield func(ports.PaperContent, error) bool) {
		rows, err := s.db.Reads.Query(ctx, papersdb.ListPapers, int32(p))
		if err != nil {
			yield(ports.PaperContent{}, pg.Translate(ctx, err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			var c ports.PaperContent
			var digest []byte
			if err := rows.Scan(&digest, &c.PaperID, &c.Sealed); err != nil {
				yield(c, pg.Translate(ctx, err))
				return
			}
			copy(c.SHA256[:], digest)
			if !yield(c, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(ports.PaperContent{}, pg.Translate(ctx, err))
		}
	}
}

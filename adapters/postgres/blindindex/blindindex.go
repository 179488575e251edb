// Package blindindex stores the index by which persons are found. The worker and the search of
// application/blindindex call its [Store].
package blindindex

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/blindindexdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/blindindex"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Store implements ports.BlindIndex.
type Store struct {
	db      *pg.Database
	queries *blindindexdb.Queries
}

// New makes a Store over db.
func New(db *pg.Database) *Store { return &Store{db: db, queries: blindindexdb.New()} }

var _ ports.BlindIndex = (*Store)(nil)

// BlindIndexPositions implements ports.BlindIndex.
func (s *Store) BlindIndexPositions(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]ports.BlindIndexPosition, error) {
	rows, err := s.queries.ListBlindIndexPositions(ctx, s.db.Reads, pg.Partitions(partitions))
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make(map[event.PartitionID]ports.BlindIndexPosition, len(rows))
	for _, r := range rows {
		at := ports.BlindIndexPosition{Sequence: event.Sequence(r.Sequence), Revision: r.Revision}
		copy(at.Key[:], r.Key)
		out[event.PartitionID(r.PartitionID)] = at
	}
	return out, nil
}

// BeginBlindIndex implements ports.BlindIndex.
func (s *Store) BeginBlindIndex(ctx context.Context, p event.PartitionID, from ports.BlindIndexPosition, key blindindex.Hash) (to ports.BlindIndexPosition, err error) {
	err = s.change(ctx, func(tx pgx.Tx) error {
		if from.Revision == 0 {
			n, err := s.queries.InsertBlindIndexPosition(ctx, tx, &blindindexdb.InsertBlindIndexPositionParams{PartitionID: int32(p), Key: key[:]})
			if err == nil && n == 0 {
				err = blindindex.Moved()
			}
			to = ports.BlindIndexPosition{Revision: 1, Key: key}
			if err != nil {
				return err
			}
		} else if to, err = s.move(ctx, tx, p, from, 0, key); err != nil {
			return err
		}
		return s.queries.DeleteBlindIndex(ctx, tx, int32(p))
	})
	return to, err
}

// maxInserted is how many entries one statement inserts.
const maxInserted = 1000

// AdvanceBlindIndex implements ports.BlindIndex.
func (s *Store) AdvanceBlindIndex(ctx context.Context, p event.PartitionID, from ports.BlindIndexPosition, through event.Sequence, entries []blindindex.Entry) (to ports.BlindIndexPosition, err error) {
	err = s.change(ctx, func(tx pgx.Tx) error {
		if to, err = s.move(ctx, tx, p, from, through, from.Key); err != nil {
			return err
		}
		for chunk := range slices.Chunk(entries, maxInserted) {
			if err := s.insert(ctx, tx, p, chunk); err != nil {
				return err
			}
		}
		return nil
	})
	return to, err
}

func (s *Store) insert(ctx context.Context, tx pgx.Tx, p event.PartitionID, entries []blindindex.Entry) error {
	rows := &blindindexdb.InsertBlindIndexParams{PartitionID: int32(p)}
	for i := range entries {
		e := &entries[i]
		rows.Kinds, rows.KeyClasses, rows.Hashes = append(rows.Kinds, int16(e.Kind)), append(rows.KeyClasses, int16(e.KeyClass)), append(rows.Hashes, e.Hash[:])
		rows.SubjectIds, rows.Classes = append(rows.SubjectIds, string(e.Subject)), append(rows.Classes, string(e.Class))
		rows.EventTypes, rows.Paths = append(rows.EventTypes, e.Type), append(rows.Paths, e.Path)
	}
	return s.queries.InsertBlindIndex(ctx, tx, rows)
}

func (s *Store) change(ctx context.Context, write func(tx pgx.Tx) error) error {
	return pg.Translate(ctx, pgx.BeginFunc(ctx, s.db.Reads, write))
}

// move stores the position of a partition if it is still the one that a change was computed from.
func (s *Store) move(ctx context.Context, tx pgx.Tx, p event.PartitionID, from ports.BlindIndexPosition, through event.Sequence, key blindindex.Hash) (ports.BlindIndexPosition, error) {
	n, err := s.queries.MoveBlindIndex(ctx, tx, &blindindexdb.MoveBlindIndexParams{Sequence: int64(through), Key: key[:], PartitionID: int32(p), Revision: from.Revision})
	if err == nil && n == 0 {
		err = blindindex.Moved()
	}
	return ports.BlindIndexPosition{Sequence: through, Revision: from.Revision + 1, Key: key}, err
}

// ForgetSubject implements ports.BlindIndex.
func (s *Store) ForgetSubject(ctx context.Context, p event.PartitionID, subject shredding.Subject, classes []shredding.KeyClass, passed event.Sequence) error {
	return s.change(ctx, func(tx pgx.Tx) error {
		reached, err := s.queries.LockBlindIndex(ctx, tx, int32(p))
		if errors.Is(err, pgx.ErrNoRows) || err == nil && event.Sequence(reached) < passed {
			return blindindex.Behind()
		}
		if err != nil {
			return err
		}
		return s.queries.ForgetSubject(ctx, tx, &blindindexdb.ForgetSubjectParams{PartitionID: int32(p), SubjectID: string(subject), KeyClasses: keyClasses(classes)})
	})
}

// CountBlindIndex implements ports.BlindIndex.
func (s *Store) CountBlindIndex(ctx context.Context, p event.PartitionID, subject shredding.Subject, classes []shredding.KeyClass) (int64, error) {
	n, err := s.queries.CountBlindIndex(ctx, s.db.Reads, &blindindexdb.CountBlindIndexParams{PartitionID: int32(p), SubjectID: string(subject), KeyClasses: keyClasses(classes)})
	return n, pg.Translate(ctx, err)
}

// FindSubjects implements ports.BlindIndex.
func (s *Store) FindSubjects(ctx context.Context, q ports.SubjectQuery) ([]blindindex.Entry, error) {
	hashes := make([][]byte, len(q.Hashes))
	for i := range q.Hashes {
		hashes[i] = q.Hashes[i][:]
	}
	rows, err := s.queries.FindSubjects(ctx, s.db.Reads, &blindindexdb.FindSubjectsParams{
		PartitionIds: pg.Partitions(q.Partitions), Kind: int16(q.Kind), Hashes: hashes, After: string(q.After), PageSize: pg.PageSize(q.Limit),
	})
	return pg.MapRows(ctx, rows, err, func(r *blindindexdb.FindSubjectsRow) blindindex.Entry {
		return blindindex.Entry{
			Partition: event.PartitionID(r.PartitionID), Kind: q.Kind, Subject: shredding.Subject(r.SubjectID), Class: shredding.Class(r.Class), Type: r.EventType, Path: r.Path,
		}
	})
}

// ClearBlindIndex implements ports.BlindIndex.
func (s *Store) ClearBlindIndex(ctx context.Context) error {
	return s.change(ctx, func(tx pgx.Tx) error {
		if err := s.queries.ResetBlindIndexPositions(ctx, tx); err != nil {
			return err
		}
		return s.queries.ClearBlindIndex(ctx, tx)
	})
}

func keyClasses(classes []shredding.KeyClass) []int16 {
	return pg.Map(classes, func(c *shredding.KeyClass) int16 { return int16(*c) })
}

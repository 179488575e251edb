// Package disclosure stores the record of reads in the log's database. The services of
// application/disclosure and verification call its [Store].
package disclosure

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/disclosuredb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Store implements ports.AccessLog.
type Store struct {
	db      *pg.Database
	queries *disclosuredb.Queries
}

// New makes a Store over db.
func New(db *pg.Database) *Store { return &Store{db: db, queries: disclosuredb.New()} }

var _ ports.AccessLog = (*Store)(nil)

// AddAccesses implements ports.AccessLog. It is one statement for any number of accesses.
func (s *Store) AddAccesses(ctx context.Context, log event.PartitionID, accesses []disclosure.Access) error {
	p := &disclosuredb.InsertAccessesParams{PartitionID: int32(log)}
	for i := range accesses {
		a := &accesses[i]
		p.Ids, p.PersonIds, p.PrincipalIds = append(p.Ids, pg.UUID(a.ID)), append(p.PersonIds, a.PersonID), append(p.PrincipalIds, a.PrincipalID)
		p.Kinds, p.Operations, p.LegalEntities = append(p.Kinds, string(a.Kind)), append(p.Operations, a.Operation), append(p.LegalEntities, a.LegalEntity)
		p.SubjectIds, p.Classes, p.ValueCounts = append(p.SubjectIds, string(a.Subject)), append(p.Classes, string(a.Class)), append(p.ValueCounts, int32(a.Values))
		p.Reasons, p.RequestIds = append(p.Reasons, a.Reason), append(p.RequestIds, a.RequestID)
		p.GrantIds = append(p.GrantIds, pgtype.UUID{Bytes: a.GrantID, Valid: !a.GrantID.IsZero()})
	}
	return pg.Translate(ctx, s.queries.InsertAccesses(ctx, s.db.Reads, p))
}

// endOfTime is after every access.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// SearchAccesses implements ports.AccessLog.
func (s *Store) SearchAccesses(ctx context.Context, q ports.AccessQuery) ([]disclosure.Access, error) {
	if q.To.IsZero() {
		q.To = endOfTime
	}
	if q.BeforeAt.IsZero() {
		q.BeforeAt = endOfTime
	}
	p, before, page := int32(q.Log), pg.UUID(q.BeforeID), pg.PageSize(q.Limit)
	var rows []disclosuredb.BackboneAccessLog
	var err error
	switch class, kind := string(q.Class), string(q.Kind); {
	case q.Subject != "":
		rows, err = s.queries.SearchAccessesOfSubject(ctx, s.db.Reads, &disclosuredb.SearchAccessesOfSubjectParams{
			PartitionID: p, SubjectID: string(q.Subject), PersonID: q.PersonID, Class: class, Kind: kind, FromAt: q.From, ToAt: q.To, BeforeAt: q.BeforeAt, BeforeID: before, PageSize: page,
		})
	case q.PersonID != "":
		rows, err = s.queries.SearchAccessesOfPerson(ctx, s.db.Reads, &disclosuredb.SearchAccessesOfPersonParams{
			PartitionID: p, PersonID: q.PersonID, Class: class, Kind: kind, FromAt: q.From, ToAt: q.To, BeforeAt: q.BeforeAt, BeforeID: before, PageSize: page,
		})
	default:
		rows, err = s.queries.SearchAccesses(ctx, s.db.Reads, &disclosuredb.SearchAccessesParams{
			PartitionID: p, Class: class, Kind: kind, FromAt: q.From, ToAt: q.To, BeforeAt: q.BeforeAt, BeforeID: before, PageSize: page,
		})
	}
	return pg.MapRows(ctx, rows, err, access)
}

// listPage is how many accesses are read at once.
const listPage = 1000

// Accesses implements ports.AccessReader.
func (s *Store) Accesses(ctx context.Context, log event.PartitionID, from, to time.Time) iter.Seq2[disclosure.Access, error] {
	return func(yield func(disclosure.Access, error) bool) {
		after := disclosure.Access{}
		for {
			rows, err := s.queries.ListAccesses(ctx, s.db.Reads, &disclosuredb.ListAccessesParams{
				PartitionID: int32(log), FromAt: from, ToAt: to, AfterAt: after.At, AfterID: pg.UUID(after.ID), PageSize: listPage,
			})
			if err != nil {
				yield(disclosure.Access{}, pg.Translate(ctx, err))
				return
			}
			for i := range rows {
				if after = access(&rows[i]); !yield(after, nil) {
					return
				}
			}
			if len(rows) < listPage {
				return
			}
		}
	}
}

// SettleAccesses implements ports.AccessLog.
func (s *Store) SettleAccesses(ctx context.Context) (time.Time, error) {
	at, err := s.queries.SettleAccessLog(ctx, s.db.Reads)
	return at.UTC(), pg.Translate(ctx, err)
}

// OldestAccess implements ports.AccessLog.
func (s *Store) OldestAccess(ctx context.Context, log event.PartitionID) (time.Time, error) {
	at, err := s.queries.OldestAccess(ctx, s.db.Reads, int32(log))
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, nil
	}
	return at.UTC(), pg.Translate(ctx, err)
}

// DeleteAccesses implements ports.AccessLog.
func (s *Store) DeleteAccesses(ctx context.Context, log event.PartitionID, before time.Time, limit int) (int, error) {
	n, err := s.queries.DeleteAccesses(ctx, s.db.Reads, &disclosuredb.DeleteAccessesParams{PartitionID: int32(log), BeforeAt: before, Most: pg.PageSize(limit)})
	return int(n), pg.Translate(ctx, err)
}

func access(r *disclosuredb.BackboneAccessLog) disclosure.Access {
	return disclosure.Access{
		ID: r.ID.Bytes, At: r.At.UTC(), PersonID: r.PersonID, PrincipalID: r.PrincipalID, Kind: disclosure.Kind(r.Kind), Operation: r.Operation, LegalEntity: r.LegalEntity,
		Subject: shredding.Subject(r.SubjectID), Class: shredding.Class(r.Class), Values: int(r.ValueCount), Reason: r.Reason, RequestID: r.RequestID, GrantID: r.GrantID.Bytes,
	}
}

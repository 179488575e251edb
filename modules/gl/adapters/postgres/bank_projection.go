package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
)

// BankProjection writes gl.bank: statements with their lines, discards, matches, and journals with
// the payments that they refer to. It is stateless and idempotent.
type BankProjection struct{ queries *gldb.Queries }

var (
	_ ports.ProjectionHandler  = (*BankProjection)(nil)
	_ ports.ProjectionResetter = (*BankProjection)(nil)
	_ ports.ProjectionTables   = (*BankProjection)(nil)
	_ ports.ProjectionTargets  = (*BankProjection)(nil)
)

// NewBankProjection makes the handler of the projection gl.bank.
func NewBankProjection() *BankProjection { return &BankProjection{queries: gldb.New()} }

// The tables of gl.bank.
var (
	bankStatementsTable  = ports.ProjectionTable{Schema: "gl", Name: "bank_statements", Key: []string{"sequence"}}
	bankLinesTable       = ports.ProjectionTable{Schema: "gl", Name: "bank_lines", Key: []string{"sequence", "line_number"}}
	bankDiscardsTable    = ports.ProjectionTable{Schema: "gl", Name: "bank_discards", Key: []string{"sequence"}}
	bankMatchesTable     = ports.ProjectionTable{Schema: "gl", Name: "bank_matches", Key: []string{"account", "statement_id", "part", "line_number", "sequence"}}
	bankMatchLinesTable  = ports.ProjectionTable{Schema: "gl", Name: "bank_match_lines", Key: []string{"journal_id", "line_number", "sequence"}}
	bankJournalsTable    = ports.ProjectionTable{Schema: "gl", Name: "bank_journals", Key: []string{"journal_id"}}
	journalPaymentsTable = ports.ProjectionTable{Schema: "gl", Name: "journal_payments", Key: []string{"sequence", "payment_id"}}
)

// Tables implements ports.ProjectionTables.
func (p *BankProjection) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{bankStatementsTable, bankLinesTable, bankDiscardsTable, bankMatchesTable, bankMatchLinesTable, bankJournalsTable, journalPaymentsTable}
}

// Targets implements ports.ProjectionTargets: a statement with its lines, the matches of a line,
// or a journal with its payments. Matches also have the sequences of what they name, which are the
// same when it is recomputed. Most rows are found by the sequences of their events.
func (p *BankProjection) Targets() []ports.ProjectionTarget {
	return []ports.ProjectionTarget{
		{Streams: []string{domain.StreamBankStatement}, Tables: []ports.TargetTable{
			{ProjectionTable: bankStatementsTable}, {ProjectionTable: bankLinesTable}, {ProjectionTable: bankDiscardsTable},
		}},
		{Streams: []string{domain.StreamBankLine}, Tables: []ports.TargetTable{{ProjectionTable: bankMatchesTable}, {ProjectionTable: bankMatchLinesTable}}},
		{Streams: []string{domain.StreamJournal}, Tables: []ports.TargetTable{
			{ProjectionTable: bankJournalsTable, Entity: "journal_id"}, {ProjectionTable: journalPaymentsTable},
		}},
	}
}

// Reset implements ports.ProjectionResetter.
func (p *BankProjection) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return plugin.DeleteRows(ctx, tx, b, p.Tables())
}

// Apply implements ports.ProjectionHandler; tx must be a pgx.Tx.
func (p *BankProjection) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	db, err := plugin.Tx(tx)
	if err != nil {
		return err
	}
	if err := p.addJournals(ctx, db, b); err != nil {
		return err
	}
	for i := range b.Events {
		if err := p.apply(ctx, db, int32(b.Version), &b.Events[i]); err != nil {
			return fmt.Errorf("event %s: %w", b.Events[i].ID, err)
		}
	}
	return nil
}

// addJournals remembers the journals of a batch in one statement, before the matches that name them.
func (p *BankProjection) addJournals(ctx context.Context, db pgx.Tx, b ports.ProjectionBatch) error {
	rows := gldb.BankJournalInsertParams{PartitionID: int32(b.Partition), Version: int32(b.Version)}
	for i := range b.Events {
		if e := &b.Events[i]; e.Type == domain.EventJournalPosted {
			rows.Sequences, rows.JournalIds = append(rows.Sequences, int64(e.Sequence)), append(rows.JournalIds, e.Stream.ID)
		}
	}
	if len(rows.Sequences) == 0 {
		return nil
	}
	return p.queries.BankJournalInsert(ctx, db, &rows)
}

func (p *BankProjection) apply(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded) error {
	if e.Type == domain.EventJournalPosted {
		return p.addPayments(ctx, db, version, e)
	}
	data, err := e.Data()
	if err != nil {
		return err
	}
	switch e.Type {
	case domain.EventBankStatementImported, domain.EventBankStatementReimported:
		return p.addStatement(ctx, db, version, e, data)
	case domain.EventBankStatementDiscarded:
		return p.addDiscard(ctx, db, version, e, data)
	case domain.EventBankLineMatched, domain.EventBankLineUnmatched:
		return p.addMatch(ctx, db, version, e, data)
	}
	return nil
}

// addPayments remembers the payments that a journal refers to. Most refer to none, so nothing else
// of a journal is decoded.
func (p *BankProjection) addPayments(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded) error {
	list, found, err := jsondoc.Member(e.Payload, "entity_refs")
	if err != nil || !found {
		return err
	}
	var refs []event.EntityRef
	if err := json.Unmarshal(list, &refs); err != nil {
		return err
	}
	for _, ref := range refs {
		if ref.Type != domain.EntityPayment {
			continue
		}
		if err := p.queries.JournalPaymentInsert(ctx, db, &gldb.JournalPaymentInsertParams{
			PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), PaymentID: ref.ID,
		}); err != nil {
			return err
		}
	}
	return nil
}

func (p *BankProjection) addStatement(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, data []byte) error {
	var s domain.BankStatement
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	if err := p.queries.BankStatementInsert(ctx, db, &gldb.BankStatementInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), Part: int32(s.Part), FirstDate: date(s.FirstDate()), StatementDate: date(s.StatementDate),
		EventID: uuid(e.ID), Account: s.Account, StatementID: s.StatementID, Currency: s.Currency, OpeningBalance: s.OpeningBalance.String(), ClosingBalance: s.ClosingBalance.String(),
	}); err != nil {
		return err
	}
	rows := &gldb.BankLineInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), Part: int32(s.Part), Account: s.Account, StatementID: s.StatementID, Currency: s.Currency,
	}
	for i := range s.Lines {
		l := &s.Lines[i]
		rows.LineNumbers = append(rows.LineNumbers, int32(l.LineNumber))
		rows.BookingDates = append(rows.BookingDates, date(l.BookingDate))
		rows.ValueDates = append(rows.ValueDates, optionalDate(l.ValueDate))
		rows.Amounts = append(rows.Amounts, l.Signed().String())
		rows.Refs = append(rows.Refs, l.Reference)
		rows.EndToEndIds = append(rows.EndToEndIds, l.EndToEndID)
		rows.Descriptions = append(rows.Descriptions, l.Text)
	}
	return p.queries.BankLineInsert(ctx, db, rows)
}

func (p *BankProjection) addDiscard(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, data []byte) error {
	var d domain.DiscardedStatement
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	return p.queries.BankDiscardInsert(ctx, db, &gldb.BankDiscardInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), Part: int32(d.Part), Account: d.Account, StatementID: d.StatementID,
	})
}

func (p *BankProjection) addMatch(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, data []byte) error {
	var m domain.BankMatch
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	matched := e.Type == domain.EventBankLineMatched
	if err := p.queries.BankMatchInsert(ctx, db, &gldb.BankMatchInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), Part: int32(m.Part), LineNumber: int32(m.LineNumber),
		MatchedAsOf: date(m.MatchedAsOf), Matched: matched, Account: m.Account, StatementID: m.StatementID,
	}); err != nil {
		return err
	}
	if !m.IsFirst() {
		return nil
	}
	for _, ref := range m.JournalLines {
		if err := p.queries.BankMatchLineInsert(ctx, db, &gldb.BankMatchLineInsertParams{
			PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), LineNumber: int32(ref.LineNumber),
			MatchedAsOf: date(m.MatchedAsOf), Matched: matched, Account: m.Account, JournalID: ref.JournalID,
		}); err != nil {
			return err
		}
	}
	return nil
}

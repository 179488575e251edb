package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
)

// Projection writes gl.ledger. It is stateless.
type Projection struct{ queries *gldb.Queries }

var (
	_ ports.ProjectionHandler  = (*Projection)(nil)
	_ ports.ProjectionResetter = (*Projection)(nil)
	_ ports.ProjectionTables   = (*Projection)(nil)
	_ ports.ProjectionTargets  = (*Projection)(nil)
)

// NewProjection makes the handler of the projection gl.ledger.
func NewProjection() *Projection { return &Projection{queries: gldb.New()} }

// Apply implements ports.ProjectionHandler; tx must be a pgx.Tx.
func (p *Projection) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	db, err := plugin.Tx(tx)
	if err != nil {
		return err
	}
	partition, version := int32(b.Partition), int32(b.Version)
	journals := &gldb.JournalInsertParams{PartitionID: partition, Version: version}
	lines := &gldb.JournalLineInsertParams{PartitionID: partition, Version: version}
	for i := range b.Events {
		if err := p.apply(ctx, db, &b.Events[i], journals, lines); err != nil {
			return fmt.Errorf("event %s: %w", b.Events[i].ID, err)
		}
	}
	if len(journals.Sequences) == 0 {
		return nil
	}
	if err := p.queries.JournalInsert(ctx, db, journals); err != nil {
		return err
	}
	return p.queries.JournalLineInsert(ctx, db, lines)
}

// The tables of gl.ledger.
var (
	ledgersTable   = ports.ProjectionTable{Schema: "gl", Name: "ledgers", Key: []string{"sequence"}}
	accountsTable  = ports.ProjectionTable{Schema: "gl", Name: "accounts", Key: []string{"code", "sequence"}}
	journalsTable  = ports.ProjectionTable{Schema: "gl", Name: "journals", Key: []string{"sequence"}}
	linesTable     = ports.ProjectionTable{Schema: "gl", Name: "journal_lines", Key: []string{"sequence", "line_number"}}
	reversalsTable = ports.ProjectionTable{Schema: "gl", Name: "journal_reversals", Key: []string{"journal_id"}}
)

// Tables implements ports.ProjectionTables.
func (p *Projection) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{ledgersTable, accountsTable, journalsTable, linesTable, reversalsTable}
}

// Targets implements ports.ProjectionTargets. A target is a journal with its lines and the
// mark that it was reversed, an account with its names, or the functional currency. The
// reversing journal is a target of its own. Journals and lines are keyed by the sequence of
// their event and have no index by journal id, so rows at a sequence without an event
// cannot be found by their journal.
func (p *Projection) Targets() []ports.ProjectionTarget {
	return []ports.ProjectionTarget{
		{Streams: []string{domain.StreamJournal}, Tables: []ports.TargetTable{
			{ProjectionTable: journalsTable}, {ProjectionTable: linesTable}, {ProjectionTable: reversalsTable, Entity: "journal_id"},
		}},
		{Streams: []string{domain.StreamAccount}, Tables: []ports.TargetTable{{ProjectionTable: accountsTable, Entity: "code"}}},
		{Streams: []string{domain.StreamLedger}, ID: domain.MainStream, Tables: []ports.TargetTable{{ProjectionTable: ledgersTable}}},
	}
}

// Reset implements ports.ProjectionResetter.
func (p *Projection) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return plugin.DeleteRows(ctx, tx, b, p.Tables())
}

func (p *Projection) apply(ctx context.Context, db pgx.Tx, e *event.Recorded, journals *gldb.JournalInsertParams, lines *gldb.JournalLineInsertParams) error {
	data, err := e.Data()
	if err != nil {
		return err
	}
	partition, version, sequence := int32(e.Partition), journals.Version, int64(e.Sequence)
	switch e.Type {
	case domain.EventJournalPosted:
		journal, err := domain.DecodeJournal(data)
		if err != nil {
			return err
		}
		addJournal(journals, e, &journal)
		return addLines(lines, e, &journal)
	case domain.EventJournalReversed:
		var r domain.JournalReversed
		if err := json.Unmarshal(data, &r); err != nil {
			return err
		}
		return p.queries.JournalReversalInsert(ctx, db, &gldb.JournalReversalInsertParams{
			PartitionID: partition, Version: version, Sequence: sequence, JournalID: r.JournalID, ReversedBy: r.ReversedByJournalID,
		})
	case domain.EventLedgerConfigured:
		var s domain.Settings
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		return p.queries.LedgerInsert(ctx, db, &gldb.LedgerInsertParams{
			PartitionID: partition, Version: version, Sequence: sequence, FunctionalCurrency: s.FunctionalCurrency,
		})
	case domain.EventAccountDefined, domain.EventAccountChanged:
		var a domain.Account
		if err := json.Unmarshal(data, &a); err != nil {
			return err
		}
		return p.queries.AccountInsert(ctx, db, &gldb.AccountInsertParams{
			PartitionID: partition, Version: version, Sequence: sequence, Code: a.Code, Name: a.Name, Type: a.Type,
		})
	}
	return nil
}

func addJournal(p *gldb.JournalInsertParams, e *event.Recorded, j *domain.JournalPosted) {
	id := j.JournalID
	if id == "" {
		id = e.Stream.ID
	}
	p.Sequences = append(p.Sequences, int64(e.Sequence))
	p.RecordedAts = append(p.RecordedAts, e.RecordedAt)
	p.EffectiveDates = append(p.EffectiveDates, date(e.EffectiveDate))
	p.EventIds = append(p.EventIds, pgtype.UUID{Bytes: e.ID, Valid: true})
	p.SourceEventIds = append(p.SourceEventIds, j.SourceEventID)
	p.JournalIds = append(p.JournalIds, id)
	p.ReversesJournalIds = append(p.ReversesJournalIds, j.ReversesJournalID)
	p.JournalNumbers = append(p.JournalNumbers, j.JournalNumber)
	p.JournalTypes = append(p.JournalTypes, string(j.JournalType))
	p.Descriptions = append(p.Descriptions, j.Description)
	p.FunctionalCurrencies = append(p.FunctionalCurrencies, j.FunctionalCurrency)
	p.FiscalYears = append(p.FiscalYears, j.FiscalYear)
	p.Periods = append(p.Periods, j.Period)
	p.SourceModules = append(p.SourceModules, j.SourceModule)
}

func addLines(p *gldb.JournalLineInsertParams, e *event.Recorded, j *domain.JournalPosted) error {
	for i := range j.Lines {
		l := &j.Lines[i]
		dimensions := []byte("{}")
		if len(l.Dimensions) > 0 {
			var err error
			if dimensions, err = json.Marshal(l.Dimensions); err != nil {
				return err
			}
		}
		p.Sequences = append(p.Sequences, int64(e.Sequence))
		p.LineNumbers = append(p.LineNumbers, int32(l.LineNumber))
		p.EffectiveDates = append(p.EffectiveDates, date(e.EffectiveDate))
		p.RateDates = append(p.RateDates, optionalDate(l.RateDate))
		p.Sides = append(p.Sides, string(l.Side))
		p.Accounts = append(p.Accounts, l.Account)
		p.Amounts = append(p.Amounts, l.Amount.String())
		p.Currencies = append(p.Currencies, l.Currency)
		p.FunctionalAmounts = append(p.FunctionalAmounts, l.FunctionalAmount.String())
		p.FunctionalCurrencies = append(p.FunctionalCurrencies, j.FunctionalCurrency)
		p.Rates = append(p.Rates, optionalNumber(l.Rate))
		p.Descriptions = append(p.Descriptions, l.Description)
		p.TaxCodes = append(p.TaxCodes, l.TaxCode)
		p.Dimensions = append(p.Dimensions, string(dimensions))
	}
	return nil
}

func date(d event.Date) pgtype.Date { return pgtype.Date{Time: d.Time(), Valid: true} }

func optionalDate(d *event.Date) string {
	if d == nil {
		return ""
	}
	return d.String()
}

func optionalNumber(n money.Number) string {
	if n.IsZero() {
		return ""
	}
	return n.String()
}

// formatTime writes a time as RFC 3339 in UTC with microseconds.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

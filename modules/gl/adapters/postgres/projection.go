package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	totalsTable    = ports.ProjectionTable{Schema: "gl", Name: "line_totals", Key: []string{"account", "effective_date", "block", "functional_currency"}, Derived: true}
	linesTable     = ports.ProjectionTable{Schema: "gl", Name: "journal_lines", Key: []string{"sequence", "line_number"}}
	reversalsTable = ports.ProjectionTable{Schema: "gl", Name: "journal_reversals", Key: []string{"journal_id"}}
	blocksTable    = ports.ProjectionTable{Schema: "gl", Name: "account_blocks", Key: []string{"code", "sequence"}}
	calendarTable  = ports.ProjectionTable{Schema: "gl", Name: "calendar_periods", Key: []string{"sequence", "period"}}
	statesTable    = ports.ProjectionTable{Schema: "gl", Name: "period_states", Key: []string{"module", "period", "sequence"}}
	ratesTable     = ports.ProjectionTable{Schema: "gl", Name: "exchange_rates", Key: []string{"from_currency", "to_currency", "rate_type", "rate_date", "sequence"}}
)

// Tables implements ports.ProjectionTables.
func (p *Projection) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{ledgersTable, accountsTable, journalsTable, linesTable, totalsTable, reversalsTable, blocksTable, calendarTable, statesTable, ratesTable}
}

// Targets implements ports.ProjectionTargets. A target is a journal with its lines and the
// mark that it was reversed, an account with its names and blocks, the functional currency,
// the calendar, the states of a module's period, or the rates of a currency pair. The
// reversing journal is a target of its own. Journals and lines are keyed by the sequence of
// their event and have no index by journal id, so rows at a sequence without an event
// cannot be found by their journal.
func (p *Projection) Targets() []ports.ProjectionTarget {
	return []ports.ProjectionTarget{
		{Streams: []string{domain.StreamJournal}, Tables: []ports.TargetTable{
			{ProjectionTable: journalsTable}, {ProjectionTable: linesTable}, {ProjectionTable: reversalsTable, Entity: "journal_id"},
		}},
		{Streams: []string{domain.StreamAccount}, Tables: []ports.TargetTable{
			{ProjectionTable: accountsTable, Entity: "code"}, {ProjectionTable: blocksTable, Entity: "code"},
		}},
		{Streams: []string{domain.StreamLedger}, ID: domain.MainStream, Tables: []ports.TargetTable{{ProjectionTable: ledgersTable}}},
		{Streams: []string{domain.StreamCalendar}, ID: domain.MainStream, Tables: []ports.TargetTable{{ProjectionTable: calendarTable}}},
		{Streams: []string{domain.StreamPeriod}, Tables: []ports.TargetTable{{ProjectionTable: statesTable}}},
		{Streams: []string{domain.StreamExchangeRate}, Tables: []ports.TargetTable{{ProjectionTable: ratesTable}}},
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
			PartitionID: partition, Version: version, Sequence: sequence, EventID: uuid(e.ID), Code: a.Code, Name: a.Name, Type: a.Type,
			NormalSide: string(a.NormalSide), Parent: a.Parent, Postable: a.Postable, Control: cmp.Or(a.Control, domain.ControlNone),
		})
	case domain.EventAccountBlocked, domain.EventAccountUnblocked:
		return p.queries.AccountBlockInsert(ctx, db, &gldb.AccountBlockInsertParams{
			PartitionID: partition, Version: version, Sequence: sequence, Code: e.Stream.ID, Blocked: e.Type == domain.EventAccountBlocked,
		})
	case domain.EventCalendarExtended:
		return p.addYear(ctx, db, e, version, data)
	case domain.EventExchangeRateSet:
		var r domain.ExchangeRate
		if err := json.Unmarshal(data, &r); err != nil {
			return err
		}
		return p.queries.ExchangeRateInsert(ctx, db, &gldb.ExchangeRateInsertParams{
			PartitionID: partition, Version: version, Sequence: sequence, RecordedAt: e.RecordedAt, EventID: uuid(e.ID), FromCurrency: r.From, ToCurrency: r.To,
			RateType: r.RateType, RateDate: date(r.Date), Rate: r.Rate.String(), ActorID: e.ActorID, Reason: r.Reason,
		})
	}
	if state := periodStateAfter(e.Type); state != "" {
		return p.addPeriodState(ctx, db, e, version, state, data)
	}
	return nil
}

func (p *Projection) addYear(ctx context.Context, db pgx.Tx, e *event.Recorded, version int32, data []byte) error {
	var y domain.FiscalYear
	if err := json.Unmarshal(data, &y); err != nil {
		return err
	}
	row := &gldb.CalendarPeriodInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), FiscalYear: y.Label, YearStart: date(y.Start), YearEnd: date(y.End),
	}
	for _, span := range y.Periods {
		row.Periods = append(row.Periods, span.Period)
		row.PeriodStarts = append(row.PeriodStarts, date(span.Start))
		row.PeriodEnds = append(row.PeriodEnds, date(span.End))
	}
	return p.queries.CalendarPeriodInsert(ctx, db, row)
}

// periodStateAfter is the state of a period after an event, "" if the event changes none.
func periodStateAfter(eventType string) domain.PeriodState {
	switch eventType {
	case domain.EventPeriodOpened, domain.EventPeriodReopened:
		return domain.PeriodOpen
	case domain.EventPeriodSoftClosed:
		return domain.PeriodSoftClosed
	case domain.EventPeriodHardClosed:
		return domain.PeriodHardClosed
	default:
		return ""
	}
}

func (p *Projection) addPeriodState(ctx context.Context, db pgx.Tx, e *event.Recorded, version int32, state domain.PeriodState, data []byte) error {
	var change struct {
		Module string `json:"module"`
		Period string `json:"period"`
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(data, &change); err != nil {
		return err
	}
	return p.queries.PeriodStateInsert(ctx, db, &gldb.PeriodStateInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), RecordedAt: e.RecordedAt, EventID: uuid(e.ID), IntentID: uuid(e.IntentID),
		Module: change.Module, Period: change.Period, State: string(state), ActorID: e.ActorID, Approvers: approvers(e), Reason: change.Reason,
	})
}

// approvers lists the persons who approved the intent of an event, from the traces of its
// rules. The result is never nil.
func approvers(e *event.Recorded) []string {
	out := []string{}
	var rules []event.RuleEvaluation
	if len(e.RulesEvaluated) == 0 || json.Unmarshal(e.RulesEvaluated, &rules) != nil {
		return out
	}
	for _, r := range rules {
		for _, action := range r.ActionsTaken {
			rest, approved := strings.CutPrefix(action, "approved by ")
			person, _, named := strings.Cut(rest, " as ")
			if approved && named && !slices.Contains(out, person) {
				out = append(out, person)
			}
		}
	}
	return out
}

// uuid is NULL for the zero id.
func uuid(id event.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: !id.IsZero()} }

// uuidText is "" for NULL.
func uuidText(id pgtype.UUID) string {
	if !id.Valid {
		return ""
	}
	return event.ID(id.Bytes).String()
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
	p.IntentIds = append(p.IntentIds, uuid(e.IntentID))
	p.ActorIds = append(p.ActorIds, e.ActorID)
	p.Approvers = append(p.Approvers, strings.Join(approvers(e), "\n"))
	p.CorrelationIds = append(p.CorrelationIds, e.CorrelationID)
	p.DocumentDates = append(p.DocumentDates, j.DocumentDate.String())
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

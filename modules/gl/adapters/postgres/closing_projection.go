package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
)

// ClosingProjection writes gl.closing: a row for each step that a period's end has to know. It
// is stateless and idempotent.
type ClosingProjection struct{ queries *gldb.Queries }

var (
	_ ports.ProjectionHandler  = (*ClosingProjection)(nil)
	_ ports.ProjectionResetter = (*ClosingProjection)(nil)
	_ ports.ProjectionTables   = (*ClosingProjection)(nil)
	_ ports.ProjectionTargets  = (*ClosingProjection)(nil)
)

// NewClosingProjection makes the handler of the projection gl.closing.
func NewClosingProjection() *ClosingProjection { return &ClosingProjection{queries: gldb.New()} }

// Kinds of steps. Those of pairs begin with pair_, as queries expect.
const (
	stepSettings        = "settings"         // data: stepSettingsData
	stepAccount         = "account"          // item: code; data: stepAccountData
	stepReversalDue     = "reversal_due"     // item: journal; day: reversal date; data: stepJournalData
	stepReversed        = "journal_reversed" // item: journal
	stepRecurring       = "recurring"        // item: recurring id; data: stepRecurringData
	stepRecurringPosted = "recurring_posted" // item: recurring id; day: posting date
	stepAllocation      = "allocation"       // item: allocation id; data: stepAllocationData
	stepAllocationRun   = "allocation_run"   // item: allocation id; day: the period's last; data: stepJournalData
	stepRevaluation     = "revaluation"      // item: period; day: the period's last; data: the event's
	stepYear            = "year"             // item: fiscal year; data: stepYearData
	stepIntentWaiting   = "intent_waiting"   // item: intent; day: effective date of its plan; data: stepIntentData
	stepIntentEnded     = "intent_ended"     // item: intent
	stepPairInitiated   = "pair_initiated"   // item: pair; day: posting date; data: stepPairData
	stepPairMirrored    = "pair_mirrored"    // item: pair; data: stepPairData
	stepPairRefused     = "pair_refused"     // item: pair
)

type stepSettingsData struct {
	FunctionalCurrency string `json:"functional_currency"`
	RateAgeDays        int    `json:"rate_age_days"`
	OrderlyClose       bool   `json:"orderly_close"`
}

type stepAccountData struct {
	Control string `json:"control"`
	Revalue bool   `json:"revalue"`
}

type stepJournalData struct {
	JournalID     string `json:"journal_id"`
	JournalNumber string `json:"journal_number,omitempty"`
	Period        string `json:"period,omitempty"`
}

type stepRecurringData struct {
	Schedule domain.Schedule `json:"schedule"`
	From     event.Date      `json:"from"`
	Until    *event.Date     `json:"until,omitempty"`
}

type stepAllocationData struct {
	ValidFrom *event.Date `json:"valid_from,omitempty"`
	ValidTo   *event.Date `json:"valid_to,omitempty"`
}

type stepYearData struct {
	Closed bool `json:"closed"`
}

type stepIntentData struct {
	IntentType string `json:"intent_type"`
}

type stepPairData struct {
	JournalID string       `json:"journal_id"`
	Currency  string       `json:"currency,omitempty"`
	Amount    money.Number `json:"amount,omitzero"`
}

var closeStepsTable = ports.ProjectionTable{Schema: "gl", Name: "close_steps", Key: []string{"sequence", "kind"}}

// Tables implements ports.ProjectionTables.
func (p *ClosingProjection) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{closeStepsTable}
}

// Targets implements ports.ProjectionTargets. Rows of streams of many types share the table;
// those of a stream are found by the sequences of its events.
func (p *ClosingProjection) Targets() []ports.ProjectionTarget {
	return []ports.ProjectionTarget{{
		Streams: []string{
			domain.StreamJournal, domain.StreamLedger, domain.StreamAccount, domain.StreamRecurring, domain.StreamAllocation, domain.StreamRevaluation,
			domain.StreamIntercompany, domain.StreamFiscalYear, intent.StreamOf(event.ID{}).Type,
		},
		Tables: []ports.TargetTable{{ProjectionTable: closeStepsTable}},
	}}
}

// Reset implements ports.ProjectionResetter.
func (p *ClosingProjection) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return plugin.DeleteRows(ctx, tx, b, p.Tables())
}

// Apply implements ports.ProjectionHandler; tx must be a pgx.Tx.
func (p *ClosingProjection) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	db, err := plugin.Tx(tx)
	if err != nil {
		return err
	}
	for i := range b.Events {
		e := &b.Events[i]
		steps, err := closeSteps(e)
		if err != nil {
			return fmt.Errorf("event %s: %w", e.ID, err)
		}
		for _, s := range steps {
			if err := p.insert(ctx, db, int32(b.Version), e, s); err != nil {
				return fmt.Errorf("event %s: %w", e.ID, err)
			}
		}
	}
	return nil
}

func (p *ClosingProjection) insert(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, s closeStep) error {
	data, err := json.Marshal(s.data)
	if err != nil {
		return err
	}
	row := &gldb.CloseStepInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), RecordedAt: e.RecordedAt, EventID: uuid(e.ID),
		TenantID: e.Scope.TenantID, LegalEntity: e.Scope.LegalEntity, Kind: s.kind, Item: s.item, Counterparty: s.counterparty, ActorID: e.ActorID, Data: string(data),
	}
	if s.day != nil {
		row.Day = pgtype.Date{Time: s.day.Time(), Valid: true}
	}
	return p.queries.CloseStepInsert(ctx, db, row)
}

type closeStep struct {
	kind, item, counterparty string
	day                      *event.Date
	data                     any
}

// closeSteps are the rows of an event. Of the many journals it decodes only those whose tags
// say that they matter.
func closeSteps(e *event.Recorded) ([]closeStep, error) {
	if e.Type == domain.EventJournalPosted && !slices.Contains(e.Tags, contract.TagReversalDue) && !slices.Contains(e.Tags, contract.TagRecurring) {
		return nil, nil
	}
	body, err := e.Data()
	if err != nil {
		return nil, err
	}
	step := closeStep{item: e.Stream.ID, data: struct{}{}}
	switch e.Type {
	case domain.EventJournalPosted:
		return journalSteps(e, body)
	case domain.EventJournalReversed:
		step.kind = stepReversed
	case domain.EventLedgerConfigured:
		var s domain.Settings
		err = json.Unmarshal(body, &s)
		step.kind, step.data = stepSettings, stepSettingsData{FunctionalCurrency: s.FunctionalCurrency, RateAgeDays: s.RateAgeDays, OrderlyClose: s.OrderlyClose}
	case domain.EventAccountDefined, domain.EventAccountChanged:
		var a domain.Account
		err = json.Unmarshal(body, &a)
		step.kind, step.data = stepAccount, stepAccountData{Control: a.Control, Revalue: a.Revalue}
	case domain.EventRecurringDefined:
		var r stepRecurringData
		err = json.Unmarshal(body, &r)
		step.kind, step.data = stepRecurring, r
	case domain.EventAllocationDefined:
		var a stepAllocationData
		err = json.Unmarshal(body, &a)
		step.kind, step.data = stepAllocation, a
	case domain.EventAllocationCompleted:
		var a domain.AllocationCompleted
		err = json.Unmarshal(body, &a)
		step.kind, step.day, step.data = stepAllocationRun, &a.Date, stepJournalData{JournalID: a.JournalID, Period: a.Period}
	case domain.EventRevaluationCompleted:
		var r domain.RevaluationCompleted
		err = json.Unmarshal(body, &r)
		step.kind, step.item, step.day, step.data = stepRevaluation, r.Period, &r.Date, body
	case domain.EventYearClosed, domain.EventYearReopened:
		step.kind, step.data = stepYear, stepYearData{Closed: e.Type == domain.EventYearClosed}
	case domain.EventIntercompanyInitiated:
		var i domain.IntercompanyInitiated
		err = json.Unmarshal(body, &i)
		step.kind, step.counterparty, step.day = stepPairInitiated, i.Counterparty, &i.PostingDate
		step.data = stepPairData{JournalID: i.JournalID, Currency: i.Currency, Amount: i.Amount}
	case domain.EventIntercompanyMirrored:
		var m domain.IntercompanyMirrored
		err = json.Unmarshal(body, &m)
		step.kind, step.data = stepPairMirrored, stepPairData{JournalID: m.JournalID}
	case domain.EventIntercompanyRefused:
		step.kind = stepPairRefused
	case intent.Waiting, intent.ApprovalRecorded:
		var w struct {
			stepIntentData
			EffectiveDate *event.Date `json:"effective_date"`
		}
		err = json.Unmarshal(body, &w)
		step.kind, step.day, step.data = stepIntentWaiting, w.EffectiveDate, w.stepIntentData
	case intent.Approved, intent.RejectedEvent, intent.WithdrawnEvent, intent.ExpiredEvent:
		step.kind = stepIntentEnded
	default:
		return nil, nil
	}
	return []closeStep{step}, err
}

// journalSteps are the rows of a journal that is due to be reversed, or was posted from a
// recurring one, or both.
func journalSteps(e *event.Recorded, body []byte) (steps []closeStep, err error) {
	j, err := domain.DecodeJournal(body)
	if err != nil {
		return nil, err
	}
	if j.ReversalDate != nil && j.SourceModule == "" {
		steps = append(steps, closeStep{
			kind: stepReversalDue, item: e.Stream.ID, day: j.ReversalDate, data: stepJournalData{JournalID: e.Stream.ID, JournalNumber: j.JournalNumber},
		})
	}
	if j.RecurringID != "" {
		day := e.EffectiveDate
		steps = append(steps, closeStep{kind: stepRecurringPosted, item: j.RecurringID, day: &day, data: struct{}{}})
	}
	return steps, nil
}

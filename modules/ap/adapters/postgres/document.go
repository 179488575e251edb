package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/ports"
)

// Document answers ap/invoices/{id}: a document of either kind with its whole life.
type Document struct {
	pool             *pgxpool.Pool
	queries          *apdb.Queries
	ordersProjection string
}

var _ ports.ReadModelSource = (*Document)(nil)

// NewDocument makes the source, with the name of the projection of purchase orders. The role of
// the pool must be able to read the schema ap.
func NewDocument(pool *pgxpool.Pool, ordersProjection string) *Document {
	return &Document{pool: pool, queries: apdb.New(), ordersProjection: ordersProjection}
}

const paramID = "id"

// timelineRow is an event of the document.
type timelineRow struct {
	Sequence      string          `json:"sequence"`
	RecordedAt    string          `json:"recorded_at"`
	EffectiveDate event.Date      `json:"effective_date"`
	Action        string          `json:"action"`
	State         string          `json:"state"` // afterwards
	ActorType     string          `json:"actor_type"`
	ActorID       string          `json:"actor_id"`
	OnBehalfOf    string          `json:"on_behalf_of"`
	Data          json.RawMessage `json:"data"`
	EventID       string          `json:"event_id"`
}

// stepBy says who did something, when, and in which event.
type stepBy struct {
	ActorID    string `json:"actor_id"`
	OnBehalfOf string `json:"on_behalf_of,omitempty"`
	At         string `json:"at"`
	Reason     string `json:"reason,omitempty"`
	EventID    string `json:"event_id"`
}

type documentHold struct {
	HoldID   string  `json:"hold_id"`
	Kind     string  `json:"kind"`
	Blocks   string  `json:"blocks"`
	Placed   stepBy  `json:"placed"`
	Released *stepBy `json:"released"` // null: open, or ended by a reinstatement
	Open     bool    `json:"open"`
}

type documentApproval struct {
	Step             int    `json:"step"`
	StepsRequired    int    `json:"steps_required"`
	FunctionalAmount string `json:"functional_amount"`
	Counts           bool   `json:"counts"` // false: a later body made it lapse
	stepBy
}

type documentApplication struct {
	Date             event.Date `json:"date"`
	Action           string     `json:"action"`
	ApplicationID    string     `json:"application_id,omitempty"`
	Counterpart      string     `json:"counterpart"`
	Amount           string     `json:"amount"`
	FunctionalAmount string     `json:"functional_amount"`
	JournalID        string     `json:"journal_id,omitempty"`
	EventID          string     `json:"event_id"`
}

type documentJournal struct {
	JournalID string `json:"journal_id"`
	Action    string `json:"action"` // that the journal belongs to
}

// Query implements ports.ReadModelSource. Faults: ap.invoice.not_found, cursor.invalid,
// read.rebuilding.
func (d *Document) Query(ctx context.Context, q ports.ReadModelQuery) (report ports.Report, err error) {
	if err := requireRows(ctx, d.pool, d.queries, q); err != nil {
		return report, err
	}
	// One snapshot for the body and what became of it.
	err = pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		report, err = d.report(ctx, tx, q)
		return err
	})
	return report, err
}

func (d *Document) report(ctx context.Context, tx pgx.Tx, q ports.ReadModelQuery) (ports.Report, error) {
	id, partition, version, known := q.Params[paramID], int32(q.Partition), int32(q.Version), int64(q.Known)
	book, err := functionalCurrency(ctx, tx, d.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	body, err := d.queries.DocumentBody(ctx, tx, &apdb.DocumentBodyParams{PartitionID: partition, Version: version, DocumentID: id, Known: known})
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.Report{}, fault.New(fault.NotFound, contract.Invoice.Code("not_found"),
			"no invoice or credit memo has this id in this legal entity; look it up in ap/documents").WithField(paramID)
	}
	if err != nil {
		return ports.Report{}, fmt.Errorf("body: %w", err)
	}
	state, err := d.queries.DocumentState(ctx, tx, &apdb.DocumentStateParams{PartitionID: partition, Version: version, DocumentID: id, Known: known})
	if err != nil {
		return ports.Report{}, fmt.Errorf("state: %w", err)
	}
	steps, err := d.queries.DocumentSteps(ctx, tx, &apdb.DocumentStepsParams{PartitionID: partition, Version: version, DocumentID: id, Known: known})
	if err != nil {
		return ports.Report{}, fmt.Errorf("steps: %w", err)
	}
	entries, err := d.queries.DocumentEntries(ctx, tx, &apdb.DocumentEntriesParams{PartitionID: partition, Version: version, DocumentID: id, Known: known})
	if err != nil {
		return ports.Report{}, fmt.Errorf("entries: %w", err)
	}
	life := documentLife{book: book, holds: []documentHold{}, approvals: []documentApproval{}, applications: []documentApplication{}, journals: []documentJournal{}}
	if body.Currency != "" {
		if life.currency, err = money.LookupCurrency(body.Currency, time.Time{}); err != nil {
			return ports.Report{}, err
		}
	}
	if err := life.addEntries(entries); err != nil {
		return ports.Report{}, err
	}
	for i := range steps {
		if err := life.addStep(&steps[i]); err != nil {
			return ports.Report{}, fmt.Errorf("step %d: %w", steps[i].Sequence, err)
		}
	}
	if state == string(domain.StatePosted) {
		state = life.openState()
	}
	match, err := matchTable(ctx, tx, d.queries, q, int32(q.Versions[d.ordersProjection]), id, []byte(body.Body))
	if err != nil {
		return ports.Report{}, err
	}
	report := ports.Report{
		Header: append(header(q, book), ports.ReportFields{
			{Name: "document_id", Value: id}, {Name: "kind", Value: body.Kind}, {Name: "vendor_id", Value: body.VendorID}, {Name: "number", Value: body.InvoiceNumber},
			{Name: "state", Value: state}, {Name: "currency", Value: body.Currency}, {Name: "total", Value: formatAmount(life.total, life.currency)},
			{Name: "open", Value: formatAmount(life.open, life.currency)}, {Name: "open_functional", Value: formatAmount(life.openFunctional, book)},
			{Name: "dimensions", Value: json.RawMessage(body.Dimensions)}, {Name: "document", Value: json.RawMessage(body.Body)},
		}...),
		Footer: ports.ReportFields{
			{Name: "holds", Value: life.holds}, {Name: "approvals", Value: life.approvals},
			{Name: "applications", Value: life.applications}, {Name: "journals", Value: life.journals}, {Name: "match", Value: match},
		},
	}
	return report, life.page(&report, q)
}

// page puts a page of the timeline into the report.
func (l *documentLife) page(report *ports.Report, q ports.ReadModelQuery) error {
	first := 0 // row of the page
	if q.Cursor != "" {
		if err := readCursor(q.Cursor, &first); err != nil {
			return err
		}
	}
	timeline := l.timeline[min(max(first, 0), len(l.timeline)):]
	if report.HasMore = len(timeline) > q.Limit; report.HasMore {
		timeline = timeline[:q.Limit]
		var err error
		if report.NextCursor, err = cursorText(first + q.Limit); err != nil {
			return err
		}
	}
	for _, r := range timeline {
		report.Rows = append(report.Rows, r)
	}
	return nil
}

// documentLife collects what became of a document.
type documentLife struct {
	currency, book money.Currency

	total, open, openFunctional money.Number
	entries                     map[string]apdb.DocumentEntriesRow // by event

	state        string       // after the latest step
	posted       money.Number // by the latest posting, not negative
	timeline     []timelineRow
	holds        []documentHold
	approvals    []documentApproval
	applications []documentApplication
	journals     []documentJournal
}

func (l *documentLife) addEntries(entries []apdb.DocumentEntriesRow) error {
	l.entries = map[string]apdb.DocumentEntriesRow{}
	for _, e := range entries {
		var amount, functional money.Number
		if err := errors.Join(amount.Scan(e.Amount), functional.Scan(e.FunctionalAmount)); err != nil {
			return err
		}
		l.open, l.openFunctional = l.open.Add(amount), l.openFunctional.Add(functional)
		if e.Action == contract.Posted || e.Action == contract.Voided {
			l.total = l.total.Add(amount)
		}
		l.entries[e.EventID] = e
	}
	return nil
}

func (l *documentLife) openState() string {
	switch {
	case l.open.IsZero():
		return string(domain.StatePaid)
	case l.open.Equal(l.total):
		return string(domain.StatePosted)
	default:
		return string(domain.StatePartiallyPaid)
	}
}

// stepData has the members of the events' data that the report explains.
type stepData struct {
	HoldID           string       `json:"hold_id"`
	Kind             string       `json:"kind"`
	Blocks           string       `json:"blocks"`
	Reason           string       `json:"reason"`
	Comment          string       `json:"comment"`
	Step             int          `json:"step"`
	StepsRequired    int          `json:"steps_required"`
	Amount           money.Number `json:"amount"`
	FunctionalAmount money.Number `json:"functional_amount"`
	OpenAfter        money.Number `json:"open_after"`
	ApplicationID    string       `json:"application_id"`
	JournalID        string       `json:"journal_id"`
}

func (l *documentLife) addStep(s *apdb.DocumentStepsRow) error {
	var data stepData
	if err := json.Unmarshal([]byte(s.Data), &data); err != nil {
		return err
	}
	eventID, err := eventIDText(s.EventID)
	if err != nil {
		return err
	}
	by := stepBy{ActorID: s.ActorID, OnBehalfOf: s.OnBehalfOf, At: formatTime(s.RecordedAt), Reason: data.Reason, EventID: eventID}
	if next, ok := stateAfter[s.Action]; ok {
		l.state = string(next)
	} else if _, settles := settlementSigns[s.Action]; settles {
		if l.state = string(domain.StatePartiallyPaid); data.OpenAfter.IsZero() {
			l.state = string(domain.StatePaid)
		} else if data.OpenAfter.Equal(l.posted) {
			l.state = string(domain.StatePosted)
		}
	}
	switch s.Action {
	case contract.Posted:
		l.posted = data.Amount
	case contract.Held:
		l.holds = append(l.holds, documentHold{HoldID: data.HoldID, Kind: data.Kind, Blocks: data.Blocks, Placed: by, Open: true})
	case contract.HoldReleased:
		for i := range l.holds {
			if l.holds[i].HoldID == data.HoldID {
				l.holds[i].Released, l.holds[i].Open = &by, false
			}
		}
	case contract.Corrected, contract.Reinstated:
		for i := range l.approvals {
			l.approvals[i].Counts = false
		}
		if s.Action == contract.Reinstated {
			for i := range l.holds {
				l.holds[i].Open = false
			}
		}
	case contract.ApprovalRecorded, contract.Approved:
		by.Reason = data.Comment
		l.approvals = append(l.approvals, documentApproval{
			Step: data.Step, StepsRequired: data.StepsRequired, FunctionalAmount: formatAmount(data.FunctionalAmount, l.book), Counts: true, stepBy: by,
		})
	}
	if e, ok := l.entries[s.EventID]; ok && e.Action != contract.Posted && e.Action != contract.Voided {
		var amount, functional money.Number
		if err := errors.Join(amount.Scan(e.Amount), functional.Scan(e.FunctionalAmount)); err != nil {
			return err
		}
		l.applications = append(l.applications, documentApplication{
			Date: event.DateOf(e.EffectiveDate.Time), Action: e.Action, ApplicationID: data.ApplicationID, Counterpart: e.Counterpart,
			Amount: formatAmount(amount, l.currency), FunctionalAmount: formatAmount(functional, l.book), JournalID: data.JournalID, EventID: eventID,
		})
	}
	if data.JournalID != "" && !slices.ContainsFunc(l.journals, func(j documentJournal) bool { return j.JournalID == data.JournalID }) {
		l.journals = append(l.journals, documentJournal{JournalID: data.JournalID, Action: s.Action})
	}
	l.timeline = append(l.timeline, timelineRow{
		Sequence: fmt.Sprint(s.Sequence), RecordedAt: formatTime(s.RecordedAt), EffectiveDate: event.DateOf(s.EffectiveDate.Time), Action: s.Action, State: l.state,
		ActorType: s.ActorType, ActorID: s.ActorID, OnBehalfOf: s.OnBehalfOf, Data: json.RawMessage(s.Data), EventID: eventID,
	})
	return nil
}

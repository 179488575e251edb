package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/ports"
)

// Worklist answers ap/documents: documents by state, hold, age and who acts next.
type Worklist struct {
	pool    *pgxpool.Pool
	queries *apdb.Queries
}

var _ ports.ReadModelSource = (*Worklist)(nil)

// NewWorklist makes the source. The role of the pool must be able to read the schema ap.
func NewWorklist(pool *pgxpool.Pool) *Worklist { return &Worklist{pool: pool, queries: apdb.New()} }

// Parameters of the worklist.
const (
	paramState     = "state"
	paramHold      = "hold"
	paramNextRole  = "next_role"
	paramOlderThan = "older_than"
)

// stepRoles has the roles that may do the next step of a document, as the policy permits it.
var stepRoles = map[string][]string{
	"submit":             {"ap_clerk"},
	"correct_or_release": {"ap_clerk", "approver", "controller"},
	"approve":            {"approver", "controller", "cfo"},
	"release":            {"approver", "controller"},
	"pay":                {"treasurer"},
	"apply":              {"ap_clerk", "treasurer"},
	"reinstate":          {"ap_clerk"},
}

// unfinishedStates are the states of the worklist if none is asked for.
var unfinishedStates = []string{
	string(domain.StateDraft), string(domain.StateSubmitted), string(domain.StateValidated), string(domain.StatePosted), string(domain.StatePartiallyPaid),
}

// finishedStates can be asked for.
var finishedStates = []string{
	string(domain.StatePaid), string(domain.StateRejected), string(domain.StateVoided), string(domain.StateDiscarded),
}

type worklistRow struct {
	VendorID       string         `json:"vendor_id"`
	DocumentID     string         `json:"document_id"`
	Number         string         `json:"number"`
	Kind           string         `json:"kind"`
	State          string         `json:"state"`
	InvoiceDate    *event.Date    `json:"invoice_date"`
	DueDate        *event.Date    `json:"due_date"`
	Currency       string         `json:"currency"`
	Total          string         `json:"total"`
	Open           string         `json:"open"`
	OpenFunctional string         `json:"open_functional"`
	Holds          []worklistHold `json:"holds"`
	AgeDays        int            `json:"age_days"`
	StateDays      int            `json:"state_days"`
	NextStep       string         `json:"next_step"`
	NextRoles      []string       `json:"next_roles"`
	EventID        string         `json:"event_id"`
}

type worklistHold struct {
	HoldID  string `json:"hold_id"`
	Kind    string `json:"kind"`
	Blocks  string `json:"blocks"`
	AgeDays int    `json:"age_days"`
}

// Query implements ports.ReadModelSource. The state is that known at the sequence; as_of only
// decides ages. Faults: report.parameter_invalid, cursor.invalid, read.rebuilding.
func (w *Worklist) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	if err := requireRows(ctx, w.pool, w.queries, q); err != nil {
		return ports.Report{}, err
	}
	book, err := functionalCurrency(ctx, w.pool, w.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	params, err := worklistFilters(q)
	if err != nil {
		return ports.Report{}, err
	}
	found, err := w.queries.DocumentWorklist(ctx, w.pool, params)
	if err != nil {
		return ports.Report{}, fmt.Errorf("worklist: %w", err)
	}
	report := ports.Report{Header: header(q, book, paramState, paramHold, paramVendor, paramKind, paramNextRole, paramOlderThan)}
	if report.HasMore = len(found) > q.Limit; report.HasMore {
		found = found[:q.Limit]
		if report.NextCursor, err = cursorText(found[q.Limit-1].DocumentID); err != nil {
			return ports.Report{}, err
		}
	}
	for i := range found {
		row, err := toWorklistRow(&found[i], q, book)
		if err != nil {
			return ports.Report{}, fmt.Errorf("document %s: %w", found[i].DocumentID, err)
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

func worklistFilters(q ports.ReadModelQuery) (*apdb.DocumentWorklistParams, error) {
	p := &apdb.DocumentWorklistParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), Hold: q.Params[paramHold], VendorID: q.Params[paramVendor],
		Kind: q.Params[paramKind], States: unfinishedStates, NextSteps: []string{}, EnteredBefore: farFuture, PageSize: int32(q.Limit + 1),
	}
	if state := q.Params[paramState]; state != "" {
		if !slices.Contains(unfinishedStates, state) && !slices.Contains(finishedStates, state) {
			return nil, parameterFault(paramState, "one of draft, submitted, validated, posted, partially_paid, paid, rejected, voided, discarded")
		}
		p.States = []string{state}
	}
	p.StoredStates = storedStates(p.States)
	if p.Kind != "" && !slices.Contains(documentKinds, p.Kind) {
		return nil, parameterFault(paramKind, kindsText)
	}
	if role := q.Params[paramNextRole]; role != "" {
		for _, step := range slices.Sorted(maps.Keys(stepRoles)) {
			if slices.Contains(stepRoles[step], role) {
				p.NextSteps = append(p.NextSteps, step)
			}
		}
		if len(p.NextSteps) == 0 {
			return nil, parameterFault(paramNextRole, "one of ap_clerk, approver, controller, cfo, treasurer")
		}
	}
	if text := q.Params[paramOlderThan]; text != "" {
		days, err := strconv.ParseInt(text, 10, 32)
		if err != nil || days < 0 {
			return nil, parameterFault(paramOlderThan, "a number of days")
		}
		p.EnteredBefore = startOfDay(q.AsOf.AddDays(-int(days)), q.Entity)
	}
	if q.Cursor != "" {
		return p, readCursor(q.Cursor, &p.AfterDocumentID)
	}
	return p, nil
}

// farFuture is after every event.
var farFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// startOfDay is when a day begins in the legal entity.
func startOfDay(d event.Date, le ports.LegalEntity) time.Time {
	t := d.Time()
	zone, err := time.LoadLocation(le.TimeZone)
	if err != nil {
		zone = time.UTC
	}
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, zone)
}

// storedStates are the states of rows that may be shown as one of the states: what is open of a
// posted document decides whether it is partially paid or paid.
func storedStates(shown []string) []string {
	stored := slices.Clone(shown)
	if slices.Contains(shown, string(domain.StatePartiallyPaid)) || slices.Contains(shown, string(domain.StatePaid)) {
		stored = append(stored, string(domain.StatePosted))
	}
	slices.Sort(stored)
	return slices.Compact(stored)
}

// documentKinds are the kinds of rows.
var documentKinds = []string{string(contract.Invoice), kindPrepayment, kindOpening, string(contract.CreditMemo)}

const kindsText = "one of invoice, prepayment, opening, credit_memo"

func toWorklistRow(r *apdb.DocumentWorklistRow, q ports.ReadModelQuery, book money.Currency) (worklistRow, error) {
	var total, open, functional money.Number
	if err := errors.Join(total.Scan(r.Total), open.Scan(r.Open), functional.Scan(r.OpenFunctional)); err != nil {
		return worklistRow{}, err
	}
	if r.Kind == string(contract.CreditMemo) {
		total = total.Neg()
	}
	eventID, err := eventIDText(r.EventID)
	if err != nil {
		return worklistRow{}, err
	}
	var holds []struct {
		worklistHold
		PlacedAt time.Time `json:"placed_at"`
	}
	if err := json.Unmarshal([]byte(r.Holds), &holds); err != nil {
		return worklistRow{}, err
	}
	age := func(since time.Time) int { return max(0, int(q.AsOf-q.Entity.Today(since))) }
	row := worklistRow{
		VendorID: r.VendorID, DocumentID: r.DocumentID, Number: r.InvoiceNumber, Kind: r.Kind, State: r.State, InvoiceDate: optionalDate(r.InvoiceDate),
		DueDate: optionalDate(r.DueDate), Currency: r.Currency, OpenFunctional: formatAmount(functional, book), Holds: []worklistHold{},
		AgeDays: age(r.EnteredAt), StateDays: age(r.Since), NextStep: r.NextStep, NextRoles: stepRoles[r.NextStep], EventID: eventID,
	}
	if row.NextRoles == nil {
		row.NextRoles = []string{}
	}
	if row.Total, row.Open, err = formatIn(r.Currency, total, open); err != nil {
		return worklistRow{}, err
	}
	for _, h := range holds {
		h.AgeDays = age(h.PlacedAt)
		row.Holds = append(row.Holds, h.worklistHold)
	}
	return row, nil
}

// formatIn writes two amounts in a currency, as they are for a draft that has none.
func formatIn(code string, a, b money.Number) (first, second string, err error) {
	if code == "" {
		return a.String(), b.String(), nil
	}
	c, err := money.LookupCurrency(code, time.Time{})
	return formatAmount(a, c), formatAmount(b, c), err
}

package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/ports"
)

// Parameters of payments and payment runs.
const (
	paramTo  = "to"
	paramRun = "run"
)

// States of runs, and of payments in them.
var (
	runStates     = []string{domain.RunProposed, domain.RunApproved, domain.RunExported, domain.RunRejected}
	paymentStates = append(slices.Clip(runStates), stateExcluded, domain.PaymentExecuted, domain.PaymentFailed, domain.PaymentVoided)
)

const stateExcluded = "excluded"

// paymentStep is something that happened to a run or payment.
type paymentStep struct {
	Step    string     `json:"step"`
	At      string     `json:"at"`
	By      string     `json:"by"`
	Date    event.Date `json:"date"`
	EventID string     `json:"event_id"`
}

// readSteps reads the steps of a row.
func readSteps(text string) ([]paymentStep, error) {
	var stored []struct {
		paymentStep
		At time.Time `json:"at"`
	}
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, err
	}
	steps := make([]paymentStep, len(stored))
	for i, s := range stored {
		steps[i] = s.paymentStep
		steps[i].At = formatTime(s.At)
		var err error
		if steps[i].EventID, err = eventIDText(s.EventID); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// paymentFilter is what both lists are filtered by.
type paymentFilter struct {
	state    string
	from, to pgtype.Date
}

func readPaymentFilter(q ports.ReadModelQuery, states []string) (f paymentFilter, err error) {
	f.state, f.from, f.to = q.Params[paramState], pgtype.Date{InfinityModifier: pgtype.NegativeInfinity, Valid: true}, pgtype.Date{InfinityModifier: pgtype.Infinity, Valid: true}
	if f.state != "" && !slices.Contains(states, f.state) {
		return f, parameterFault(paramState, "one of "+strings.Join(states, ", "))
	}
	for name, bound := range map[string]*pgtype.Date{paramFrom: &f.from, paramTo: &f.to} {
		if text := q.Params[name]; text != "" {
			d, err := event.ParseDate(text)
			if err != nil {
				return f, err
			}
			*bound = date(d)
		}
	}
	return f, nil
}

// Payments answers ap/payments.
type Payments struct {
	pool    *pgxpool.Pool
	queries *apdb.Queries
}

var _ ports.ReadModelSource = (*Payments)(nil)

// NewPayments makes the source. The role of the pool must be able to read the schema ap.
func NewPayments(pool *pgxpool.Pool) *Payments { return &Payments{pool: pool, queries: apdb.New()} }

type paymentRow struct {
	RunID         string        `json:"run_id"`
	PaymentID     string        `json:"payment_id"`
	VendorID      string        `json:"vendor_id"`
	Currency      string        `json:"currency"`
	Amount        string        `json:"amount"`
	Discount      string        `json:"discount"`
	Documents     int           `json:"documents"`
	State         string        `json:"state"`
	InTransit     bool          `json:"in_transit"`
	BankAccount   string        `json:"bank_account"`
	PayDate       event.Date    `json:"pay_date"`
	ExecutedOn    *event.Date   `json:"executed_on"`
	BankReference string        `json:"bank_reference"`
	BankStatus    string        `json:"bank_status"`
	ReasonCode    string        `json:"reason_code"`
	FileSHA256    string        `json:"file_sha256"`
	Steps         []paymentStep `json:"steps"`
	EventID       string        `json:"event_id"`
}

// paymentCursor is the last payment of a page.
type paymentCursor struct {
	RunID    string `json:"r"`
	Position int32  `json:"p"`
}

// Query implements ports.ReadModelSource. Faults: report.parameter_invalid, cursor.invalid.
func (s *Payments) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	filter, err := readPaymentFilter(q, paymentStates)
	if err != nil {
		return ports.Report{}, err
	}
	var after paymentCursor
	if q.Cursor != "" {
		if err := readCursor(q.Cursor, &after); err != nil {
			return ports.Report{}, err
		}
	}
	found, err := s.queries.PaymentList(ctx, s.pool, &apdb.PaymentListParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), AsOf: date(q.AsOf), FromDate: filter.from, ToDate: filter.to,
		RunID: q.Params[paramRun], VendorID: q.Params[paramVendor], State: filter.state, AfterRunID: after.RunID, AfterPosition: after.Position, PageSize: int32(q.Limit + 1),
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("payments: %w", err)
	}
	var report ports.Report
	if report.HasMore = len(found) > q.Limit; report.HasMore {
		found = found[:q.Limit]
		last := &found[q.Limit-1]
		if report.NextCursor, err = cursorText(paymentCursor{last.RunID, last.Position}); err != nil {
			return ports.Report{}, err
		}
	}
	for i := range found {
		row, err := toPaymentRow(&found[i])
		if err != nil {
			return ports.Report{}, fmt.Errorf("payment %s: %w", found[i].PaymentID, err)
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

func toPaymentRow(r *apdb.PaymentListRow) (paymentRow, error) {
	row := paymentRow{
		RunID: r.RunID, PaymentID: r.PaymentID, VendorID: r.VendorID, Currency: r.Currency, Documents: int(r.Documents), State: r.State,
		InTransit: r.State == domain.RunExported, BankAccount: r.BankAccount, PayDate: event.DateOf(r.PayDate.Time),
		BankReference: r.BankReference, BankStatus: r.BankStatus, ReasonCode: r.ReasonCode, FileSHA256: r.FileSha256,
	}
	var err error
	if row.Amount, row.Discount, err = formatTexts(r.Currency, r.Amount, r.Discount); err != nil {
		return paymentRow{}, err
	}
	if r.ExecutedOn != "" {
		day, err := event.ParseDate(r.ExecutedOn)
		if err != nil {
			return paymentRow{}, err
		}
		row.ExecutedOn = &day
	}
	if row.Steps, err = readSteps(r.Steps); err != nil {
		return paymentRow{}, err
	}
	row.EventID, err = eventIDText(r.EventID)
	return row, err
}

// formatTexts writes two stored amounts in a currency.
func formatTexts(code, first, second string) (a, b string, err error) {
	var one, two money.Number
	if err := one.Scan(first); err != nil {
		return "", "", err
	}
	if err := two.Scan(second); err != nil {
		return "", "", err
	}
	return formatIn(code, one, two)
}

// PaymentRuns answers ap/payment-runs.
type PaymentRuns struct {
	pool    *pgxpool.Pool
	queries *apdb.Queries
}

var _ ports.ReadModelSource = (*PaymentRuns)(nil)

// NewPaymentRuns makes the source. The role of the pool must be able to read the schema ap.
func NewPaymentRuns(pool *pgxpool.Pool) *PaymentRuns {
	return &PaymentRuns{pool: pool, queries: apdb.New()}
}

type paymentRunRow struct {
	RunID       string            `json:"run_id"`
	State       string            `json:"state"`
	BankAccount string            `json:"bank_account"`
	PayDate     event.Date        `json:"pay_date"`
	Payments    int               `json:"payments"`
	InTransit   bool              `json:"in_transit"`
	Totals      []paymentRunTotal `json:"totals"`
	MessageID   string            `json:"message_id"`
	FileSHA256  string            `json:"file_sha256"`
	Steps       []paymentStep     `json:"steps"`
	EventID     string            `json:"event_id"`
}

// paymentRunTotal are the payments of a run in a currency, by what became of them.
type paymentRunTotal struct {
	Currency  string `json:"currency"`
	Payments  int    `json:"payments"`
	Amount    string `json:"amount"`
	Executed  string `json:"executed"`
	Failed    string `json:"failed"`
	Voided    string `json:"voided"`
	InTransit string `json:"in_transit"`
	Excluded  string `json:"excluded"`
}

// Query implements ports.ReadModelSource. Faults: report.parameter_invalid, cursor.invalid.
func (s *PaymentRuns) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	filter, err := readPaymentFilter(q, runStates)
	if err != nil {
		return ports.Report{}, err
	}
	var after string
	if q.Cursor != "" {
		if err := readCursor(q.Cursor, &after); err != nil {
			return ports.Report{}, err
		}
	}
	found, err := s.queries.PaymentRunList(ctx, s.pool, &apdb.PaymentRunListParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), AsOf: date(q.AsOf), FromDate: filter.from, ToDate: filter.to,
		State: filter.state, AfterRunID: after, PageSize: int32(q.Limit + 1),
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("payment runs: %w", err)
	}
	var report ports.Report
	if report.HasMore = len(found) > q.Limit; report.HasMore {
		found = found[:q.Limit]
		if report.NextCursor, err = cursorText(found[q.Limit-1].RunID); err != nil {
			return ports.Report{}, err
		}
	}
	for i := range found {
		row, err := toPaymentRunRow(&found[i])
		if err != nil {
			return ports.Report{}, fmt.Errorf("payment run %s: %w", found[i].RunID, err)
		}
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

func toPaymentRunRow(r *apdb.PaymentRunListRow) (paymentRunRow, error) {
	row := paymentRunRow{
		RunID: r.RunID, State: r.State, BankAccount: r.BankAccount, PayDate: event.DateOf(r.PayDate.Time), Totals: []paymentRunTotal{},
		MessageID: r.MessageID, FileSHA256: r.FileSha256,
	}
	var stored []struct {
		paymentRunTotal
		Unanswered string `json:"unanswered"`
	}
	if err := json.Unmarshal([]byte(r.Totals), &stored); err != nil {
		return paymentRunRow{}, err
	}
	for _, t := range stored {
		if t.InTransit = "0"; r.State == domain.RunExported {
			t.InTransit = t.Unanswered
		}
		row.Payments += t.Payments
		var unanswered money.Number
		if err := unanswered.Scan(t.InTransit); err != nil {
			return paymentRunRow{}, err
		}
		row.InTransit = row.InTransit || !unanswered.IsZero()
		for _, amounts := range [][2]*string{{&t.Amount, &t.Executed}, {&t.Failed, &t.Voided}, {&t.InTransit, &t.Excluded}} {
			var err error
			if *amounts[0], *amounts[1], err = formatTexts(t.Currency, *amounts[0], *amounts[1]); err != nil {
				return paymentRunRow{}, err
			}
		}
		row.Totals = append(row.Totals, t.paymentRunTotal)
	}
	var err error
	if row.Steps, err = readSteps(r.Steps); err != nil {
		return paymentRunRow{}, err
	}
	row.EventID, err = eventIDText(r.EventID)
	return row, err
}

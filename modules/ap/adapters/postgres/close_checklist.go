package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/ports"
)

// CloseChecklist answers ap/close-checklist.
type CloseChecklist struct{ control *SubledgerControl }

var _ ports.ReadModelSource = (*CloseChecklist)(nil)

// NewCloseChecklist makes the source. It reads the ledger's views, which the named projection
// fills, beside the rows of open items.
func NewCloseChecklist(pool *pgxpool.Pool, ledgerProjection string) *CloseChecklist {
	return &CloseChecklist{control: NewSubledgerControl(pool, ledgerProjection)}
}

// Query implements ports.ReadModelSource. Faults: report.parameter_invalid, read.rebuilding.
func (c *CloseChecklist) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	pool, queries := c.control.items.pool, c.control.items.queries
	if err := requireRows(ctx, pool, queries, q); err != nil {
		return ports.Report{}, err
	}
	book, err := functionalCurrency(ctx, pool, queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	partition, version, known := int32(q.Partition), int32(q.Version), int64(q.Known)
	span, err := queries.PeriodSpan(ctx, pool, &apdb.PeriodSpanParams{
		PartitionID: partition, LedgerVersion: int32(q.Versions[c.control.ledgerProjection]), Known: known, Period: q.Params[contract.ParamPeriod],
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.Report{}, fault.New(fault.Invalid, "report.parameter_invalid", "no fiscal year has period %q; look it up in gl/periods", q.Params[contract.ParamPeriod]).WithField(contract.ParamPeriod)
	}
	if err != nil {
		return ports.Report{}, fmt.Errorf("period: %w", err)
	}
	waiting, err := queries.WaitingDocuments(ctx, pool, &apdb.WaitingDocumentsParams{
		PartitionID: partition, Version: version, Known: known, FromDate: span.PeriodStart, ToDate: span.PeriodEnd,
		States: []string{string(domain.StateDraft), string(domain.StateSubmitted), string(domain.StateValidated), string(domain.StatePosted)},
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("documents: %w", err)
	}
	var drafts, undecided, held []string
	for _, d := range waiting {
		switch domain.State(d.State) {
		case domain.StateDraft:
			drafts = append(drafts, d.DocumentID)
		case domain.StateSubmitted, domain.StateValidated:
			undecided = append(undecided, d.DocumentID)
		}
		if d.OpenHolds > 0 {
			held = append(held, d.DocumentID)
		}
	}
	mismatches, err := c.mismatches(ctx, q, event.DateOf(span.PeriodEnd.Time))
	if err != nil {
		return ports.Report{}, err
	}
	rows := []any{
		contract.NewChecklistRow("drafts", "ap.submit_invoice or ap.discard_draft", drafts),
		contract.NewChecklistRow("undecided_documents", "ap/documents shows each one's next step", undecided),
		contract.NewChecklistRow("open_holds", "ap.release_hold, or correct the document", held),
		contract.NewBlockingRow("subledger_difference", "gl/subledger-control by vendor shows the difference", mismatches),
	}
	page, next, err := plugin.CutPage(q, rows)
	return ports.Report{Header: header(q, book), Rows: page, HasMore: next != "", NextCursor: next}, err
}

// mismatches lists vendors and currencies whose open documents differ from the control
// accounts at the period's end.
func (c *CloseChecklist) mismatches(ctx context.Context, q ports.ReadModelQuery, end event.Date) ([]string, error) {
	q.AsOf, q.Params, q.Cursor, q.Limit = end, map[string]string{"by_vendor": "true"}, "", 1_000_000
	report, err := c.control.Query(ctx, q)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, r := range report.Rows {
		row, ok := r.(subledgerControlRow)
		if ok && (!isZero(row.Difference) || !isZero(row.DifferenceFunctional)) {
			left = append(left, row.Vendor+" "+row.Currency)
		}
	}
	return left, nil
}

func isZero(amount string) bool {
	var n money.Number
	return n.Scan(amount) == nil && n.IsZero()
}

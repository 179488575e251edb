package gl

import (
	"context"
	"errors"
	"fmt"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

// subledgerControl is the read model that compares control accounts with what a subledger has
// open. The subledger declares it; the ledger knows its path alone.
const subledgerControl = "gl/subledger-control"

// checkSubledger refuses a hard close while the control accounts of payables differ from the open
// documents as of the period's end. A program without the subledger, and a pipeline without read
// models, have nothing to compare.
func (p periodContext) checkSubledger(ctx context.Context, s module.State) error {
	read := module.ReportRead{Path: subledgerControl, Params: map[string]string{"by_vendor": "true"}, AsOf: p.span.End}
	for _, tag := range tagsThrough(p.calendar, p.span) { // events of the subledger with a financial effect have the tags of journals
		read.Items = append(read.Items, concurrency.Item{Tags: []string{tag}})
	}
	rows, err := module.ReportRows[struct {
		VendorID             string `json:"vendor_id"`
		Currency             string `json:"currency"`
		Subledger            string `json:"subledger"`
		Ledger               string `json:"ledger"`
		Difference           string `json:"difference"`
		DifferenceFunctional string `json:"difference_functional"`
	}](ctx, s, read)
	switch {
	case fault.CodeOf(err) == "report.not_found", fault.CodeOf(err) == module.CodeReportUnbound:
		return nil
	case err != nil:
		return err
	}
	for _, r := range rows {
		var difference, functional money.Number
		if err := errors.Join(difference.Scan(r.Difference), functional.Scan(r.DifferenceFunctional)); err != nil {
			return fmt.Errorf("read model %s: %w", read.Path, err)
		}
		if difference.IsZero() && functional.IsZero() {
			continue
		}
		return fault.New(fault.FailedPrecondition, "gl.period.subledger_mismatch",
			"at the end of period %s the control accounts have %s %s for vendor %q and the open documents %s; find the posting that came past the subledger and correct it",
			p.span.Period, r.Ledger, r.Currency, r.VendorID, r.Subledger).
			With("period", p.span.Period).With("vendor", r.VendorID).With("currency", r.Currency).
			With("ledger", r.Ledger).With("subledger", r.Subledger).With("difference_functional", r.DifferenceFunctional)
	}
	return nil
}

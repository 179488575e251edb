package gl

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// checkYear is the check of gl.fiscal_year.defined and gl.calendar.extended: periods fill
// the year in order, without gap and overlap. It runs on raw appends too.
func checkYear(data json.RawMessage, _ map[string]string) error {
	var y domain.FiscalYear
	if err := json.Unmarshal(data, &y); err != nil {
		return fault.New(fault.Invalid, "gl.fiscal_year.data_invalid", "the data is not a fiscal year; see the type's schema").WithCause(err)
	}
	return checkPeriods(&domain.Calendar{}, y)
}

// checkConfigured is the check of gl.ledger.configured: rates and limits follow the
// grammar of package money, and the currency exists. It runs on raw appends too.
func checkConfigured(data json.RawMessage, _ map[string]string) error {
	var s domain.Settings
	if err := json.Unmarshal(data, &s); err != nil {
		if _, ok := fault.As(err); ok {
			return err
		}
		return fault.New(fault.Invalid, "gl.ledger.data_invalid", "the data is not a configuration; see the type's schema").WithCause(err)
	}
	return checkSettings(s, 0) // as of day 0, so that a currency that was retired later is accepted
}

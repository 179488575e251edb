package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/ports"
)

// Parameters that several reports have.
const (
	paramVendor    = "vendor"
	paramCurrency  = "currency"
	paramDueBefore = "due_before"
	paramHeld      = "held"
	paramKind      = "kind"
	paramFrom      = "from"
	paramBy        = "by"
)

// header makes the header of a report: what was asked, with the parameters that were given.
func header(q ports.ReadModelQuery, book money.Currency, params ...string) ports.ReportFields {
	fields := ports.ReportFields{
		{Name: "legal_entity", Value: q.Entity.Code}, {Name: "functional_currency", Value: book.Code},
		{Name: "as_of", Value: q.AsOf.String()}, {Name: "known_at", Value: q.KnownAt},
		{Name: "sequence", Value: fmt.Sprint(uint64(q.Known))},
	}
	for _, name := range params {
		if v := q.Params[name]; v != "" {
			fields = append(fields, ports.ReportField{Name: name, Value: v})
		}
	}
	return fields
}

// functionalCurrency returns the functional currency as known at the query's sequence, the
// zero Currency if the ledger was not configured by then.
func functionalCurrency(ctx context.Context, db apdb.DBTX, queries *apdb.Queries, q ports.ReadModelQuery) (money.Currency, error) {
	code, err := queries.LedgerCurrency(ctx, db, &apdb.LedgerCurrencyParams{PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known)})
	if errors.Is(err, pgx.ErrNoRows) {
		return money.Currency{}, nil
	}
	if err != nil {
		return money.Currency{}, fmt.Errorf("functional currency: %w", err)
	}
	return money.LookupCurrency(code, time.Time{})
}

// requireRows refuses to answer from rows of an earlier release, which lack what the report
// needs. The version of this release is being built then. Fault: read.rebuilding.
func requireRows(ctx context.Context, db apdb.DBTX, queries *apdb.Queries, q ports.ReadModelQuery) error {
	earlier, err := queries.HasEarlierRows(ctx, db, &apdb.HasEarlierRowsParams{PartitionID: int32(q.Partition), Version: int32(q.Version)})
	if err == nil && earlier {
		err = fault.New(fault.Unavailable, "read.rebuilding", "this release builds the rows of this report; ask again once the new version is switched to").
			WithRetryAfter(time.Minute)
	}
	return err
}

func parameterFault(name, want string) error {
	return fault.New(fault.Invalid, "report.parameter_invalid", "parameter %s is %s; correct it", name, want).WithField(name)
}

// cursorText makes a cursor of the last row of a page.
func cursorText(after any) (string, error) {
	b, err := json.Marshal(after)
	return string(b), err
}

// readCursor reads a cursor that cursorText made. Fault: cursor.invalid.
func readCursor(cursor string, after any) error {
	if json.Unmarshal([]byte(cursor), after) != nil {
		return fault.New(fault.Invalid, "cursor.invalid", "this cursor was not made by this report; ask again without one").WithField("cursor")
	}
	return nil
}

// eventIDText writes the id of an event as the API does.
func eventIDText(uuid string) (string, error) {
	var id pgtype.UUID
	err := id.Scan(uuid)
	return event.ID(id.Bytes).String(), err
}

// formatAmount writes an amount with the currency's decimals. Columns have more; the rest
// are zeros.
func formatAmount(n money.Number, c money.Currency) string {
	if exact, err := n.Rescale(c.MinorUnit); err == nil {
		n = exact
	}
	return n.Fixed(c.MinorUnit)
}

// formatTime writes a time as RFC 3339 in UTC with microseconds.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// optionalDate is a date that a row may lack.
func optionalDate(d pgtype.Date) *event.Date {
	if !d.Valid {
		return nil
	}
	out := event.DateOf(d.Time)
	return &out
}

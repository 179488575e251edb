package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/ports"
)

// source is a read model whose answer is one function.
type source struct {
	pool    *pgxpool.Pool
	queries *gldb.Queries
	answer  func(s *source, ctx context.Context, q ports.ReadModelQuery) (ports.Report, error)
}

func newSource(pool *pgxpool.Pool, answer func(s *source, ctx context.Context, q ports.ReadModelQuery) (ports.Report, error)) ports.ReadModelSource {
	return &source{pool: pool, queries: gldb.New(), answer: answer}
}

// Query implements ports.ReadModelSource.
func (s *source) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	return s.answer(s, ctx, q)
}

// bookHeader is the header of a report in functional currency. The service adds what all
// reports have.
func (s *source) bookHeader(ctx context.Context, q ports.ReadModelQuery) (money.Currency, ports.ReportFields, error) {
	book, err := functionalCurrency(ctx, s.pool, s.queries, q)
	return book, ports.ReportFields{
		{Name: "legal_entity", Value: q.Entity.Code}, {Name: "currency", Value: book.Code},
		{Name: "as_of", Value: q.AsOf.String()}, {Name: "known_at", Value: q.KnownAt},
	}, err
}

// wholeReport is the page of a report whose rows are all computed.
func wholeReport(q ports.ReadModelQuery, header ports.ReportFields, rows []any) (ports.Report, error) {
	page, next, err := plugin.CutPage(q, rows)
	return ports.Report{Header: header, Rows: page, HasMore: next != "", NextCursor: next}, err
}

// firstDay is before any day of the books.
var firstDay = event.MustDate("0001-01-01")

// fromDate is the parameter "from", else the first day.
func fromDate(q ports.ReadModelQuery) (event.Date, error) {
	text := q.Params["from"]
	if text == "" {
		return firstDay, nil
	}
	d, err := event.ParseDate(text)
	if err != nil {
		return d, invalid("from", "an ISO date such as 2026-03-31")
	}
	return d, nil
}

func invalid(parameter, want string) error {
	return fault.New(fault.Invalid, "report.parameter_invalid", "parameter %q is %s", parameter, want).WithField(parameter)
}

// currencyParam is the parameter "currency", the zero Currency if it is absent.
func currencyParam(q ports.ReadModelQuery) (money.Currency, error) {
	code := q.Params["currency"]
	if code == "" {
		return money.Currency{}, nil
	}
	c, err := money.LookupCurrency(code, time.Time{})
	if err != nil {
		return c, invalid("currency", "an ISO 4217 code")
	}
	return c, nil
}

// dimensionNone stands for lines without a value of a dimension.
const dimensionNone = "none"

// dimensionFilter selects lines by their dimensions.
type dimensionFilter struct {
	with    []byte   // JSON object of the values that a line has
	without []string // dimensions that a line has no value of; never nil
}

func (f dimensionFilter) isEmpty() bool { return string(f.with) == "{}" && len(f.without) == 0 }

// dimensionsParam reads the parameter "dimensions", such as department=ENG,project=none.
func dimensionsParam(q ports.ReadModelQuery) (dimensionFilter, error) {
	f, with := dimensionFilter{without: []string{}}, map[string]string{}
	if text := q.Params["dimensions"]; text != "" {
		for part := range strings.SplitSeq(text, ",") {
			name, value, found := strings.Cut(part, "=")
			if _, repeated := with[name]; !found || name == "" || value == "" || repeated {
				return f, invalid("dimensions", "a list such as department=ENG,project=none, each dimension once")
			}
			if value == dimensionNone {
				f.without = append(f.without, name)
			} else {
				with[name] = value
			}
		}
	}
	var err error
	f.with, err = json.Marshal(with)
	return f, err
}

// number reads a sum of the database.
func number(text string) (money.Number, error) {
	var n money.Number
	if err := n.Scan(text); err != nil {
		return n, fmt.Errorf("amount %q: %w", text, err)
	}
	return n, nil
}

// fixed writes an amount at a currency's scale.
func fixed(text, currency string) (string, error) {
	c, err := money.LookupCurrency(currency, time.Time{})
	if err != nil {
		return "", err
	}
	n, err := number(text)
	return n.Fixed(c.MinorUnit), err
}

func dateText(d pgtype.Date) string {
	if !d.Valid {
		return ""
	}
	return event.DateOf(d.Time).String()
}

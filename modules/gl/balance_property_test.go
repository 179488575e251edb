package gl_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// folded is a state that folds events given as data, without a log.
type folded struct{ states map[event.StreamID]any }

func (f folded) Stream(_ context.Context, id event.StreamID) (any, event.Version, error) {
	return f.states[id], 1, nil
}

func (f folded) StreamOf(context.Context, string, event.StreamID) (any, event.Version, error) {
	return nil, 0, nil
}

func (f folded) Tagged(context.Context, ...string) ([]event.Recorded, error) { return nil, nil }

func (f folded) Decide(context.Context, ...module.Projector) error { return nil }

func (f folded) Report(context.Context, module.ReportRead) ([]any, error) {
	return nil, errors.New("the test has no read models")
}

func (f folded) Waiting(context.Context, []string, event.Date, event.Date) (module.WaitingIntents, error) {
	return module.WaitingIntents{}, nil
}

func (f folded) Open(_ context.Context, document json.RawMessage) (json.RawMessage, error) {
	return document, nil
}

// fourCurrencies is an open ledger in USD with rates of three more currencies, one
// of them without and one with three decimals.
func fourCurrencies(t require.TestingT) folded {
	catalog, err := module.Build(noSchemas{}, gl.New())
	require.NoError(t, err)
	f := folded{states: map[event.StreamID]any{}}
	put := func(id event.StreamID, eventType, data string) {
		fold, ok := catalog.Fold(id.Type)
		require.True(t, ok)
		if f.states[id] == nil {
			f.states[id] = fold.New()
		}
		require.NoError(t, fold.Apply(f.states[id], event.Recorded{Skeleton: event.Skeleton{Type: eventType}}, []byte(data)))
	}
	put(domain.LedgerStream(), domain.EventLedgerConfigured, `{"functional_currency": "USD", "posting_profile": {"rounding": "3"}}`)
	put(domain.CalendarStream(), domain.EventCalendarExtended,
		`{"label": "2026", "start": "2026-01-01", "end": "2026-12-31", "periods": [{"period": "2026-01", "start": "2026-01-01", "end": "2026-12-31"}]}`)
	put(domain.PeriodStream("gl", "2026-01"), domain.EventPeriodOpened, `{}`)
	put(domain.DimensionStream("department"), domain.EventDimensionValueDefined, `{"dimension": "department", "value": "ENG"}`)
	for _, code := range []string{"1", "2", "3"} {
		put(domain.AccountStream(code), domain.EventAccountDefined, `{"code": "`+code+`", "type": "asset", "postable": true}`)
	}
	for from, rate := range map[string]string{"EUR": "1.0834", "JPY": "0.006731", "KWD": "3.2471"} {
		put(domain.RateStream(from, "USD"), domain.EventExchangeRateSet, `{"from": "`+from+`", "to": "USD", "rate_type": "spot", "date": "2026-03-01", "rate": `+rate+`}`)
	}
	return f
}

// minorUnits of the four currencies.
var minorUnits = map[string]int{"USD": 2, "EUR": 2, "JPY": 0, "KWD": 3}

// drawLines makes lines that balance in each currency they use.
func drawLines(t *rapid.T) []contract.SubledgerLine {
	var lines []contract.SubledgerLine
	used := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"EUR", "JPY", "KWD", "USD"}), 1, 4, rapid.ID[string]).Draw(t, "currencies")
	for _, currency := range used {
		scale := minorUnits[currency]
		first := rapid.SampledFrom([]contract.Side{contract.Debit, contract.Credit}).Draw(t, "side")
		units := rapid.SliceOfN(rapid.Int64Range(0, 10_000_000_000), 1, 6).Draw(t, "units")
		units[0] = max(units[0], 1) // a journal moves an amount
		var total int64
		for _, u := range units {
			total += u
			lines = append(lines, contract.SubledgerLine{Account: "1", Side: first, Currency: currency, Amount: amount(t, u, scale)})
		}
		lines = append(lines, contract.SubledgerLine{Account: "2", Side: first.Opposite(), Currency: currency, Amount: amount(t, total, scale)})
	}
	return rapid.Permutation(lines).Draw(t, "order")
}

// amount gives whole minor units as an amount.
func amount(t require.TestingT, units int64, scale int) money.Number {
	n := money.FromInt(units)
	for range scale {
		n = n.Mul(money.MustNumber("0.1"))
	}
	out, err := n.Rescale(scale)
	require.NoError(t, err)
	return out
}

func TestJournalBalanceProperty(t *testing.T) {
	t.Parallel()
	state := fourCurrencies(t)
	rapid.Check(t, func(t *rapid.T) {
		lines := drawLines(t)
		journal := contract.Journal{
			SubledgerJournal: contract.SubledgerJournal{
				Description: "Drawn", PostingDate: event.MustDate("2026-03-15"), Currency: "USD", Dimensions: map[string]string{"department": "ENG"},
				Lines: lines, JournalID: ids{}.NewID(now),
			},
			Type: domain.General,
		}
		planned, err := contract.PlanJournal(context.Background(), contract.NewLedger(state), journal)
		require.NoError(t, err)
		data, err := json.Marshal(planned.Draft.Data)
		require.NoError(t, err)
		require.NoError(t, domain.CheckJournal(data, nil))
		require.True(t, planned.Journal.TotalDebit.Equal(planned.Journal.TotalCredit))
		require.LessOrEqual(t, len(planned.Lines), len(lines)+1)
		for i := range lines {
			require.Equal(t, lines[i].Amount.String(), planned.Lines[i].Amount.String(), "amounts stay as written")
		}

		at := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
		broken := append([]contract.SubledgerLine(nil), lines...)
		currency := broken[at].Currency
		broken[at].Amount = broken[at].Amount.Add(amount(t, 1, minorUnits[currency]))
		journal.Lines = broken
		_, err = contract.PlanJournal(context.Background(), contract.NewLedger(state), journal)
		require.Equal(t, "gl.journal.unbalanced", fault.CodeOf(err))
		f, _ := fault.As(err)
		require.Equal(t, currency, f.Attributes["currency"])

		posted := planned.Journal
		posted.Lines = append([]domain.Line(nil), posted.Lines...)
		posted.Lines[at].Amount = broken[at].Amount
		data, err = json.Marshal(posted)
		require.NoError(t, err)
		require.Error(t, domain.CheckJournal(data, nil))
	})
}

func TestFunctionalAmount(t *testing.T) {
	t.Parallel()
	l := contract.NewLedger(fourCurrencies(t))
	got, rate, day, err := l.FunctionalAmount(t.Context(), money.MustNumber("1000"), "JPY", event.MustDate("2026-03-31"))
	require.NoError(t, err)
	require.Equal(t, "6.73", got.String())
	require.Equal(t, "0.006731", rate.String())
	require.Equal(t, "2026-03-01", day.String())
	got, rate, day, err = l.FunctionalAmount(t.Context(), money.MustNumber("1.5"), "USD", event.MustDate("2026-03-31"))
	require.NoError(t, err)
	require.Equal(t, "1.5 1 2026-03-31", got.String()+" "+rate.String()+" "+day.String())
	_, _, _, err = l.FunctionalAmount(t.Context(), money.MustNumber("1"), "EUR", event.MustDate("2026-04-02"))
	require.Equal(t, "gl.rate.stale", fault.CodeOf(err))
}

func BenchmarkPlanJournal(b *testing.B) {
	state := fourCurrencies(b)
	journal := contract.Journal{
		SubledgerJournal: contract.SubledgerJournal{
			Description: "Rent", PostingDate: event.DateOf(time.Date(2026, 3, 15, 0, 0, 0, 0, time.UTC)), Currency: "EUR", Dimensions: map[string]string{"department": "ENG"},
			Lines: []contract.SubledgerLine{
				{Account: "1", Side: contract.Debit, Amount: money.MustNumber("100.00")},
				{Account: "2", Side: contract.Credit, Amount: money.MustNumber("100.00")},
			}, JournalID: ids{}.NewID(now),
		},
		Type: domain.General,
	}
	for b.Loop() {
		if _, err := contract.PlanJournal(b.Context(), contract.NewLedger(state), journal); err != nil {
			b.Fatal(err)
		}
	}
}

package money_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

func day(s string) time.Time {
	d, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err)
	}
	return d
}

func TestLookupCurrency(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, number string
		minorUnit    int
	}{
		{"EUR", "978", 2}, {"USD", "840", 2}, {"GBP", "826", 2}, {"CHF", "756", 2}, {"JPY", "392", 0}, {"KRW", "410", 0},
		{"KWD", "414", 3}, {"BHD", "048", 3}, {"IQD", "368", 3}, {"JOD", "400", 3}, {"LYD", "434", 3}, {"OMR", "512", 3}, {"TND", "788", 3},
		{"CLF", "990", 4}, {"UYW", "927", 4}, {"CLP", "152", 0}, {"UYI", "940", 0}, {"UYU", "858", 2},
		{"SLE", "925", 2}, {"VED", "926", 2}, {"VES", "928", 2}, {"XCG", "532", 2}, {"ZWG", "924", 2}, {"MRU", "929", 2}, {"STN", "930", 2},
		{"LBP", "422", 2}, {"ISK", "352", 0}, {"UGX", "800", 0}, {"VND", "704", 0}, {"VUV", "548", 0}, {"PYG", "600", 0}, {"RWF", "646", 0},
		{"XOF", "952", 0}, {"XAF", "950", 0}, {"XPF", "953", 0}, {"XCD", "951", 2}, {"HUF", "348", 2}, {"IDR", "360", 2}, {"TWD", "901", 2},
		{"MGA", "969", 2}, {"ALL", "008", 2}, {"BYN", "933", 2}, {"ZMW", "967", 2}, {"GNF", "324", 0}, {"KMF", "174", 0}, {"DJF", "262", 0},
		{"BIF", "108", 0}, {"CVE", "132", 2}, {"CHE", "947", 2}, {"MXV", "979", 2}, {"USN", "997", 2}, {"XAD", "396", 2},
	} {
		got, err := money.LookupCurrency(c.code, day("2026-03-31"))
		require.NoError(t, err, c.code)
		require.Equal(t, money.Currency{Code: c.code, Number: c.number, MinorUnit: c.minorUnit}, got)
	}
}

func TestLookupCurrencyRetired(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, last, first string // last day in use, first day out of use
		minorUnit         int
	}{
		{"DEM", "2002-02-28", "2002-03-01", 2}, {"FRF", "2002-02-28", "2002-03-01", 2}, {"ITL", "2002-02-28", "2002-03-01", 0},
		{"HRK", "2022-12-31", "2023-01-01", 2}, {"BGN", "2025-12-31", "2026-01-01", 2}, {"LTL", "2014-12-31", "2015-01-01", 2},
		{"ANG", "2025-03-30", "2025-03-31", 2}, {"SLL", "2023-12-31", "2024-01-01", 2}, {"BYR", "2016-12-31", "2017-01-01", 0},
		{"ZWL", "2024-08-31", "2024-09-01", 2}, {"MRO", "2017-12-31", "2018-01-01", 2}, {"VEF", "2018-08-19", "2018-08-20", 2},
	} {
		got, err := money.LookupCurrency(c.code, day(c.last).Add(24*time.Hour-time.Nanosecond))
		require.NoError(t, err, c.code)
		require.Equal(t, c.minorUnit, got.MinorUnit, c.code)
		require.Equal(t, day(c.first), got.RetiredOn)
		_, err = money.LookupCurrency(c.code, day(c.first))
		require.Equal(t, "money.currency_unsupported", fault.CodeOf(err), c.code)
		f, _ := fault.As(err)
		require.Equal(t, c.first, f.Attributes["retired_on"])
		_, err = money.LookupCurrency(c.code, time.Time{})
		require.NoError(t, err, "without a date")
	}
}

func TestLookupCurrencyUnsupported(t *testing.T) {
	t.Parallel()
	for _, code := range []string{
		"XAU", "XAG", "XPT", "XPD", "XXX", "XTS", "XDR", "XSU", "XUA", "XBA", "XBB", "XBC", "XBD", "XEU",
		"", "eur", "EU", "EURO", "ABC", "BTC", "978", "EUR ", "\x00\x00\x00",
	} {
		_, err := money.LookupCurrency(code, day("2026-01-01"))
		require.Equal(t, "money.currency_unsupported", fault.CodeOf(err), code)
		require.Equal(t, fault.Invalid, fault.KindOf(err))
	}
}

func TestCurrencyTable(t *testing.T) {
	t.Parallel()
	rows := money.ISO4217()
	require.Greater(t, len(rows), 180)
	letters, digits := regexp.MustCompile(`^[A-Z]{3}$`), regexp.MustCompile(`^[0-9]{3}$`)
	byNumber := map[string]string{}
	previous := ""
	for _, c := range rows {
		require.Regexp(t, letters, c.Code)
		require.Regexp(t, digits, c.Number, c.Code)
		require.Greater(t, c.Code, previous, "sorted, no code twice")
		require.Contains(t, []int{-1, 0, 2, 3, 4}, c.MinorUnit, c.Code)
		if c.RetiredOn.IsZero() {
			require.Empty(t, byNumber[c.Number], "%s: a number belongs to one currency in use", c.Code)
			byNumber[c.Number] = c.Code
		}
		previous = c.Code
	}
}

func BenchmarkLookupCurrency(b *testing.B) {
	on := day("2026-03-31")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := money.LookupCurrency("EUR", on); err != nil {
			b.Fatal(err)
		}
	}
}

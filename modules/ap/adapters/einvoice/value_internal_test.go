package einvoice

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseDecimal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1000.0": "1000.0", "+5": "5", " 12 ": "12", "\t12\n": "12", ".5": "0.5", "-.5": "-0.5", "5.": "5", "-5.": "-5",
		"00": "0", "007.10": "7.10", "-0": "0", "-0.00": "0.00", "+0.10": "0.10", "0.00880": "0.00880",
		"999999999999999": "999999999999999", "100000000000000.000": "100000000000000", "0.1212": "0.1212",
	} {
		n, ok := parseDecimal(in)
		require.True(t, ok, in)
		require.Equal(t, want, n.String(), in)
	}
	for _, in := range []string{
		"", " ", ".", "+", "-", "-.", "1e3", "1E3", "NaN", "INF", "-INF", "0x10", "1,5", "1.2.3", "--1", "+-1", "1 000", "1_000",
		"٣", "−5", "5 EUR", "1234567890123456", "0.1234567890123456",
	} {
		_, ok := parseDecimal(in)
		require.False(t, ok, in)
	}
}

func TestParseDate(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"2026-03-31", "2026-03-31Z", "2026-03-31+02:00", "2026-03-31-05:00"} {
		d, ok := parseDate(in)
		require.True(t, ok, in)
		require.Equal(t, "2026-03-31", d.String())
	}
	for _, in := range []string{"", "2026-02-30", "2026-3-31", "31.03.2026", "2026-03-31T00:00:00", "2026-03-31z", "20260331"} {
		_, ok := parseDate(in)
		require.False(t, ok, in)
	}
}

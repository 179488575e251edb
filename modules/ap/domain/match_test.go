package domain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

func TestLooseNumber(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]string{
		"INV-00123":       "INV123",
		"inv 123":         "INV123",
		"inv.0123":        "INV123",
		"ＩＮＶ０１２３":         "INV123",
		"0":               "0",
		"000":             "0",
		"A-000":           "A0",
		"100":             "100",
		"2025/0010":       "202510",
		"A00B010":         "A0B10",
		"---":             "",
		"":                "",
		"10-05":           "105",
		"R\u00e9f-0007/a": "RÉF7A",
	} {
		require.Equal(t, want, domain.LooseNumber(number), number)
	}
}

func TestSameNumber(t *testing.T) {
	t.Parallel()
	require.True(t, domain.SameNumber("INV 1", "inv1"))
	require.True(t, domain.SameNumber("ＩＮＶ1", "INV 1"))
	require.False(t, domain.SameNumber("INV-1", "INV1"))
	require.False(t, domain.SameNumber("INV01", "INV1"))
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	require.Equal(t, "vat:DE123456789", domain.Identity(" de 123.456.789", "HRB 1", "77"))
	require.Equal(t, "reg:HRB1", domain.Identity(" . ", "HRB 1", "77"))
	require.Equal(t, "party:77", domain.Identity("", "", "7 7"))
	require.Empty(t, domain.Identity("", "", ""))
}

func TestPartyTag(t *testing.T) {
	t.Parallel()
	eur, err := money.LookupCurrency("EUR", event.MustDate("2025-03-15").Time())
	require.NoError(t, err)
	total := money.MustNumber("12.50")
	tag, ok := domain.PartyTag(contract.Invoice, "DE-123.456", "INV-007", eur, total)
	require.True(t, ok)
	require.Regexp(t, "^match:invoice:party:[a-p]{32}$", tag)
	same, _ := domain.PartyTag(contract.Invoice, "de 123456", "inv 7", eur, money.MustNumber("12.5"))
	require.Equal(t, tag, same)
	for _, other := range [][2]string{{"DE123457", "INV-007"}, {"DE123456", "INV-008"}} {
		differs, _ := domain.PartyTag(contract.Invoice, other[0], other[1], eur, total)
		require.NotEqual(t, tag, differs)
	}
	for _, none := range [][2]string{{"", "INV-007"}, {"DE123456", "--"}} {
		_, ok := domain.PartyTag(contract.Invoice, none[0], none[1], eur, total)
		require.False(t, ok)
	}
}

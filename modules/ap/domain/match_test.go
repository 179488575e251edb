package domain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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

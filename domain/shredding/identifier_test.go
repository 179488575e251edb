package shredding_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

func TestPersonalPattern(t *testing.T) {
	t.Parallel()
	for text, kind := range map[string]string{
		"ada@example.org":             "email",
		"+49 30 901820":               "phone",
		"+4530901820":                 "phone",
		"4111 1111 1111 1111":         "card",
		"5500005555555559":            "card",
		"DE89370400440532013000":      "iban",
		"GB29 NWBK 6016 1331 9268 19": "iban",
		"DE89370400440532013001":      "", // wrong check digits
		"4111111111111112":            "", // wrong Luhn digit
		"V-1042":                      "",
		"INV-2025-001234":             "",
		"DK16356706":                  "",
		"NL8200.98.395.B.01":          "",
		"01JQ8E6Z6G3V5T8C9N2M4K7R1P":  "",
		"+1-2":                        "",
		"a@b":                         "",
		"7300010000001":               "", // a GLN is a document party number
		"":                            "",
	} {
		require.Equal(t, kind, shredding.PersonalPattern(text), text)
	}
	err := shredding.CheckIdentifier("/tags/0", "ada@example.org")
	require.Equal(t, "pii.in_identifier", fault.CodeOf(err))
	require.NotContains(t, err.Error(), "ada@example.org")
}

func TestCheckText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "checked against order 4711 and INV-2026-0042", "vendor employee:E-1 left on 2026-03-31", "see GB123456789"} {
		require.NoError(t, shredding.CheckText("/comment", text), text)
	}
	for _, text := range []string{
		"ask ada@example.org.", "call +4917012345678", "pays to DE89370400440532013000, as before", "+49 170 1234567",
	} {
		err := shredding.CheckText("/comment", text)
		require.Equal(t, "pii.in_text", fault.CodeOf(err), text)
		f, _ := fault.As(err)
		require.Equal(t, "/comment", f.Field)
	}
}

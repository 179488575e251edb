package text_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/text"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, code string }{
		"empty":                    {"", ""},
		"plain":                    {"Rent for March, 2nd floor\n\tnet", ""},
		"right to left":            {"إيجار مارس", ""},
		"joiner between letters":   {"می\u200cخواهم", ""},
		"article numbers":          {"EAN 4006381333931, lot 4500123456", ""},
		"blanks":                   {" \t\n", "text.blank"},
		"blanks that do not show":  {"\u00a0\u200b", "text.blank"},
		"right-to-left override":   {"Invoice \u202e0001", "text.invisible_character"},
		"isolate":                  {"a\u2066b", "text.invisible_character"},
		"zero width space":         {"a\u200bb", "text.invisible_character"},
		"joiner in Latin":          {"pay\u200dpal", "text.invisible_character"},
		"byte order mark":          {"\ufeffRent", "text.invisible_character"},
		"control":                  {"a\x00b", "text.invisible_character"},
		"tag character":            {"a\U000e0041", "text.invisible_character"},
		"filler":                   {"a\u3164b", "text.invisible_character"},
		"account number":           {"paid to DE89 3704 0044 0532 0130 00, thanks", "pii.in_text"},
		"account in one word":      {"(DE89370400440532013000)", "pii.in_text"},
		"account in small letters": {"de89370400440532013000", "pii.in_text"},
		"card":                     {"card 4111 1111 1111 1111 of the office", "pii.in_text"},
		"card with dashes":         {"card 4111-1111-1111-1111", "pii.in_text"},
		"card in one word":         {"no. 378282246310005.", "pii.in_text"},
		"card of 4, 6 and 5":       {"3782 822463 10005", "pii.in_text"},
		"part of a longer number":  {"94111111111111111", ""},
		"wrong check digit":        {"4111 1111 1111 1112 and DE88 3704 0044 0532 0130 00", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := text.Check("/description", c.text)
			require.Equal(t, c.code, fault.CodeOf(err), "%v", err)
			if f, ok := fault.As(err); ok {
				require.Equal(t, "/description", f.Field)
			}
		})
	}
	require.Equal(t, "Invoice 0001 می\u200cخواهم\tpaypal", text.Clean("In\u00advoice \u202e0001 می\u200cخواهم\tpay\u200dpal\u0096\ufffd"))
	f, _ := fault.As(text.Check("", "ab\u202e"))
	require.Equal(t, "character 3 of the text is U+202E, which readers do not see; remove it", f.Detail)
}

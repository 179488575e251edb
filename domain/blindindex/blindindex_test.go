package blindindex_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/blindindex"
)

func TestTerms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind  blindindex.Kind
		text  string
		terms []string
	}{
		{blindindex.Name, "  Anna  MEYER-Schmidt ", []string{"anna", "meyer", "schmidt"}},
		{blindindex.Name, "ＭＥＹＥＲ", []string{"meyer"}},
		{blindindex.Name, "Mu\u0308ller Straße", []string{"müller", "strasse"}},
		{blindindex.Name, "Meyer, Meyer", []string{"meyer"}},
		{blindindex.Name, " .,- ", []string{}},
		{blindindex.Email, " Anna.Meyer@Example.ORG\n", []string{"anna.meyer@example.org"}},
		{blindindex.Email, " ", []string{}},
		{blindindex.Phone, "+49 (40) 123-45", []string{"494012345"}},
		{blindindex.Phone, "0049 40 12345", []string{"494012345"}},
		{blindindex.Phone, "none", []string{}},
	} {
		got := blindindex.Terms(c.kind, c.text)
		require.Equal(t, c.terms, got, "%s %q", c.kind, c.text)
	}
	require.Len(t, blindindex.Terms(blindindex.Name, strings.Repeat("a b c d e f g h i j ", 20)+"aa bb cc dd ee ff gg hh ii jj kk ll mm nn oo pp qq rr ss tt uu vv ww xx yy"), 32)
}

func TestValues(t *testing.T) {
	t.Parallel()
	require.Equal(t, []blindindex.Value{{Kind: blindindex.Email, Text: "a@b.org"}}, blindindex.Values("$.contacts[*].email", []byte(`"a@b.org"`)))
	require.Equal(t, []blindindex.Value{{Kind: blindindex.Email, Text: "a@b.org"}}, blindindex.Values("$.emails[*]", []byte(`"a@b.org"`)))
	whole := blindindex.Values("$.contact", []byte(`{"name":"Anna","phones":["1","2"],"iban":"X","address":{"city":"Bonn"}}`))
	slices.SortFunc(whole, func(a, b blindindex.Value) int { return strings.Compare(a.Text, b.Text) })
	require.Equal(t, []blindindex.Value{{Kind: blindindex.Phone, Text: "1"}, {Kind: blindindex.Phone, Text: "2"}, {Kind: blindindex.Name, Text: "Anna"}}, whole)
	require.Len(t, blindindex.Values("$.emails", []byte(`[`+strings.Repeat(`"a",`, 100_000)+`"a"]`)), blindindex.MaxTerms)
	for path, value := range map[string]string{"$.name": `"[REDACTED]"`, "$.vendor_name": `"[MASKED]"`, "$.iban": `"DE"`, "$.email": `17`, "$.phone": `{`} {
		require.Empty(t, blindindex.Values(path, []byte(value)))
	}
}

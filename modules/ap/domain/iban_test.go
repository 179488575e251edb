package domain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

func TestCheckIBAN(t *testing.T) {
	t.Parallel()
	// Examples of the registry.
	for _, written := range []string{
		"AD12 0001 2030 2003 5910 0100", "AE07 0331 2345 6789 0123 456", "AT61 1904 3002 3457 3201", "BE68 5390 0754 7034", "BG80 BNBG 9661 1020 3456 78",
		"BR18 0036 0305 0000 1000 9795 493C 1", "CH93 0076 2011 6238 5295 7", "CZ65 0800 0000 1920 0014 5399", "DE89 3704 0044 0532 0130 00",
		"DK50 0040 0440 1162 43", "EE38 2200 2210 2014 5685", "ES91 2100 0418 4502 0005 1332", "FI21 1234 5600 0007 85", "FR14 2004 1010 0505 0001 3M02 606",
		"GB29 NWBK 6016 1331 9268 19", "GR16 0110 1250 0000 0001 2300 695", "HU42 1177 3016 1111 1018 0000 0000", "IE29 AIBK 9311 5212 3456 78",
		"IT60 X054 2811 1010 0000 0123 456", "LC55 HEMM 0001 0001 0012 0012 0002 3015", "LT12 1000 0111 0100 1000", "LU28 0019 4006 4475 0000",
		"MT84 MALT 0110 0001 2345 MTLC AST0 01S", "NL91 ABNA 0417 1643 00", "NO93 8601 1117 947", "PL61 1090 1014 0000 0712 1981 2874",
		"PT50 0002 0123 1234 5678 9015 4", "SA03 8000 0000 6080 1016 7519", "SE45 5000 0000 0583 9825 7466", "SI56 2633 0001 2039 086",
		"TR33 0006 1005 1978 6457 8413 26", "UA21 3223 1300 0002 6007 2335 6600 1", "XK05 1212 0123 4567 8906",
	} {
		require.NoError(t, domain.CheckIBAN(domain.NormalAccount(written)), written)
	}
	for _, c := range []struct{ name, iban, says string }{
		{"one digit differs", "DE89370400440532013001", "check digits"},
		{"two digits are swapped", "DE89370400440532010300", "check digits"},
		{"short", "DE8937040044053201300", "22 characters, this one has 21"},
		{"long", "NO93860111179470", "15 characters, this one has 16"},
		{"country without IBANs", "US89370400440532013000", "the country US has no IBANs"},
		{"no country", "8989370400440532013000", "has no IBANs"},
		{"other letters", "DE8937040044053201300ß", "characters"},
		{"tiny", "DE", "begins with a country"},
	} {
		err := domain.CheckIBAN(c.iban)
		require.Equal(t, "ap.vendor.bank_invalid", fault.CodeOf(err), c.name)
		require.ErrorContains(t, err, c.says, c.name)
	}
	require.Equal(t, "DE891A", domain.NormalAccount(" de89\t1a "))
}

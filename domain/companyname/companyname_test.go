package companyname_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/companyname"
)

func TestSame(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{
		{"Contoso Supply Ltd", "CONTOSO SUPPLY LIMITED"},
		{"Enexis B.V.", "Enexis"}, {"Enexis B. V.", "enexis bv"},
		{"Müller & Söhne GmbH & Co. KG", "Mueller Soehne"}, {"Müller", "MULLER"}, {"Straßenbau AG", "STRASSENBAU"},
		{"Sąd sp. z o.o.", "SAD SP Z O O"}, {"Kovo s.r.o.", "Kovo"}, {"AB Volvo", "Volvo AB"}, {"HEP SPLIT", "HEP-Split d.o.o."},
		{"SÄLJARNAMNET", "Säljarnamnet"}, {"L'Oréal S.A.", "L’OREAL"}, {"Ｃｏｎｔｏｓｏ", "Contoso"}, {"Løkke A/S", "Lokke"}, {"Løkke ApS", "Loekke"},
		{"株式会社日立", "株式会社日立"}, {"AG", "ag"}, {"HEP-OPERATOR\n   OPSKRBU", "HEP OPERATOR OPSKRBU"},
	} {
		require.True(t, companyname.Same(same[0], same[1]), "%q and %q", same[0], same[1])
		require.True(t, companyname.Same(same[1], same[0]), "%q and %q", same[1], same[0])
	}
	for _, other := range [][2]string{
		{"SubscriptionSeller", "SellerCompany"}, {"Contoso Ltd", "Contosa Ltd"}, {"Bank AG", "Bank of Nowhere AG"}, {"", ""}, {"GmbH", "AG"},
		{"Pаypal", "Paypal"}, {"...", "---"},
	} {
		require.False(t, companyname.Same(other[0], other[1]), "%q and %q", other[0], other[1])
	}
	require.True(t, companyname.SameWithForm("Demo GmbH", "DEMO gmbh"))
	require.True(t, companyname.SameWithForm("Demo GmbH", "Demo"))
	require.False(t, companyname.SameWithForm("Demo GmbH", "Demo AG"))
}

package vatid_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/vatid"
)

// valid has numbers that the tax authorities or their documentation publish as examples.
var valid = []string{
	"ATU13585627", "BE0428759497", "BG175074752", "BG7523169263", "CY10259033P", "CZ25123891", "CZ7103192745",
	"DE136695976", "DK13585628", "EE100931558", "EL094259216", "ES54362315K", "ESX2482300W", "ESJ99216582", "FI20774740",
	"FR40303265045", "FR23334175221", "FRK7399859412", "GB980780684", "XI980780684", "HR33392005961", "HU12892312",
	"IE6433435F", "IE6433435OA", "IE8D79739I", "IT00743110157", "LT119511515", "LT100001919017", "LU15027442",
	"LV40003521600", "MT11679112", "NL004495445B01", "NL123456789B13", "PL8567346215", "PT501964843", "RO18547290",
	"SE123456789701", "SI50223054", "SK2022749619", "CHE100155212TVA", "NO995525828MVA",
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, id := range valid {
		require.Equal(t, vatid.Valid, vatid.Check(id), id)
	}
	for id, verdict := range map[string]vatid.Verdict{
		"be 0428.759.497":  vatid.Valid,
		"CHE-100.155.212":  vatid.Valid,
		"CHE-100.155.213":  vatid.WrongDigits,
		"DE136695978":      vatid.WrongDigits,
		"DE13669597":       vatid.WrongFormat,
		"DE036695976":      vatid.WrongFormat,
		"GR094259216":      vatid.Unknown, // the prefix of Greece is EL
		"US 12-3456789":    vatid.Unknown,
		"GBGD001":          vatid.Valid,
		"GBHA001":          vatid.WrongDigits,
		"NL000000000B01":   vatid.WrongDigits,
		"NL004495445B00":   vatid.WrongDigits,
		"SE123456789700":   vatid.WrongFormat,
		"CY12259033P":      vatid.WrongDigits,
		"ESA54362315":      vatid.WrongDigits,
		"":                 vatid.WrongFormat,
		"D":                vatid.WrongFormat,
		"136695976":        vatid.WrongFormat,
		"DE١٣٦٦٩٥٩٧٦":      vatid.WrongFormat,
		"IE6433435F\u0000": vatid.WrongFormat,
	} {
		require.Equal(t, verdict, vatid.Check(id), id)
	}
}

// Every check finds a wrong digit in most numbers: of all changes of one digit, only those
// that a weight of a multiple of the modulus hides may pass.
func TestCheck_FindsWrongDigits(t *testing.T) {
	t.Parallel()
	for _, id := range valid {
		passed, tried := 0, 0
		for i := 2; i < len(id); i++ {
			for d := byte('0'); d <= '9'; d++ {
				if id[i] < '0' || id[i] > '9' || id[i] == d {
					continue
				}
				tried++
				if vatid.Check(id[:i]+string(d)+id[i+1:]) == vatid.Valid {
					passed++
				}
			}
		}
		require.Lessf(t, passed*4, tried, "%s: %d of %d changes pass", id, passed, tried)
	}
}

func TestCheck_TakesAnyText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SampledFrom(valid).Draw(t, "prefix")[:2]
		body := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9A-Z]{0,13}`)).Draw(t, "body")
		require.NotEmpty(t, vatid.Check(prefix+body))
		require.Equal(t, vatid.Check(prefix+body), vatid.Check(strings.ToLower(vatid.Normalise(prefix+body))))
	})
}

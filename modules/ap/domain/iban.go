package domain

import (
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// ibanLengths are the lengths of IBANs by country, from the registry of ISO 13616.
var ibanLengths = map[string]int{
	"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29, "BY": 28, "CH": 21, "CR": 22,
	"CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22,
	"GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HN": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30,
	"KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MN": 20,
	"MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22,
	"RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26,
	"UA": 29, "VA": 22, "VG": 24, "XK": 20, "YE": 30,
}

// NormalAccount is an account number without blanks, in upper case. Numbers are compared and
// stored in this form.
func NormalAccount(number string) string {
	return strings.ToUpper(strings.Join(strings.Fields(number), ""))
}

// CheckIBAN checks the length and the check digits of an IBAN in its normal form:
// ap.vendor.bank_invalid, which does not repeat the number.
func CheckIBAN(iban string) error {
	if len(iban) < 4 {
		return bankInvalidFault("an IBAN begins with a country and two check digits; compare it with the vendor's paper")
	}
	length, known := ibanLengths[iban[:2]]
	switch {
	case !known:
		return bankInvalidFault("the country %s has no IBANs; send account and bank instead, or correct it", iban[:2])
	case len(iban) != length:
		return bankInvalidFault("an IBAN of %s has %d characters, this one has %d; compare it with the vendor's paper", iban[:2], length, len(iban)).
			WithNumbers(length, len(iban))
	case !hasValidCheckDigits(iban):
		return bankInvalidFault("the check digits of the IBAN are wrong; compare it with the vendor's paper")
	}
	return nil
}

// hasValidCheckDigits reports whether the IBAN, with its first four characters at the end and
// letters as 10 to 35, is 1 modulo 97 (ISO 7064).
func hasValidCheckDigits(iban string) bool {
	rest := 0
	for _, r := range iban[4:] + iban[:4] {
		switch {
		case r >= '0' && r <= '9':
			rest = (rest*10 + int(r-'0')) % 97
		case r >= 'A' && r <= 'Z':
			rest = (rest*100 + int(r-'A') + 10) % 97
		default:
			return false
		}
	}
	return rest == 1
}

func bankInvalidFault(detail string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "ap.vendor.bank_invalid", detail, args...).WithField("/iban")
}

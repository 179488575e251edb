package shredding

import (
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// PersonalPattern returns the kind of personal datum that a text looks like: "email",
// "iban", "card" or "phone"; "" if none. Plain document numbers and tax ids pass. Its callers
// protect texts that are kept for ever (docs/personal-data.md).
func PersonalPattern(s string) string {
	switch {
	case looksLikeEmail(s):
		return "email"
	case looksLikePhone(s):
		return "phone"
	case looksLikeCard(s):
		return "card"
	case looksLikeIBAN(s):
		return "iban"
	default:
		return ""
	}
}

// CheckIdentifier refuses an identifier, tag, key or reference that looks like a
// person's datum.
func CheckIdentifier(field, s string) error {
	if kind := PersonalPattern(s); kind != "" {
		return fault.New(fault.Invalid, "pii.in_identifier",
			"this identifier looks like personal data (%s), and identifiers are kept for ever; use a surrogate id", kind).WithField(field)
	}
	return nil
}

// CheckText refuses a short free text that is kept for ever, such as a reason or a
// comment, if the whole of it or one of its words looks like a person's datum:
// pii.in_text. It does not recognise names of persons.
func CheckText(field, s string) error {
	kind := PersonalPattern(s)
	for word := range strings.FieldsSeq(s) {
		if kind != "" {
			break
		}
		kind = PersonalPattern(strings.Trim(word, `.,;:!?()<>"'`))
	}
	if kind == "" {
		return nil
	}
	return fault.New(fault.Invalid, "pii.in_text",
		"this text holds what looks like personal data (%s) and is kept for ever; word it without", kind).WithField(field)
}

// CheckNoAccountNumber refuses a text that holds the number of a bank account (IBAN) or a
// card anywhere, also one written in groups: pii.in_text.
func CheckNoAccountNumber(field, s string) error {
	kind := accountNumberIn(s)
	if kind == "" {
		return nil
	}
	return fault.New(fault.Invalid, "pii.in_text",
		"this text holds what looks like an account or card number (%s) and is kept for ever; leave the number out", kind).WithField(field)
}

// CheckNoIBAN refuses an identifier or reference that holds an IBAN: pii.in_identifier. Digits
// pass, as references and registration numbers have the check digits of cards.
func CheckNoIBAN(field, s string) error {
	for i := range len(s) {
		if beginsWord(s, i) && ibanAt(s[i:]) > 0 {
			return fault.New(fault.Invalid, "pii.in_identifier",
				"this value holds what looks like an account number (iban) and is kept for ever; leave the number out").WithField(field)
		}
	}
	return nil
}

// MaskedNumber stands for an account or card number that MaskAccountNumbers removed.
const MaskedNumber = "[account number]"

// MaskAccountNumbers replaces the numbers that CheckNoAccountNumber refuses by MaskedNumber.
func MaskAccountNumbers(s string) string {
	var out strings.Builder
	kept := 0
	for i := 0; i < len(s); i++ {
		length := 0
		if beginsWord(s, i) {
			length = max(ibanAt(s[i:]), cardAt(s[i:]))
		}
		if length > 0 {
			out.WriteString(s[kept:i])
			out.WriteString(MaskedNumber)
			kept = i + length
			i = kept - 1
		}
	}
	if kept == 0 {
		return s
	}
	return out.String() + s[kept:]
}

func accountNumberIn(s string) string {
	for i := range len(s) {
		switch {
		case !beginsWord(s, i):
		case ibanAt(s[i:]) > 0:
			return "iban"
		case cardAt(s[i:]) > 0:
			return "card"
		}
	}
	return ""
}

func beginsWord(s string, i int) bool { return i == 0 || !isAlphanumeric(s[i-1]) }

// ibanAt returns the length of the IBAN with which a text begins, 0 if there is none. Its groups
// may be separated by one blank or dash.
func ibanAt(s string) int {
	if len(s) < 15 {
		return 0
	}
	want, known := ibanLength[strings.ToUpper(s[:2])]
	if !known {
		return 0
	}
	iban, end := make([]byte, 0, want), 0
	for ; end < len(s) && len(iban) < want; end++ {
		switch {
		case isAlphanumeric(s[end]):
			iban = append(iban, s[end])
		case !isSeparator(s[end]) || isSeparator(s[end-1]):
			return 0
		}
	}
	if len(iban) < want || end < len(s) && isAlphanumeric(s[end]) || !looksLikeIBAN(strings.ToUpper(string(iban))) {
		return 0
	}
	return end
}

// minCardInText is the fewest digits of a card number inside a text. Numbers of 13 digits
// are article numbers there: such cards are no longer issued.
const minCardInText = 14

// cardAt returns the length of the card number with which a text begins, 0 if there is none: in
// one word, in groups of four, or in groups of 4, 6 and the rest.
func cardAt(s string) int {
	digits := make([]byte, 0, 20)
	for i, group := 0, 0; i < len(s); group++ {
		start := i
		for i < len(s) && isDigit(s[i]) && len(digits) < cap(digits) {
			digits = append(digits, s[i])
			i++
		}
		if i == start || i < len(s) && isAlphanumeric(s[i]) {
			return 0
		}
		if len(digits) >= minCardInText && looksLikeCard(string(digits)) {
			return i
		}
		if n := i - start; n != 4 && (group != 1 || n != 6) || i == len(s) || !isSeparator(s[i]) {
			return 0
		}
		i++
	}
	return 0
}

func isSeparator(c byte) bool { return c == ' ' || c == '-' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isAlphanumeric(c byte) bool { return isDigit(c) || isUpper(c) || c >= 'a' && c <= 'z' }

func looksLikeEmail(s string) bool {
	at := strings.IndexByte(s, '@')
	if at <= 0 || at == len(s)-1 {
		return false
	}
	domain := s[at+1:]
	dot := strings.LastIndexByte(domain, '.')
	return dot > 0 && dot < len(domain)-2 && !strings.ContainsAny(domain, "/@")
}

// looksLikePhone requires a leading plus and 7 to 15 digits (E.164).
func looksLikePhone(s string) bool {
	if len(s) < 8 || s[0] != '+' {
		return false
	}
	digits := 0
	for _, c := range s[1:] {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c == ' ' || c == '-' || c == '(' || c == ')' || c == '.' || c == '/':
		default:
			return false
		}
	}
	return digits >= 7 && digits <= 15
}

// compact removes blanks and dashes. It returns "" if more than limit bytes remain.
func compact(s string, limit int) string {
	if len(s) > 2*limit {
		return ""
	}
	var b strings.Builder
	for _, c := range s {
		if c != ' ' && c != '-' {
			b.WriteRune(c)
		}
	}
	if b.Len() > limit {
		return ""
	}
	return b.String()
}

// looksLikeCard requires 13 to 19 digits, an issuer prefix and a right Luhn digit.
func looksLikeCard(s string) bool {
	if len(s) < 13 || s[0] < '2' || s[0] > '6' {
		return false
	}
	d := compact(s, 19)
	if len(d) < 13 {
		return false
	}
	sum, double := 0, false
	for i := len(d) - 1; i >= 0; i-- {
		if d[i] < '0' || d[i] > '9' {
			return false
		}
		n := int(d[i] - '0')
		if double {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum, double = sum+n, !double
	}
	return sum%10 == 0 && cardPrefix(d)
}

func cardPrefix(d string) bool {
	two, four := d[:2], d[:4]
	switch {
	case d[0] == '4', two == "34", two == "37", two == "36", two == "38", two == "65", four == "6011":
		return true
	case two >= "51" && two <= "55", four >= "2221" && four <= "2720", four >= "3528" && four <= "3589", d[:3] >= "300" && d[:3] <= "305", d[:3] >= "644" && d[:3] <= "649":
		return true
	default:
		return false
	}
}

// ibanLength is the registered length per country (ISO 13616 registry).
var ibanLength = map[string]int{
	"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28, "CH": 21,
	"CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18, "FR": 27,
	"GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26,
	"IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27,
	"MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25,
	"QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23,
	"TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}

func looksLikeIBAN(s string) bool {
	if len(s) < 15 || !isUpper(s[0]) || !isUpper(s[1]) {
		return false
	}
	want, known := ibanLength[s[:2]]
	if !known {
		return false
	}
	v := compact(s, 34)
	if len(v) != want {
		return false
	}
	rest := 0
	for i := 0; i < len(v); i++ {
		c := v[(i+4)%len(v)] // the country and check digits go to the end
		switch {
		case c >= '0' && c <= '9':
			rest = (rest*10 + int(c-'0')) % 97
		case isUpper(c):
			rest = (rest*100 + int(c-'A') + 10) % 97
		default:
			return false
		}
	}
	return rest == 1
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }

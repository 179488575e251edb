// Package vatid checks VAT identification numbers by the format of their country and by
// their check digits. It knows the member states of the European Union, Northern Ireland,
// Great Britain, Switzerland and Norway. It does not know whether a number was assigned.
package vatid

import (
	"regexp"
	"strings"
)

// Verdict is the outcome of a check.
type Verdict string

// The verdicts.
const (
	Valid       Verdict = "valid"
	Unknown     Verdict = "unknown"     // of a country whose numbers this package does not know
	WrongFormat Verdict = "format"      // not of the form of its country
	WrongDigits Verdict = "check_digit" // of that form, but its check digits do not fit
)

// Normalise drops blanks, dots, hyphens and slashes, and writes upper case.
func Normalise(id string) string {
	return strings.ToUpper(strings.NewReplacer(" ", "", ".", "", "-", "", "/", "", "\u00a0", "").Replace(id))
}

// Check judges a number that begins with the prefix of its country, in any spelling that
// Normalise accepts. Greece has the prefix EL, Northern Ireland XI.
func Check(id string) Verdict {
	id = Normalise(id)
	if len(id) < 2 {
		return WrongFormat
	}
	s, known := schemes[id[:2]]
	if !known {
		if strings.Trim(id[:2], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			return WrongFormat
		}
		return Unknown
	}
	body := id[2:]
	switch {
	case !s.format.MatchString(body):
		return WrongFormat
	case !s.check(body):
		return WrongDigits
	default:
		return Valid
	}
}

// scheme is the form of a country's numbers behind the prefix.
type scheme struct {
	format *regexp.Regexp
	check  func(body string) bool // of a body in the format
}

func form(pattern string, check func(string) bool) scheme {
	return scheme{regexp.MustCompile("^(?:" + pattern + ")$"), check}
}

var schemes = map[string]scheme{
	"AT": form(`U\d{8}`, func(s string) bool { return (luhn(s[1:8])+4+digit(s[8]))%10 == 0 }),
	"BE": form(`[01]\d{9}`, func(s string) bool { return 97-modulo(s[:8], 97) == modulo(s[8:], 100) }),
	"BG": form(`\d{9,10}`, checkBulgaria),
	"CH": form(`E\d{9}(MWST|TVA|IVA|TPV)?`, func(s string) bool {
		return (11-weighted(s[1:], 5, 4, 3, 2, 7, 6, 5, 4)%11)%11 == digit(s[9])
	}),
	"CY": form(`(?:[0-59]\d{7})[A-Z]`, checkCyprus),
	"CZ": form(`\d{8,10}`, checkCzechia),
	"DE": form(`[1-9]\d{8}`, mod11and10),
	"DK": form(`[1-9]\d{7}`, func(s string) bool { return weighted(s, 2, 7, 6, 5, 4, 3, 2, 1)%11 == 0 }),
	"EE": form(`\d{9}`, func(s string) bool { return weighted(s, 3, 7, 1, 3, 7, 1, 3, 7, 1)%10 == 0 }),
	"EL": form(`\d{9}`, func(s string) bool {
		return weighted(s, 256, 128, 64, 32, 16, 8, 4, 2)%11%10 == digit(s[8])
	}),
	"ES": form(`[A-Z\d]\d{7}[A-Z\d]`, checkSpain),
	"FI": form(`\d{8}`, func(s string) bool { return weighted(s, 7, 9, 10, 5, 8, 4, 2, 1)%11 == 0 }),
	"FR": form(`[0-9A-HJ-NP-Z]{2}\d{9}`, checkFrance),
	"GB": form(`\d{9}|\d{12}|(GD|HA)\d{3}`, checkBritain),
	"HR": form(`\d{11}`, mod11and10),
	"HU": form(`\d{8}`, func(s string) bool { return weighted(s, 9, 7, 3, 1, 9, 7, 3, 1)%10 == 0 }),
	"IE": form(`\d{7}[A-W][A-I]?|\d[A-Z+*]\d{5}[A-W]`, checkIreland),
	"IT": form(`\d{11}`, func(s string) bool { return luhn(s) == 0 && s[:7] != "0000000" }),
	"LT": form(`\d{7}1\d|\d{10}1\d`, checkLithuania),
	"LU": form(`\d{8}`, func(s string) bool { return modulo(s[:6], 89) == modulo(s[6:], 100) }),
	"LV": form(`\d{11}`, checkLatvia),
	"MT": form(`[1-9]\d{7}`, func(s string) bool { return weighted(s, 3, 4, 6, 7, 8, 9, 10, 1)%37 == 0 }),
	"NL": form(`\d{9}B\d{2}`, checkNetherlands),
	"NO": form(`\d{9}(MVA)?`, func(s string) bool {
		return (11-weighted(s, 3, 2, 7, 6, 5, 4, 3, 2)%11)%11 == digit(s[8])
	}),
	"PL": form(`\d{10}`, func(s string) bool { return weighted(s, 6, 5, 7, 2, 3, 4, 5, 6, 7)%11 == digit(s[9]) }),
	"PT": form(`[1-9]\d{8}`, func(s string) bool {
		return (11-weighted(s, 9, 8, 7, 6, 5, 4, 3, 2)%11)%11%10 == digit(s[8])
	}),
	"RO": form(`[1-9]\d{1,9}`, func(s string) bool {
		s = strings.Repeat("0", 10-len(s)) + s
		return 10*weighted(s, 7, 5, 3, 2, 1, 7, 5, 3, 2)%11%10 == digit(s[9])
	}),
	"SE": form(`\d{10}(0[1-9]|[1-8]\d|9[0-4])`, func(s string) bool { return luhn(s[:10]) == 0 }),
	"SI": form(`[1-9]\d{7}`, func(s string) bool {
		check := 11 - weighted(s, 8, 7, 6, 5, 4, 3, 2)%11
		return check != 11 && check%10 == digit(s[7])
	}),
	"SK": form(`[1-9]\d[2-47-9]\d{7}`, func(s string) bool { return modulo(s, 11) == 0 }),
	"XI": form(`\d{9}|\d{12}|(GD|HA)\d{3}`, checkBritain),
}

func digit(c byte) int { return int(c - '0') }

// weighted is the sum of the first digits times the weights.
func weighted(s string, weights ...int) int {
	sum := 0
	for i, w := range weights {
		sum += w * digit(s[i])
	}
	return sum
}

// modulo is the remainder of a string of digits.
func modulo(s string, m int) int {
	n := 0
	for i := range len(s) {
		n = (n*10 + digit(s[i])) % m
	}
	return n
}

// luhn is the checksum of Luhn modulo 10, which is 0 for a number with its check digit.
func luhn(s string) int {
	sum := 0
	for i := range len(s) {
		d := digit(s[len(s)-1-i])
		if i%2 == 1 {
			d *= 2
			d = d/10 + d%10
		}
		sum += d
	}
	return sum % 10
}

// mod11and10 checks a number by ISO 7064, Mod 11,10.
func mod11and10(s string) bool {
	check := 5
	for i := range len(s) {
		if check == 0 {
			check = 10
		}
		check = (check*2%11 + digit(s[i])) % 10
	}
	return check == 1
}

// checkBulgaria accepts the numbers of companies, citizens, foreigners and others.
func checkBulgaria(s string) bool {
	if len(s) == 9 {
		check := weighted(s, 1, 2, 3, 4, 5, 6, 7, 8) % 11
		if check == 10 {
			check = weighted(s, 3, 4, 5, 6, 7, 8, 9, 10) % 11 % 10
		}
		return check == digit(s[8])
	}
	last := digit(s[9])
	other := 11 - weighted(s, 4, 3, 2, 7, 6, 5, 4, 3, 2)%11
	return weighted(s, 2, 4, 8, 5, 10, 9, 7, 3, 6)%11%10 == last ||
		weighted(s, 21, 19, 17, 13, 11, 9, 7, 3, 1)%10 == last || other != 10 && other%11 == last
}

func checkCyprus(s string) bool {
	odd := [10]int{1, 0, 5, 7, 9, 13, 15, 17, 19, 21}
	sum := 0
	for i := range 8 {
		if i%2 == 0 {
			sum += odd[digit(s[i])]
		} else {
			sum += digit(s[i])
		}
	}
	return s[:2] != "12" && s[8] == byte('A'+sum%26)
}

// checkCzechia accepts the numbers of companies (8 digits) and of persons. Of the latter,
// numbers of 9 digits from before 1954 have no check digit.
func checkCzechia(s string) bool {
	switch {
	case len(s) == 8:
		check := (11 - weighted(s, 8, 7, 6, 5, 4, 3, 2)%11) % 11
		if check == 0 {
			check = 1
		}
		return s[0] != '9' && check%10 == digit(s[7])
	case len(s) == 10:
		return modulo(s, 11) == 0 || s[9] == '0' && modulo(s[:9], 11) == 10
	default:
		return true
	}
}

const spanishLetters = "TRWAGMYFPDXBNJZSQVHLCKE"

// checkSpain accepts the numbers of companies, citizens and foreigners.
func checkSpain(s string) bool {
	first, last := s[0], s[8]
	switch {
	case first >= '0' && first <= '9':
		return last == spanishLetters[modulo(s[:8], 23)]
	case first >= 'X' && first <= 'Z':
		return last == spanishLetters[modulo(string('0'+first-'X')+s[1:8], 23)]
	case strings.IndexByte("KLM", first) >= 0:
		return last == spanishLetters[modulo(s[1:8], 23)] || last == "JABCDEFGHI"[(10-luhn(s[1:8]+"0"))%10]
	case strings.IndexByte("ABCDEFGHJNPQRSUVW", first) < 0:
		return false
	}
	check := (10 - luhn(s[1:8]+"0")) % 10
	isDigit, isLetter := last == byte('0'+check), last == "JABCDEFGHI"[check]
	switch {
	case strings.IndexByte("ABEH", first) >= 0:
		return isDigit
	case strings.IndexByte("NPQRSW", first) >= 0:
		return isLetter
	default:
		return isDigit || isLetter
	}
}

// checkFrance checks the key of two characters, old or new. Numbers of Monaco, which begin
// with 000, have no other check digit.
func checkFrance(s string) bool {
	const alphabet = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
	siren := s[2:]
	if siren[:3] != "000" && luhn(siren) != 0 {
		return false
	}
	first, second := strings.IndexByte(alphabet, s[0]), strings.IndexByte(alphabet, s[1])
	if first < 10 && second < 10 {
		return modulo(siren+"12", 97) == first*10+second
	}
	check := first*34 + second - 100
	if first < 10 {
		check = first*24 + second - 10
	}
	return (modulo(siren, 11)+1+check/11)%11 == check%11
}

func checkBritain(s string) bool {
	if len(s) == 5 {
		n := modulo(s[2:], 1000)
		return s[:2] == "GD" && n < 500 || s[:2] == "HA" && n >= 500
	}
	sum := (weighted(s, 8, 7, 6, 5, 4, 3, 2) + modulo(s[7:9], 100)) % 97
	return sum == 0 || sum == 42
}

func checkIreland(s string) bool {
	const alphabet = "WABCDEFGHIJKLMNOPQRSTUV"
	digits, suffix := s[:7], 0
	if s[1] < '0' || s[1] > '9' { // the form before 2013
		digits = "0" + s[2:7] + s[:1]
	} else if len(s) == 9 {
		suffix = strings.IndexByte(alphabet, s[8])
	}
	return s[7] == alphabet[(weighted(digits, 8, 7, 6, 5, 4, 3, 2)+9*suffix)%23]
}

func checkLithuania(s string) bool {
	sum := func(shift int) (n int) {
		for i := range len(s) - 1 {
			n += (1 + (i+shift)%9) * digit(s[i])
		}
		return n
	}
	check := sum(0) % 11
	if check == 10 {
		check = sum(2) % 11 % 10
	}
	return check == digit(s[len(s)-1])
}

// checkLatvia accepts the numbers of companies and of persons. Of the latter, those that
// begin with 32 have no check digit.
func checkLatvia(s string) bool {
	switch {
	case s[0] > '3':
		return weighted(s, 9, 1, 4, 8, 3, 10, 2, 5, 7, 6, 1)%11 == 3
	case s[:2] == "32":
		return true
	default:
		return (1+weighted(s, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9))%11%10 == digit(s[10])
	}
}

// checkNetherlands accepts the numbers of companies by their tax number, and those of
// persons by ISO 7064, Mod 97,10.
func checkNetherlands(s string) bool {
	if s[10:] == "00" {
		return false
	}
	if weighted(s, 9, 8, 7, 6, 5, 4, 3, 2, -1)%11 == 0 && s[:9] != "000000000" {
		return true
	}
	n := 2321 // NL
	for i := range len(s) {
		if s[i] == 'B' {
			n = (n*100 + 11) % 97
		} else {
			n = (n*10 + digit(s[i])) % 97
		}
	}
	return n%97 == 1
}

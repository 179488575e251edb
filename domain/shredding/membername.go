package shredding

import (
	"slices"
	"strings"
	"unicode"
)

// personalWords are words in the names of members that hold personal data.
var personalWords = wordSet(`
	name names firstname lastname surname forename fullname nickname username middlename birthname
	email emails mail mails phone phones telephone telefax mobile cellphone fax iban ibans
	address addresses birth birthday birthdate birthplace dob dateofbirth
	taxid taxids ssn note notes`)

// documentNotes are the words that, before "note", name a document.
var documentNotes = wordSet("credit debit delivery dispatch goods promissory consignment")

func wordSet(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// personalName reports whether a member is named like a person's datum: name,
// email, phone, iban, address, birth, tax id or note, alone or as one of the
// words of the name ("vendor_name", "phoneNumber", "tax-id").
func personalName(name string) bool {
	words := wordsOf(name)
	for i, w := range words {
		switch before := slices.Concat([]string{""}, words)[i]; {
		case (w == "note" || w == "notes") && documentNotes[before]:
		case personalWords[w], before == "tax" && (w == "id" || w == "ids" || w == "number"), before == "e" && (w == "mail" || w == "mails"):
			return true
		}
	}
	return false
}

// wordsOf splits a name at blanks, signs and the capitals of camel case.
func wordsOf(name string) (words []string) {
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = word[:0]
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			end()
			continue
		case unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			end()
		}
		word = append(word, r)
	}
	end()
	return words
}

// The words in the names of members that hold a name, an e-mail address or a telephone number.
var (
	nameWords  = wordSet("name names firstname lastname surname forename fullname nickname username middlename birthname")
	mailWords  = wordSet("email emails mail mails")
	phoneWords = wordSet("phone phones telephone mobile cellphone")
)

// A Datum is what a member holds about a person, as its name says.
type Datum string

// The data by which a person is found.
const (
	DatumName  Datum = "name"
	DatumEmail Datum = "email"
	DatumPhone Datum = "phone"
)

// DatumOf tells by the name of a member what it holds about a person; "" is something else.
func DatumOf(member string) Datum {
	words := wordsOf(member)
	has := func(set map[string]bool) bool {
		return slices.ContainsFunc(words, func(w string) bool { return set[w] })
	}
	switch {
	case has(mailWords):
		return DatumEmail
	case has(phoneWords):
		return DatumPhone
	case has(nameWords):
		return DatumName
	default:
		return ""
	}
}

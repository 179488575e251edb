package domain

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// Rules by which two documents are possible duplicates.
const (
	RuleSameNumber = "number" // same vendor, number equal by letters and digits without leading zeros
	RuleSameTotal  = "total"  // same vendor, currency and total on the same day
	RuleSameParty  = "party"  // VAT id, number, currency and total equal, of any vendor
)

// NumberTag is the tag that documents of a vendor share when their LooseNumber is the
// same, as for "INV-00123" and "inv 123". ok is false for a number without letters and
// digits.
func NumberTag(k contract.Kind, vendorID, number string) (tag string, ok bool) {
	loose := LooseNumber(number)
	return "match:" + string(k) + ":number:" + vendorID + ":" + loose, loose != ""
}

// TotalTag is the tag that documents of a vendor share when currency, total and date are
// the same.
func TotalTag(k contract.Kind, vendorID string, c money.Currency, total money.Number, day event.Date) string {
	return "match:" + string(k) + ":total:" + vendorID + ":" + c.Code + ":" + total.Fixed(c.MinorUnit) + ":" + day.String()
}

// PartyTag is the tag that documents share when VAT id and number are equal by letters and
// digits, and currency and total are the same: one company that is registered as two vendors.
// It is a digest in letters, since ids and figures in a row may look like personal data. ok is
// false without a VAT id, as for natural persons, and for a number without letters and digits.
func PartyTag(k contract.Kind, vatID, number string, c money.Currency, total money.Number) (tag string, ok bool) {
	party, loose := LooseNumber(vatID), LooseNumber(number)
	if party == "" || loose == "" {
		return "", false
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{party, loose, c.Code, total.Fixed(c.MinorUnit)}, "|")))
	letters := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r - '0' + 'g'
		}
		return r
	}, hex.EncodeToString(sum[:16]))
	return "match:" + string(k) + ":party:" + letters, true
}

// LooseNumber reduces a document number to letters and digits, in upper case,
// without zeros in front of a group of digits.
func LooseNumber(number string) string {
	var b strings.Builder
	inDigits := false // a digit of the current group was written
	digits := false   // the last rune was a digit
	zeros := false    // the current group begins with zeros
	flush := func() {
		if digits && zeros && !inDigits {
			b.WriteByte('0')
		}
	}
	for _, r := range eventtype.Normalise(eventtype.NormaliseDocumentNumber, number) {
		switch {
		case unicode.IsDigit(r):
			if !digits {
				digits, zeros, inDigits = true, false, false
			}
			if r == '0' && !inDigits {
				zeros = true
				continue
			}
			inDigits = true
			b.WriteRune(r)
		default:
			flush()
			digits = false
			if unicode.IsLetter(r) {
				b.WriteRune(r)
			}
		}
	}
	flush()
	return b.String()
}

// SameNumber reports whether two document numbers have the same normal form: the same
// business key.
func SameNumber(a, b string) bool {
	return eventtype.Normalise(eventtype.NormaliseDocumentNumber, a) == eventtype.Normalise(eventtype.NormaliseDocumentNumber, b)
}

package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// Rules by which two documents look like the same paper.
const (
	RuleSameNumber = "number" // same vendor, number equal by letters and digits without leading zeros
	RuleSameTotal  = "total"  // same vendor, currency and total on the same day
)

// NumberKey names the stream of documents of a vendor whose numbers are the same
// when only letters and digits count and zeros in front of a group of digits do
// not: "INV-00123" and "inv 123". ok is false for a number without letters and
// digits.
func NumberKey(k contract.Kind, vendorID, number string) (id event.StreamID, ok bool) {
	loose := LooseNumber(number)
	return event.StreamID{Type: contract.StreamMatchKey, ID: string(k) + ":number:" + vendorID + ":" + loose}, loose != ""
}

// TotalKey names the stream of documents of a vendor with the same currency and
// total on a day.
func TotalKey(k contract.Kind, vendorID string, c money.Currency, total money.Number, day event.Date) event.StreamID {
	return event.StreamID{Type: contract.StreamMatchKey,
		ID: string(k) + ":total:" + vendorID + ":" + c.Code + ":" + total.Fixed(c.MinorUnit) + ":" + day.String()}
}

// LooseNumber reduces a document number to letters and digits, in upper case,
// without zeros in front of a group of digits.
func LooseNumber(number string) string {
	var b strings.Builder
	inDigits := false // a digit of the present group was written
	digits := false   // the last rune was a digit
	zeros := false    // the present group has only had zeros
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

// SameNumber reports whether two document numbers are one number, however they
// are written: width, case and blanks do not count.
func SameNumber(a, b string) bool {
	return eventtype.Normalise(eventtype.NormaliseDocumentNumber, a) == eventtype.Normalise(eventtype.NormaliseDocumentNumber, b)
}

// MatchKey is the fold of a match key's stream: the first document that has it.
type MatchKey struct {
	DocumentID string
	EventID    event.ID
}

// Clone copies the state.
func (m *MatchKey) Clone() *MatchKey { c := *m; return &c }

// Apply folds an event: the last document that was recorded has the key.
func (m *MatchKey) Apply(e event.Recorded, data []byte) error {
	if e.Type != contract.EventMatchKeyRecorded {
		return nil
	}
	var r contract.MatchKeyRecorded
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("match key: %w", err)
	}
	m.DocumentID, m.EventID = r.ID(), e.ID
	return nil
}

package concurrency

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// MaxIdempotencyKey bounds a caller's key, in bytes.
const MaxIdempotencyKey = 255

// ScopeIdempotencyKey scopes a caller's key by person and route: the same text from another
// person or for another route is another key. The length of the person in front keeps the
// result unambiguous if a part contains the separator. Faults:
// idempotency.key_invalid, pii.in_identifier.
func ScopeIdempotencyKey(person, route, key string) (string, error) {
	scoped := strconv.Itoa(len(person)) + "|" + person + "|" + route + "|" + key
	if key == "" || len(key) > MaxIdempotencyKey || len(scoped) > 512 || !utf8.ValidString(scoped) || strings.IndexByte(scoped, 0) >= 0 {
		return "", fault.New(fault.Invalid, "idempotency.key_invalid", "an idempotency key has 1 to %d bytes of text; use a shorter one", MaxIdempotencyKey).WithField("Idempotency-Key")
	}
	return scoped, shredding.CheckIdentifier("Idempotency-Key", key)
}

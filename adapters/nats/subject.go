package nats

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
)

// longestToken is how many bytes of an encoded token are kept; longer ones end in a
// digest, so that no subject outgrows what the protocol takes on a line.
const longestToken = 256

// Subject is where an event goes: <prefix>.<tenant>.<legal entity>.<type>. Tenant and
// legal entity are one token each, and a type's dots separate tokens, so that
// "backbone.acme.*.ap.>" selects a module. Two events have the same subject only if
// they agree in all three.
func Subject(prefix string, e *event.Skeleton) string {
	var b strings.Builder
	b.WriteString(prefix)
	for _, t := range append([]string{e.Scope.TenantID, e.Scope.LegalEntity}, strings.Split(e.Type, ".")...) {
		b.WriteByte('.')
		b.WriteString(token(t))
	}
	return b.String()
}

// token writes letters, digits, hyphen and underscore as they are and every other byte
// as % and two digits. No text but the empty one gives a lone %.
func token(text string) string {
	if text == "" {
		return "%"
	}
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
			continue
		}
		escape(&b, c)
	}
	if b.Len() <= longestToken {
		return b.String()
	}
	// "%~" comes out of no text, so a shortened token is no other one's.
	sum := sha256.Sum256([]byte(text))
	return b.String()[:longestToken/2] + "%~" + hex.EncodeToString(sum[:])
}

func escape(b *strings.Builder, c byte) {
	const digits = "0123456789ABCDEF"
	b.WriteByte('%')
	b.WriteByte(digits[c>>4])
	b.WriteByte(digits[c&15])
}

// headerText writes a CloudEvents attribute as a header's value: what is not a visible
// ASCII character, the quote and the percent sign are percent-encoded.
func headerText(text string) string {
	plain := true
	for i := range len(text) {
		plain = plain && visible(text[i])
	}
	if plain {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		if visible(text[i]) {
			b.WriteByte(text[i])
			continue
		}
		escape(&b, text[i])
	}
	return b.String()
}

func visible(c byte) bool { return c > ' ' && c <= '~' && c != '"' && c != '%' }

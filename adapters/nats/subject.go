package nats

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
)

// longestToken bounds the bytes of an encoded token, because the protocol bounds a line.
// Longer tokens are shortened and end in a digest.
const longestToken = 256

// Subject returns the subject of an event: <prefix>.<tenant>.<legal entity>.<type>. Tenant and
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
// as % and two digits. The empty text is a single %.
func token(text string) string {
	if text == "" {
		return "%"
	}
	encoded := percentEncode(text, func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
	})
	if len(encoded) <= longestToken {
		return encoded
	}
	// No text is encoded with "%~", so a shortened token never equals another one.
	sum := sha256.Sum256([]byte(text))
	return encoded[:longestToken/2] + "%~" + hex.EncodeToString(sum[:])
}

// percentEncode writes every byte that is not plain as % and two digits.
func percentEncode(text string, isPlain func(byte) bool) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r > '~' || !isPlain(byte(r)) }) {
		return text // the usual case, without a copy
	}
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// headerText writes a CloudEvents attribute as a header's value: bytes other than visible
// ASCII characters, the quote and the percent sign are percent-encoded.
func headerText(text string) string {
	return percentEncode(text, func(c byte) bool { return c > ' ' && c <= '~' && c != '"' && c != '%' })
}

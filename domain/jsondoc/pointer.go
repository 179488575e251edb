package jsondoc

import "strings"

var (
	escapes   = strings.NewReplacer("~", "~0", "/", "~1")
	unescapes = strings.NewReplacer("~1", "/", "~0", "~")
)

// EscapeToken writes a member's name as a token of a JSON pointer (RFC 6901).
func EscapeToken(name string) string { return escapes.Replace(name) }

// UnescapeToken gives the member's name of a token of a JSON pointer.
func UnescapeToken(token string) string { return unescapes.Replace(token) }

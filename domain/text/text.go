// Package text checks texts that people write and that are kept for ever: descriptions,
// names and reasons. Such a text must be what its reader sees, and it must hold no account
// or card number.
package text

import (
	"strings"
	"unicode"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Check refuses a text that has blanks only, an invisible character, or the number of a
// bank account or card. The empty text passes: schemas say which texts are required.
// Faults: text.blank, text.invisible_character, pii.in_text.
func Check(field, s string) error {
	if s == "" {
		return nil
	}
	if err := CheckNotBlank(field, s); err != nil {
		return err
	}
	if err := CheckVisible(field, s); err != nil {
		return err
	}
	return shredding.CheckNoAccountNumber(field, s)
}

// CheckNotBlank refuses a text without any visible character: text.blank.
func CheckNotBlank(field, s string) error {
	if strings.TrimFunc(s, isBlank) != "" {
		return nil
	}
	return fault.New(fault.Invalid, "text.blank", "the text is blank; write what a reader needs to know").WithField(field)
}

func isBlank(r rune) bool { return unicode.IsSpace(r) || !isVisible(r) }

// CheckVisible refuses characters that a reader does not see or that change the order in
// which a text is shown, such as bidirectional controls: text.invisible_character. Tabs and
// line ends pass. So do joiners between letters of scripts that are written with them.
func CheckVisible(field, s string) error {
	position, before := 0, rune(0)
	for _, r := range s {
		position++
		if !isShown(r, before) {
			return fault.New(fault.Invalid, "text.invisible_character",
				"character %d of the text is %U, which readers do not see; remove it", position, r).
				WithField(field).With("position", position)
		}
		before = r
	}
	return nil
}

// Clean removes the characters that CheckVisible refuses. It is for texts that are read from
// papers, where soft hyphens and leftovers of another encoding are no reason to refuse.
func Clean(s string) string {
	before := rune(0)
	return strings.Map(func(r rune) rune {
		shown := isShown(r, before)
		if before = r; !shown {
			return -1
		}
		return r
	}, s)
}

// isShown reports whether a reader sees a character after the one before it.
func isShown(r, before rune) bool { return isVisible(r) || isJoiner(r) && takesJoiners(before) }

func isVisible(r rune) bool {
	switch r {
	case '\t', '\n', '\r':
		return true
	case '\u115F', '\u1160', '\u3164', '\uFFA0', // Hangul fillers, which are letters to Unicode
		'\u034F', '\u17B4', '\u17B5', '\u2800', // combining joiner, Khmer inherent vowels, empty Braille pattern
		unicode.ReplacementChar:
		return false
	}
	return !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp)
}

// isJoiner reports whether a character makes the letters beside it joined or not joined.
func isJoiner(r rune) bool { return r == '\u200C' || r == '\u200D' }

// takesJoiners reports whether a joiner after the character changes its shape. Scripts
// without joined letters take none.
func takesJoiners(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M) && !unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Han)
}

package einvoice

import (
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// decimalText rewrites an xsd:decimal in the grammar of package money: no blanks around
// it, no plus sign, no needless leading zeros, a digit on both sides of the point, no
// negative zero. It keeps the digits after the point and so the scale.
func decimalText(s string) (string, bool) {
	s = strings.Trim(s, " \t\r\n")
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	if whole == "" && fraction == "" || !allDigits(whole) || !allDigits(fraction) {
		return "", false
	}
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	text := whole
	if fraction != "" {
		text += "." + fraction
	}
	if negative && strings.Trim(text, "0.") != "" {
		text = "-" + text
	}
	return text, true
}

func allDigits(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}

// parseDecimal reads an xsd:decimal exactly. It drops zeros at the end of a fraction only
// if the number is too long with them.
func parseDecimal(s string) (money.Number, bool) {
	text, ok := decimalText(s)
	if !ok {
		return money.Number{}, false
	}
	n, err := money.ParseNumber(text)
	if err != nil && strings.Contains(text, ".") {
		n, err = money.ParseNumber(strings.TrimSuffix(strings.TrimRight(text, "0"), "."))
	}
	return n, err == nil
}

// decimals counts the digits after the point as written.
func decimals(s string) int {
	_, fraction, _ := strings.Cut(s, ".")
	return len(fraction)
}

// number reads an element. An absent one counts as 0; ok is false for a text that is no
// number.
func number(e *Element) (n money.Number, ok bool) {
	if e.Value() == "" {
		return money.Number{}, true
	}
	return parseDecimal(e.Value())
}

// parseDate reads an xsd:date. It ignores the time zone that the type allows, as document
// dates have none.
func parseDate(s string) (event.Date, bool) {
	if len(s) < len(time.DateOnly) {
		return 0, false
	}
	day, zone := s[:len(time.DateOnly)], s[len(time.DateOnly):]
	if zone != "" && zone != "Z" {
		if _, err := time.Parse("-07:00", zone); err != nil {
			return 0, false
		}
	}
	d, err := event.ParseDate(day)
	return d, err == nil
}

// parseIndicator reads an xsd:boolean.
func parseIndicator(s string) (value, ok bool) {
	switch s {
	case "true", "1":
		return true, true
	case "false", "0":
		return false, true
	}
	return false, false
}

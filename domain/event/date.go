package event

import (
	"fmt"
	"time"
)

// Date is a calendar day, counted in days since 1970-01-01. It has no zone.
type Date int32

const dayLayout = "2006-01-02"

// ParseDate reads an ISO 8601 calendar date, "2026-03-31".
func ParseDate(s string) (Date, error) {
	t, err := time.Parse(dayLayout, s)
	if err != nil {
		return 0, fmt.Errorf("not an ISO date")
	}
	return DateOf(t), nil
}

// MustDate is ParseDate for constants; it panics on a bad date.
func MustDate(s string) Date {
	d, err := ParseDate(s)
	if err != nil {
		panic(err)
	}
	return d
}

// DateOf gives the day of t in t's own zone.
func DateOf(t time.Time) Date {
	y, m, d := t.Date()
	return Date(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400)
}

// Time is midnight UTC at the start of the day.
func (d Date) Time() time.Time { return time.Unix(int64(d)*86400, 0).UTC() }

// String gives "2006-01-02".
func (d Date) String() string { return d.Time().Format(dayLayout) }

// AddDays moves the date.
func (d Date) AddDays(n int) Date { return d + Date(n) }

// MarshalText gives the ISO form.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the ISO form.
func (d *Date) UnmarshalText(b []byte) error {
	v, err := ParseDate(string(b))
	if err != nil {
		return err
	}
	*d = v
	return nil
}

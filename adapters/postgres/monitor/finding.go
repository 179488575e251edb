package monitor

import (
	"fmt"
	"time"
)

// FindingStatus says how urgent a finding is.
type FindingStatus string

// The statuses.
const (
	FindingOK   FindingStatus = "ok"
	FindingWarn FindingStatus = "warn" // look at it within the day
	FindingFail FindingStatus = "fail" // a promise is broken, or soon will be
)

// Finding is one judgement of a Monitor's report.
type Finding struct {
	Section string        `json:"section"`
	Subject string        `json:"subject"`
	Status  FindingStatus `json:"status"`
	Detail  string        `json:"detail"`
	Next    string        `json:"next_step,omitempty"` // absent when all is well
}

// newFinding compares a value with two limits; 0 is no limit.
func newFinding(section, subject string, value, warn, fail float64) Finding {
	f := Finding{Section: section, Subject: subject, Status: FindingOK}
	switch {
	case fail > 0 && value >= fail:
		f.Status = FindingFail
	case warn > 0 && value >= warn:
		f.Status = FindingWarn
	}
	return f
}

// with sets detail and next step; a finding that is ok has no next step.
func (f Finding) with(next, format string, args ...any) Finding {
	f.Detail = fmt.Sprintf(format, args...)
	if f.Status != FindingOK {
		f.Next = next
	}
	return f
}

// duration formats seconds for people.
func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

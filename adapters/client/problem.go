package client

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// kinds maps statuses back to kinds of faults.
var kinds = map[int]fault.Kind{
	http.StatusBadRequest: fault.Invalid, http.StatusUnauthorized: fault.Unauthenticated, http.StatusForbidden: fault.Forbidden,
	http.StatusNotFound: fault.NotFound, http.StatusConflict: fault.Conflict, http.StatusGone: fault.Gone,
	http.StatusRequestEntityTooLarge: fault.TooLarge, http.StatusUnprocessableEntity: fault.FailedPrecondition,
	http.StatusTooManyRequests: fault.TooMany, http.StatusServiceUnavailable: fault.Unavailable, http.StatusGatewayTimeout: fault.Timeout,
	http.StatusMethodNotAllowed: fault.Invalid, http.StatusUnsupportedMediaType: fault.Invalid,
}

// decodeProblem decodes a problem document. Members that a fault has no field for become
// its attributes.
func decodeProblem(res *http.Response, text []byte) error {
	var p struct {
		Code         string            `json:"code"`
		Detail       string            `json:"detail"`
		Field        string            `json:"field"`
		IntentID     string            `json:"intent_id"`
		Expected     any               `json:"expected"`
		Actual       any               `json:"actual"`
		Holder       *fault.Holder     `json:"holder"`
		Violations   []fault.Violation `json:"violations"`
		RetryAfterMS int64             `json:"retry_after_ms"`
	}
	kind := kinds[res.StatusCode]
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&p); err != nil || p.Code == "" {
		return fault.New(kind, "client.answer_unreadable", "the server answered with status %d and no problem document; check its address and the proxies before it", res.StatusCode)
	}
	// Not fault.New: the detail is no format.
	f := &fault.Error{
		Kind: kind, Code: p.Code, Detail: p.Detail, Field: p.Field, IntentID: p.IntentID, Expected: p.Expected, Actual: p.Actual,
		Holder: p.Holder, Violations: p.Violations, RetryAfter: time.Duration(p.RetryAfterMS) * time.Millisecond,
	}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && f.RetryAfter == 0 {
		f.RetryAfter = time.Duration(seconds) * time.Second
	}
	var members map[string]any
	decoder = json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&members); err == nil {
		for _, known := range []string{
			"type", "title", "status", "code", "detail", "field", "intent_id", "expected", "actual", "holder", "violations", "retry_after_ms",
		} {
			delete(members, known)
		}
		if len(members) > 0 {
			f.Attributes = members
		}
	}
	return f
}

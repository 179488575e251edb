package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
)

// encode is encoding/json without the escapes for HTML, so that raw documents
// keep their characters.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// response is an answer that sets its status, headers and body itself. An export or a live feed
// writes its body piece by piece.
type response interface {
	write(w http.ResponseWriter) error
}

// answer is a response whose whole body is in memory.
type answer struct {
	status       int
	contentType  string // "" is JSON
	body         []byte
	replayed     bool
	cacheControl string // Cache-Control; "" keeps the no-store that observe sets
	nextCursor   string // Next-Cursor, of a page whose body has no place for it; "" is none
}

// reply encodes a value of the generated models.
func reply(status int, v any) (answer, error) {
	body, err := encode(v)
	return answer{status: status, body: body}, err
}

// replyReplayed is reply for a request that may have been answered before.
func replyReplayed(status int, v any, replayed bool) (answer, error) {
	a, err := reply(status, v)
	a.replayed = replayed
	return a, err
}

// createdStatus is 201 for a resource that the request made, 200 for one that existed.
func createdStatus(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

func (a answer) write(w http.ResponseWriter) error {
	h := w.Header()
	if a.contentType == "" {
		a.contentType = echo.MIMEApplicationJSON
	}
	h.Set(echo.HeaderContentType, a.contentType)
	h.Set(echo.HeaderContentLength, strconv.Itoa(len(a.body)))
	if a.replayed {
		h.Set("Idempotency-Replayed", "true")
	}
	if a.nextCursor != "" {
		h.Set("Next-Cursor", a.nextCursor)
	}
	if a.cacheControl != "" {
		h.Set(echo.HeaderCacheControl, a.cacheControl)
		h.Add(echo.HeaderVary, echo.HeaderAuthorization)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // an error means that the caller has left
	return nil
}

// timeLayout is RFC 3339 with microseconds.
const timeLayout = "2006-01-02T15:04:05.000000Z"

func timeText(t time.Time) string { return t.UTC().Format(timeLayout) }

// optionalTime is "" for no time, which leaves the member out.
func optionalTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return timeText(t)
}

// numberText writes sequences and counts as decimal strings: JSON readers lose digits of
// numbers above 2^53.
func numberText[N ~uint64](n N) string { return strconv.FormatUint(uint64(n), 10) }

// nonNil replaces nil by an empty slice, which is encoded as [] and not as null.
func nonNil[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// convert applies f to every item. The result is never nil.
func convert[T, A any](items []T, f func(T) A) []A {
	out := make([]A, len(items))
	for i, item := range items {
		out[i] = f(item)
	}
	return out
}

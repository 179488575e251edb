package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// bodyBuffer holds a request's body until the answer is written. Buffers are pooled,
// except large ones, which would keep their memory.
type bodyBuffer struct{ bytes.Buffer }

const pooledBytes = 256 << 10

var bodyBuffers = sync.Pool{New: func() any { return new(bodyBuffer) }}

func (b *bodyBuffer) release() {
	if b.Cap() <= pooledBytes {
		b.Reset()
		bodyBuffers.Put(b)
	}
}

// drainTimeout bounds reading the rest of a refused body, so that the sender sees the answer
// before the connection is closed.
const drainTimeout = 2 * time.Second

// admit refuses a body that is too large by its Content-Length, and a request over the limits of
// what is in flight. Without Content-Length a body counts as the largest until it is read.
func (a *admission) admit(c echo.Context) (*ticket, error) {
	size := c.Request().ContentLength
	if size > a.limits.BodyBytes {
		return nil, refuseLargeBody(c, a.limits.BodyBytes)
	}
	if size < 0 {
		size = a.limits.BodyBytes
	}
	p := callOf(c.Request().Context()).principal
	t, err := a.enter(admitted{p.TenantID, p.PrincipalID}, size)
	if err != nil {
		closeUnread(c)
	}
	return t, err
}

// readBody receives the body and checks the bytes of a document before any decoder does. A body without
// Content-Length that is over the limit is refused as soon as more bytes arrive; memory holds one
// byte more than the limit at most.
func (s *Server) readBody(c echo.Context, buffer *bodyBuffer, op operation, most int64) error {
	r := c.Request()
	if r.ContentLength != 0 && !op.binary {
		if err := checkMediaType(r.Header); err != nil {
			return err
		}
	}
	connection := http.NewResponseController(c.Response().Writer)
	// Only the ResponseRecorder of a test does not support deadlines.
	_ = connection.SetReadDeadline(time.Now().Add(s.limits.Body))
	if r.ContentLength > 0 {
		buffer.Grow(int(r.ContentLength) + bytes.MinRead) // admitted; growing by doubling would need twice as much
	}
	n, err := io.Copy(buffer, io.LimitReader(r.Body, most+1))
	if n > most {
		return refuseLargeBody(c, most)
	}
	if err != nil {
		c.Response().Header().Set(echo.HeaderConnection, "close")
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fault.New(fault.Timeout, "http.body_too_slow", "the body did not arrive in time; send it again in one go").WithCause(err)
		}
		return fault.New(fault.Invalid, "http.body_incomplete", "the body ended before its announced length; send it again").WithCause(err)
	}
	_ = connection.SetReadDeadline(time.Time{})
	if op.binary || buffer.Len() == 0 && op.body == optionalBody {
		return nil
	}
	return jsondoc.Check(buffer.Bytes(), s.limits.bodyLimits(op))
}

// closeUnread closes the connection of a refused body after the answer.
func closeUnread(c echo.Context) {
	c.Response().Header().Set(echo.HeaderConnection, "close")
	_ = http.NewResponseController(c.Response().Writer).SetReadDeadline(time.Now().Add(drainTimeout))
}

func refuseLargeBody(c echo.Context, most int64) error {
	closeUnread(c)
	return fault.New(fault.TooLarge, "http.body_too_large", "a request body may have %d bytes; send less at once", most).
		With("limit", most)
}

func checkMediaType(h http.Header) error {
	media, _, err := mime.ParseMediaType(h.Get(echo.HeaderContentType))
	if err != nil || media != echo.MIMEApplicationJSON || h.Get(echo.HeaderContentEncoding) != "" {
		return echo.ErrUnsupportedMediaType
	}
	return nil
}

// decodeBody decodes a body that guard has read and checked. It refuses members that
// the document does not name, so that a caller who sends a tenant or an actor learns that
// it has no effect. An absent body leaves the target as it is.
func decodeBody(raw []byte, target any) error {
	if len(raw) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(target)
	if err == nil {
		return nil
	}
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) {
		return fault.New(fault.Invalid, "json.wrong_type", "a member has another JSON type than the API takes there; GET /api/openapi.yaml says which").
			WithField(pointerAt(raw, mistyped.Offset)).With("offset", mistyped.Offset)
	}
	if _, name, found := strings.Cut(err.Error(), "unknown field "); found {
		return fault.New(fault.Invalid, "json.unknown_member",
			"the body has a member that the API does not take there (tenant and actor come from the access token); leave it out").
			With("member", strings.Trim(name, `"`))
	}
	return fault.New(fault.Invalid, "json.malformed", "the body cannot be read; send one RFC 8259 document").WithCause(err)
}

// pointerAt returns the RFC 6901 pointer of the value at an offset. The document is
// well-formed.
func pointerAt(raw []byte, offset int64) string {
	type level struct {
		object, named bool // in an object; its member's name has been read
		index         int
		name          string
	}
	var path []level
	pointer := func() string {
		var b strings.Builder
		for _, l := range path {
			b.WriteByte('/')
			if l.object {
				b.WriteString(jsondoc.EscapeToken(l.name))
			} else {
				b.WriteString(strconv.Itoa(l.index))
			}
		}
		return b.String()
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	for {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		delimiter, isDelimiter := token.(json.Delim)
		if isDelimiter && (delimiter == '}' || delimiter == ']') {
			path = path[:len(path)-1]
		} else {
			if n := len(path); n > 0 {
				top := &path[n-1]
				if top.object && !top.named {
					top.name, _ = token.(string)
					top.named = true
					continue
				}
			}
			if d.InputOffset() >= offset {
				return pointer()
			}
			if isDelimiter {
				path = append(path, level{object: delimiter == '{'})
				continue
			}
		}
		if n := len(path); n > 0 { // a value has ended
			path[n-1].named = false
			path[n-1].index++
		}
	}
}

// missingMember refuses a body that lacks a member.
func missingMember(pointer string) error {
	return fault.New(fault.Invalid, "request.member_missing", "this member is required; add it").WithField(pointer)
}

// checkObject refuses anything that is not a JSON object.
func checkObject(raw json.RawMessage, pointer string) error {
	if len(raw) == 0 {
		return missingMember(pointer)
	}
	if raw[0] != '{' {
		return fault.New(fault.Invalid, "json.wrong_type", "this member is a JSON object; send one").WithField(pointer)
	}
	return nil
}

// Package httpclient speaks Backbone's HTTP API for programs: the importer, the
// command line, tests. Problem documents come back as faults with the same kind,
// code and members. A request that may be repeated is repeated when the server
// says it is away for a moment.
package httpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Config says whom to talk to.
type Config struct {
	Server string // base URL, "http://127.0.0.1:8080"
	Token  string // access token
	Raw    bool   // events are read as they are stored, not in the newest schema version
	// HTTP does the transport; nil: a client of its own that keeps connections.
	HTTP *http.Client
	// Attempts bounds how often a request is sent while the server is unavailable;
	// 0 is 5.
	Attempts int
	// LongestWait bounds one wait between attempts, whatever the server asks for; 0
	// is 10 s.
	LongestWait time.Duration
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	base        *url.URL
	token       string
	http        *http.Client
	attempts    int
	longestWait time.Duration
	raw         bool
}

// New makes a Client. Fault client.server_invalid if the server is no URL.
func New(c Config) (*Client, error) {
	base, err := url.Parse(strings.TrimSuffix(c.Server, "/"))
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fault.New(fault.Invalid, "client.server_invalid", "the server is given as a URL such as http://127.0.0.1:8080; correct it")
	}
	out := &Client{base: base, token: c.Token, http: c.HTTP, attempts: c.Attempts, longestWait: c.LongestWait, raw: c.Raw}
	if out.http == nil {
		transport := &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
			ExpectContinueTimeout: time.Second, ResponseHeaderTimeout: 2 * time.Minute,
		}
		out.http = &http.Client{Transport: transport}
	}
	if out.attempts < 1 {
		out.attempts = 5
	}
	if out.longestWait == 0 {
		out.longestWait = 10 * time.Second
	}
	return out, nil
}

// largestAnswer bounds what is read of an answer.
const largestAnswer = 256 << 20

// request is one call, which may be sent more than once.
type request struct {
	method, path string
	query        url.Values
	header       http.Header
	body         any
	repeatable   bool // sending it twice takes effect once
}

// reply is an answer that is no problem.
type reply struct {
	status   int
	replayed bool
	body     []byte
}

// do sends a request and decodes the answer into out, if there is one.
func (c *Client) do(ctx context.Context, r request, out any) (reply, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = encode(r.body); err != nil {
			return reply{}, err
		}
	}
	for attempt := 1; ; attempt++ {
		answer, err := c.send(ctx, r, body)
		f, isFault := fault.As(err)
		if err == nil || !isFault || f.Kind != fault.Unavailable || attempt == c.attempts || !r.mayRepeat(f) {
			if err == nil && out != nil {
				if err := json.Unmarshal(answer.body, out); err != nil {
					return answer, fault.New(fault.Internal, "client.answer_unreadable", "the server's answer is not what its API describes; check the server's address and version").WithCause(err)
				}
			}
			return answer, err
		}
		pause := f.RetryAfter
		if pause <= 0 {
			pause = time.Duration(attempt) * 200 * time.Millisecond
		}
		if err := wait(ctx, min(pause, c.longestWait)); err != nil {
			return reply{}, err
		}
	}
}

// mayRepeat tells whether sending again is safe. An answer from the server that
// it is unavailable says that nothing was written; a broken connection does not.
func (r request) mayRepeat(f *fault.Error) bool { return r.repeatable || f.Code != codeUnreachable }

const codeUnreachable = "client.server_unreachable"

func (c *Client) send(ctx context.Context, r request, body []byte) (reply, error) {
	target := *c.base
	target.RawPath = c.base.EscapedPath() + r.path
	path, err := url.PathUnescape(target.RawPath)
	if err != nil {
		return reply{}, fault.New(fault.Invalid, "client.path_invalid", "this cannot be asked for; correct the id or path").WithCause(err)
	}
	query := r.query
	if c.raw && r.method == http.MethodGet && strings.HasPrefix(r.path, "/api/events") {
		query = url.Values{"raw": {"true"}}
		maps.Copy(query, r.query)
	}
	target.Path, target.RawQuery = path, query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, target.String(), bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return reply{}, unreachable(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, largestAnswer))
	if err != nil {
		return reply{}, unreachable(ctx, err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		return reply{}, problem(res, text)
	}
	return reply{status: res.StatusCode, replayed: res.Header.Get("Idempotency-Replayed") == "true", body: text}, nil
}

func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fault.New(fault.Timeout, "client.timeout", "the server did not answer in time; send it again with the same idempotency key").WithCause(err)
	}
	return fault.New(fault.Unavailable, codeUnreachable, "the server cannot be reached; check its address and that it runs").WithCause(err)
}

// kinds turn a status back into a kind.
var kinds = map[int]fault.Kind{
	http.StatusBadRequest: fault.Invalid, http.StatusUnauthorized: fault.Unauthenticated, http.StatusForbidden: fault.Forbidden,
	http.StatusNotFound: fault.NotFound, http.StatusConflict: fault.Conflict, http.StatusGone: fault.Gone,
	http.StatusRequestEntityTooLarge: fault.TooLarge, http.StatusUnprocessableEntity: fault.FailedPrecondition,
	http.StatusTooManyRequests: fault.TooMany, http.StatusServiceUnavailable: fault.Unavailable, http.StatusGatewayTimeout: fault.Timeout,
	http.StatusMethodNotAllowed: fault.Invalid, http.StatusUnsupportedMediaType: fault.Invalid,
}

// problem decodes a problem document. Members that a fault has no place for are
// its attributes.
func problem(res *http.Response, text []byte) error {
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
		return fault.New(kind, "client.answer_unreadable", "the server answered with status %d and no problem document; check its address and what stands before it", res.StatusCode)
	}
	// Not through the format, the detail is the server's.
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

// encode is encoding/json without the escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return b.Bytes(), nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

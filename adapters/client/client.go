package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Config names the server and bounds the retries.
type Config struct {
	Server string // base URL, "http://127.0.0.1:8080"
	Token  string // access token
	Reason string // for which personal data is read, for the server's access log; may be ""
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
	reason      string
	http        *http.Client
	attempts    int
	longestWait time.Duration
}

// New makes a Client. Fault client.server_invalid if the server is no URL.
func New(c Config) (*Client, error) {
	base, err := url.Parse(strings.TrimSuffix(c.Server, "/"))
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fault.New(fault.Invalid, "client.server_invalid", "the server is given as a URL such as http://127.0.0.1:8080; correct it")
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		ExpectContinueTimeout: time.Second, ResponseHeaderTimeout: 2 * time.Minute,
	}
	return &Client{
		base: base, token: c.Token, reason: c.Reason, http: &http.Client{Transport: transport},
		attempts: cmp.Or(c.Attempts, 5), longestWait: cmp.Or(c.LongestWait, 10*time.Second),
	}, nil
}

// maxAnswerBytes bounds how much of an answer is read into memory; a longer document is cut
// off and fails as client.answer_unreadable.
const maxAnswerBytes = 256 << 20

// request is one call, which may be sent more than once.
type request struct {
	Call
	method, path string // the path is escaped
	query        url.Values
	header       http.Header
	body         any
	received     *http.Header // receives the headers of the answer; nil: nothing does
	file         []byte       // is sent in place of a JSON body, with its media type
	mediaType    string
	repeatable   bool // a GET, x-repeatable in the document, or with an idempotency key: sent twice it takes effect once
}

// Call is what the options of one call ask for.
type Call struct {
	Replayed *bool            // receives whether the server knew the idempotency key
	Document *json.RawMessage // receives the answer as the server wrote it
	Body     json.RawMessage  // is sent in place of the typed body; nil: the typed one
}

// An Option changes how one call is sent, or observes its answer.
type Option func(*Call)

// Replayed sets *target: true if the server knew the idempotency key and sent its first
// answer again.
func Replayed(target *bool) Option { return func(c *Call) { c.Replayed = target } }

// Document sets *target to the answer byte for byte, including a last newline, because the
// signature of an erasure certificate covers these bytes.
func Document(target *json.RawMessage) Option { return func(c *Call) { c.Document = target } }

// WithBody sends the caller's document in place of the typed body, so that the server, and
// not this version of the client, checks its members.
func WithBody(document json.RawMessage) Option { return func(c *Call) { c.Body = document } }

// ReadModel asks a read model that the generated methods do not know, such as one of
// a module of the caller's own, by its path, "stock/items", and decodes the report
// into out. A parameter of the path, "stock/items/{item}", is taken from the query.
func (c *Client) ReadModel(ctx context.Context, path string, query url.Values, out any, options ...Option) error {
	return c.do(ctx, declaredRequest(path, query), out, options)
}

// declaredRequest asks for what a module declares under a path. Parameters of the path are taken
// from the query.
func declaredRequest(path string, query url.Values) request {
	query = maps.Clone(query)
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, part := range parts {
		if name, inPath := strings.CutPrefix(part, "{"); inPath {
			name = strings.TrimSuffix(name, "}")
			part = query.Get(name)
			query.Del(name)
		}
		parts[i] = url.PathEscape(part)
	}
	return request{method: http.MethodGet, path: "/api/" + strings.Join(parts, "/"), query: query, repeatable: true}
}

// expandPath escapes values and puts them into the path of an operation.
func expandPath(format string, values ...any) string {
	escaped := make([]any, len(values))
	for i, v := range values {
		escaped[i] = url.PathEscape(fmt.Sprint(v))
	}
	return fmt.Sprintf(format, escaped...)
}

// setQuery adds a parameter unless it is "", 0, false or nil. Where the server distinguishes
// such a value from an absent one, the parameter is a pointer.
func (r *request) setQuery(name string, value any) {
	text, given := formatParameter(value)
	if !given {
		return
	}
	if r.query == nil {
		r.query = url.Values{}
	}
	r.query.Set(name, text)
}

func (r *request) setHeader(name string, value any) {
	text, given := formatParameter(value)
	if !given {
		return
	}
	if r.header == nil {
		r.header = http.Header{}
	}
	r.header.Set(name, text)
}

func formatParameter(value any) (text string, given bool) {
	v := reflect.ValueOf(value)
	if !v.IsValid() || v.IsZero() {
		return "", false
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return fmt.Sprint(v.Interface()), true
}

// do sends a request and decodes the answer into out unless that is nil. It sends the request
// again only after a fault Unavailable, at most Config.Attempts times in all: a request that
// timed out may still take effect.
func (c *Client) do(ctx context.Context, r request, out any, options []Option) error {
	for _, o := range options {
		o(&r.Call)
	}
	body := []byte(r.Body)
	if r.file != nil {
		body = r.file
	}
	if body == nil && r.body != nil {
		var err error
		if body, err = encode(r.body); err != nil {
			return err
		}
	}
	for attempt := 1; ; attempt++ {
		answer, err := c.send(ctx, r, body)
		if err == nil {
			return decode(answer, out)
		}
		f, isFault := fault.As(err)
		if !isFault || f.Kind != fault.Unavailable || attempt == c.attempts || !r.mayRepeat(f) {
			return err
		}
		pause := f.RetryAfter
		if pause <= 0 {
			pause = time.Duration(attempt) * 200 * time.Millisecond
		}
		if err := ports.Sleep(ctx, min(pause, c.longestWait)); err != nil {
			return err
		}
	}
}

func decode(answer []byte, out any) error {
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fault.New(fault.Internal, "client.answer_unreadable", "the server's answer is not what its API describes; check the server's address and version").WithCause(err)
	}
	return nil
}

// mayRepeat reports whether sending again after a fault Unavailable is safe. A server that
// answers so has written nothing; after a broken connection that is not known.
func (r request) mayRepeat(f *fault.Error) bool {
	return r.repeatable || f.Code != codeUnreachable
}

const codeUnreachable = "client.server_unreachable"

// send makes one attempt and returns the body of the answer.
func (c *Client) send(ctx context.Context, r request, body []byte) ([]byte, error) {
	target := *c.base
	target.RawPath = c.base.EscapedPath() + r.path
	path, err := url.PathUnescape(target.RawPath)
	if err != nil {
		return nil, fault.New(fault.Invalid, "client.path_invalid", "the path of this request is invalid; correct the id or path").WithCause(err)
	}
	target.Path, target.RawQuery = path, r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", cmp.Or(r.mediaType, "application/json"))
	}
	req.Header.Set("Accept", "application/json, application/problem+json")
	c.authorize(req)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, unreachableFault(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		return nil, unreachableFault(ctx, err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		return nil, decodeProblem(res, text)
	}
	if r.received != nil {
		*r.received = res.Header
	}
	if r.Replayed != nil {
		*r.Replayed = res.Header.Get("Idempotency-Replayed") == "true"
	}
	if r.Document != nil {
		*r.Document = text
	}
	return text, nil
}

// openStream sends a GET request whose answer the caller reads piece by piece, and closes.
func (c *Client) openStream(ctx context.Context, path string, query url.Values, header http.Header) (*http.Response, error) {
	target := c.base.JoinPath(path)
	target.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	c.authorize(req)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, unreachableFault(ctx, err)
	}
	if res.StatusCode < http.StatusBadRequest {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		return nil, unreachableFault(ctx, err)
	}
	return nil, decodeProblem(res, text)
}

func (c *Client) authorize(req *http.Request) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.reason != "" && req.Header.Get("Access-Reason") == "" {
		req.Header.Set("Access-Reason", c.reason)
	}
}

func unreachableFault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fault.New(fault.Timeout, "client.timeout", "the server did not answer in time; send the request again, a write with the same idempotency key").WithCause(err)
	}
	return fault.New(fault.Unavailable, codeUnreachable, "the server cannot be reached; check its address and that it runs").WithCause(err)
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

package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Config names the endpoints that a Sender may connect to.
type Config struct {
	AllowPrivateNetworks bool           // any address but multicast and unspecified ones
	AllowedNetworks      []netip.Prefix // allowed besides the public ones
	AllowHTTP            bool           // also without TLS
	Roots                *x509.CertPool // which sign the endpoints' certificates; nil: the system's
	UserAgent            string
	Resolver             *net.Resolver // nil: the system's
	Clock                ports.Clock   // for dates in Retry-After
}

// Sender implements ports.WebhookSender.
type Sender struct {
	config Config
	client *http.Client
}

const (
	maxURLBytes    = 2000
	connectTimeout = 10 * time.Second
	maxAnswerBytes = 16 << 10 // of an answer's body, which is read so that the connection can be used again
	maxRetryAfter  = 24 * time.Hour
)

// New makes a Sender.
func New(c Config) *Sender {
	s := &Sender{config: c}
	dialer := &net.Dialer{Timeout: connectTimeout, Resolver: c.Resolver, Control: s.checkConnection}
	s.client = &http.Client{
		Transport: &http.Transport{
			Proxy: nil, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: connectTimeout,
			MaxIdleConnsPerHost: 4, MaxConnsPerHost: 32, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s
}

// checkConnection checks the resolved address of each connection before it is made.
func (s *Sender) checkConnection(network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") {
		return unresolved()
	}
	return s.checkAddress(at.Addr())
}

func urlInvalid(detail string) error {
	return fault.New(fault.Invalid, "webhook.url_invalid", detail).WithField("/url")
}

// Check implements ports.WebhookSender.
func (s *Sender) Check(text string) error {
	if len(text) > maxURLBytes {
		return urlInvalid("an address has at most 2000 bytes; shorten it")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "":
		return urlInvalid("an address looks like https://example.org/hooks; correct it")
	case u.Scheme != "https" && (u.Scheme != "http" || !s.config.AllowHTTP):
		return urlInvalid("an address begins with https://; use TLS, or have an operator set webhook.allow_http")
	case u.User != nil:
		return urlInvalid("an address holds no user and no password; deliveries are signed")
	case u.Fragment != "":
		return urlInvalid("an address has no part behind #; leave it out")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return urlInvalid("a port is a number from 1 to 65535; correct it")
		}
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && s.checkAddress(a) != nil {
		return urlInvalid("this address is of a private, local or reserved network; use a public one, or have an operator add the network to webhook.allowed_networks")
	}
	return nil
}

// Send implements ports.WebhookSender.
func (s *Sender) Send(ctx context.Context, r ports.WebhookRequest) (ports.WebhookAnswer, error) {
	if err := s.Check(r.URL); err != nil {
		return ports.WebhookAnswer{}, fault.New(fault.Forbidden, "webhook.url_invalid", "the configuration allows no deliveries to this address any more; give the endpoint another one")
	}
	bounded, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(bounded, http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return ports.WebhookAnswer{}, urlInvalid("no request can be made to this address; correct it")
	}
	for _, h := range r.Headers {
		if err := s.CheckHeader(h); err != nil { // stored headers may be refused by now
			return ports.WebhookAnswer{}, fault.New(fault.Forbidden, "webhook.header_invalid", "one of the endpoint's own headers is not allowed any more; set the endpoint again without it")
		}
		request.Header.Set(h.Name, h.Value)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": s.config.UserAgent,
		"webhook-id": r.ID, "webhook-timestamp": strconv.FormatInt(r.Timestamp.Unix(), 10), "webhook-signature": r.Signature,
	} {
		request.Header.Set(name, value)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return ports.WebhookAnswer{}, s.translate(ctx, err)
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswerBytes) // the status alone decides
	return ports.WebhookAnswer{Status: response.StatusCode, RetryAfter: s.retryAfter(response.Header.Get("Retry-After"))}, nil
}

// retryAfter parses the header Retry-After: seconds or a date.
func (s *Sender) retryAfter(text string) time.Duration {
	var wait time.Duration
	if n, err := strconv.Atoi(text); err == nil {
		wait = time.Duration(min(n, int(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(s.config.Clock.Now())
	}
	return min(max(wait, 0), maxRetryAfter)
}

// translate converts an error to a fault. It drops the error's text, which the endpoint may have
// written.
func (s *Sender) translate(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if f, ok := fault.As(err); ok {
		return f
	}
	failed := func(code, detail string) error {
		return fault.New(fault.Unavailable, code, detail+"; it will be tried again")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return failed("webhook.timeout", "the endpoint did not answer in time")
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return unresolved()
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return failed("webhook.tls", "the endpoint's certificate is not valid for its name")
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return failed("webhook.tls", "the endpoint does not speak TLS")
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return failed("webhook.timeout", "the endpoint could not be reached in time")
	}
	return failed("webhook.connection", "no connection to the endpoint could be made or kept")
}

package webhooks

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Bounds of an endpoint's own headers.
const (
	maxHeaders     = 10
	headersVersion = 1 // of the form in which they are stored
	headersNonce   = 12
)

// headersLabel is the label that the key of an endpoint's headers is derived with. It never
// changes, because stored headers could not be opened any more. It contains the origin, so
// that headers cannot be sent elsewhere, even if the stored address is changed.
func headersLabel(e *ports.WebhookEndpoint) string {
	return "backbone/webhook-headers/v1|" + e.Subscription.String() + "|" + origin(e.URL)
}

// origin is scheme, host and port of an address.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// setHeaders stores headers in an endpoint, encrypted. Format: u8 version ‖ nonce ‖
// AES-256-GCM of a JSON list of names and values.
func (s *Service) setHeaders(ctx context.Context, e *ports.WebhookEndpoint, headers []ports.Header) error {
	if len(headers) == 0 {
		e.HeaderNames, e.Headers = nil, nil
		return nil
	}
	if len(headers) > maxHeaders {
		return fault.New(fault.Invalid, "webhook.header_invalid", "an endpoint has at most %d headers of its own; leave some out", maxHeaders).WithField("/headers")
	}
	headers = slices.Clone(headers)
	for i := range headers {
		if err := s.config.Sender.CheckHeader(headers[i]); err != nil {
			return err
		}
		headers[i].Name = http.CanonicalHeaderKey(headers[i].Name)
	}
	slices.SortFunc(headers, func(a, b ports.Header) int { return strings.Compare(a.Name, b.Name) })
	names := make([]string, len(headers))
	for i := range headers {
		if names[i] = headers[i].Name; i > 0 && names[i] == names[i-1] {
			return fault.New(fault.Invalid, "webhook.header_invalid", "the header %s is given twice; leave one out", names[i]).WithField("/headers")
		}
	}
	plain, err := json.Marshal(headers)
	if err != nil {
		return err
	}
	defer clear(plain)
	stored := append([]byte{headersVersion}, make([]byte, headersNonce)...)
	_, _ = rand.Read(stored[1:]) // it never fails
	err = s.headersKey(ctx, e, func(aead cipher.AEAD) error {
		e.Headers = aead.Seal(stored, stored[1:], plain, nil)
		return nil
	})
	e.HeaderNames = names
	return err
}

// headers opens an endpoint's own headers. Fault webhook.headers_unreadable.
func (s *Service) headers(ctx context.Context, e *ports.WebhookEndpoint) (out []ports.Header, err error) {
	if len(e.Headers) == 0 {
		return nil, nil
	}
	unreadable := fault.New(fault.FailedPrecondition, "webhook.headers_unreadable", "the endpoint's own headers cannot be opened for its address; set the endpoint again with its headers")
	if len(e.Headers) <= 1+headersNonce || e.Headers[0] != headersVersion {
		return nil, unreadable
	}
	err = s.headersKey(ctx, e, func(aead cipher.AEAD) error {
		plain, err := aead.Open(nil, e.Headers[1:1+headersNonce], e.Headers[1+headersNonce:], nil)
		defer clear(plain)
		if err != nil || json.Unmarshal(plain, &out) != nil {
			return unreadable
		}
		return nil
	})
	return out, err
}

func (s *Service) headersKey(ctx context.Context, e *ports.WebhookEndpoint, use func(cipher.AEAD) error) error {
	key, err := s.config.Secrets.Derive(ctx, e.TenantID, secretPurpose, headersLabel(e))
	if err != nil {
		return err
	}
	defer key.Zero()
	return key.Use(func(b []byte) error {
		block, err := aes.NewCipher(b)
		if err != nil {
			return err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return err
		}
		return use(aead)
	})
}

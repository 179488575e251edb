package webhook

import (
	"net/http"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Bounds of one header.
const (
	longestHeaderName  = 100
	longestHeaderValue = 4096
)

// The headers that an endpoint's owner may not set, besides webhook-* and proxy-*: the sender
// writes deliveryHeaders, and the transport connectionHeaders (RFC 9110 section 7.6.1, and those
// that HTTP/2 forbids).
var (
	deliveryHeaders   = []string{"content-type", "content-length", "content-encoding", "host", "user-agent", "date", "expect", "accept-encoding", "cookie"}
	connectionHeaders = []string{"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings"}
)

func headerInvalid(detail string) error {
	return fault.New(fault.Invalid, "webhook.header_invalid", detail).WithField("/headers")
}

// CheckHeader implements ports.WebhookSender.
func (s *Sender) CheckHeader(h ports.Header) error {
	name := strings.ToLower(h.Name)
	switch {
	case name == "" || len(name) > longestHeaderName || strings.ContainsFunc(name, notToken):
		return headerInvalid("the name of a header has at most 100 letters, digits and hyphens, such as X-Route; correct it")
	case slices.Contains(deliveryHeaders, name) || strings.HasPrefix(name, "webhook-"):
		return headerInvalid("the header " + http.CanonicalHeaderKey(name) + " belongs to the delivery itself; leave it out")
	case slices.Contains(connectionHeaders, name) || strings.HasPrefix(name, "proxy-"):
		return headerInvalid("the header " + http.CanonicalHeaderKey(name) + " belongs to the connection; leave it out")
	case h.Value == "" || len(h.Value) > longestHeaderValue || h.Value != strings.TrimSpace(h.Value) || strings.ContainsFunc(h.Value, notVisible):
		return headerInvalid("the value of " + http.CanonicalHeaderKey(name) + " is not one line of 1 to 4096 visible ASCII characters; correct it")
	}
	return nil
}

func notToken(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

func notVisible(r rune) bool { return r < ' ' || r > '~' }

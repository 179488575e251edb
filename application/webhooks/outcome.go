package webhooks

import (
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// failure is the code of a delivery that was not taken; "" if it was. Only 2xx takes.
func failure(a ports.WebhookAnswer, err error) string {
	switch {
	case err != nil:
		return fault.CodeOf(err)
	case a.Status >= 200 && a.Status < 300:
		return ""
	default:
		return "webhook.status_" + strconv.Itoa(a.Status)
	}
}

// deliveryFault tells a failure of the endpoint from one of ours.
func deliveryFault(err error) bool { return strings.HasPrefix(fault.CodeOf(err), "webhook.") }

// statusGone is the answer of an endpoint that wants nothing more.
const statusGone = 410

// codeGone is what such an endpoint is disabled for.
const codeGone = "webhook.status_410"

package configs

import (
	"net/netip"
	"time"
)

// Webhook configures the delivery of subscriptions to endpoints over HTTP.
type Webhook struct {
	AllowPrivateNetworks bool          `config:"allow_private_networks"` // endpoints may be on this host and in private networks
	AllowedNetworks      []string      `config:"allowed_networks"`       // private networks, such as 10.20.0.0/16, in which endpoints may be
	AllowHTTP            bool          `config:"allow_http"`             // endpoints without TLS are accepted
	Timeout              time.Duration `config:"timeout"`                // for one attempt, connection included
	Concurrency          int           `config:"concurrency"`            // deliveries to one endpoint at the same time
	SecretOverlap        time.Duration `config:"secret_overlap"`         // how long the old secret signs too after a replacement
}

func defaultWebhook() Webhook {
	return Webhook{Timeout: 15 * time.Second, Concurrency: 4, SecretOverlap: 24 * time.Hour}
}

// Networks parses the allowed networks, which Validate has checked.
func (w Webhook) Networks() []netip.Prefix {
	out := make([]netip.Prefix, 0, len(w.AllowedNetworks))
	for _, text := range w.AllowedNetworks {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

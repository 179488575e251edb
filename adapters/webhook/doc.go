// Package webhook sends webhook deliveries over HTTP.
//
// A [Sender] implements the port that application/webhooks sends with. It connects to
// public addresses only, unless it is configured otherwise; the address is checked when
// the connection is made, so a DNS name that changes between a check and its use leads to
// no private network. It follows no redirects and never retries: the subscription does.
package webhook

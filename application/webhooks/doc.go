// Package webhooks sends the events of subscriptions to endpoints over HTTP.
//
// A [Service] manages the endpoints and their secrets, and sends test events; the HTTP API
// calls it. A [Dispatcher] runs on every node, shares the endpoints with other nodes under
// leases, fetches messages from the [Consumer], sends them, and acknowledges or refuses them.
// The subscription, never this package, decides which messages are sent, in which order,
// when they are retried and when they become dead letters.
//
// Deliveries follow Standard Webhooks: the id of a message is that of its event, and
// the signature is HMAC-SHA-256 of id, timestamp and body under the endpoint's secret. A
// receiver computes it over the raw body, and refuses a timestamp that is minutes off.
// Personal values are as the subscription's owner may read them.
package webhooks

// Package webhooks sends the events of subscriptions to endpoints over HTTP.
//
// A [Service] keeps the endpoints and their secrets, and sends test events; the HTTP API
// calls it. A [Dispatcher] runs on every node, shares the endpoints with other nodes under
// leases, takes messages from the [Engine], sends them, and acknowledges or refuses them.
// What is sent, in which order, when again, and when it becomes a dead letter, the
// subscription decides and never this package.
//
// Deliveries follow Standard Webhooks: the id of a message is that of its event, and
// the signature is HMAC-SHA-256 of id, timestamp and body under the endpoint's secret.
// Personal values are as the subscription's owner may read them.
package webhooks

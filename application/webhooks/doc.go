// Package webhooks sends the events of subscriptions to endpoints over HTTP. What is
// sent, in which order, when again, and when it becomes a dead letter, the subscription
// says; this package takes what is due, sends it, and answers.
//
// Deliveries follow Standard Webhooks: the id of a message is that of its event, and
// the signature is HMAC-SHA-256 of id, timestamp and body under the endpoint's secret.
// Personal values are as the subscription's owner may read them.
package webhooks

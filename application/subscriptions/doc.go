// Package subscriptions delivers events to persistent subscriptions.
//
// A [Service] creates subscriptions, answers their polls, and applies acknowledgements and
// refusals. A poll locks one legal entity of the subscription at a time, delivers messages
// that are due and then new events, and stores the cursor in the same transaction. A
// message whose consumer dies is delivered again when its lease ends (Service.Run), and
// becomes a dead letter after its last attempt; a person replays or discards it. A
// [HeadWatcher] reads the heads of all partitions for every waiting reader of the node, so
// that idle subscriptions cost no queries of their own.
//
// The HTTP API, the webhook dispatcher and the live feeds call it. The rules of order,
// retries and dead letters are those of domain/subscription. The package never sends
// anything by itself, and never delivers an event that the subscription's owner or the
// caller may not read.
package subscriptions

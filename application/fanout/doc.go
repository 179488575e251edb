// Package fanout publishes the log to a cluster of a message broker.
//
// A [Dispatcher] runs on every node and shares the partitions with other nodes under
// leases. Each partition is published in its order, by one node at a time, from the
// publisher's cursor, which moves only over events that the broker has confirmed. So
// no event is lost while the broker is unavailable, and an event that is published twice has
// the same id both times. [Status] reports the positions. cmd/wire starts it with the NATS
// adapter as its publisher.
//
// What was published cannot be erased any more. Personal values are therefore published as
// "[MASKED]" (or "[REDACTED]", once they are erased), unless a principal was configured
// who may read their class; a sealed value is never published as such.
package fanout

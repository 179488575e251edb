// Package fanout publishes the log to a cluster of a message broker.
//
// A [Dispatcher] runs on every node and shares the partitions with other nodes under
// leases. Each partition is published in its order, by one node at a time, from the
// publisher's cursor, which moves only over events that the broker has confirmed. So no event is
// lost while the broker is unavailable, however long: attempts go on with pauses of up to a
// minute. If a confirmation is lost, or the cursor cannot be moved, the batch is published
// again with the same ids; the broker stores it twice only if its duplicate window has passed. [Status] reports the positions. cmd/wire starts it with the NATS
// adapter as its publisher.
//
// A published event cannot be erased any more. The encoder therefore writes personal values as
// "[MASKED]" (or "[REDACTED]", once they are erased), unless a principal is configured
// who may read their class. It never writes the sealed form.
package fanout

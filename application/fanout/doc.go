// Package fanout fans the log out to a cluster of a message broker. Each partition
// is published in its order, by one node at a time, from a cursor of the publisher's
// own, which moves only over events that the broker has said to have stored. So
// nothing is lost while the broker is away, and what is published twice carries the
// same id twice.
//
// What leaves the house cannot be erased any more. Personal values therefore leave as
// "[MASKED]" (or "[REDACTED]", once they are erased), unless a principal was
// configured who may read their class; a sealed value never leaves as such.
package fanout

// Package subscription holds the rules of persistent subscriptions: what they select, in
// which order messages are delivered, when a message is tried again and when it is parked
// as a dead letter.
//
// A [Subscription] is a definition: a [Filter] and [Settings]. A [Window] is the open
// messages of one legal entity while they are locked: it is given the time and the
// messages, decides what is delivered and what an answer changes, and returns the changed
// rows. application/subscriptions calls it and stores them. The package reads no clock and
// no store.
package subscription

// Package subscriptions brings events to those who asked for them: it knows the heads of
// all partitions of a node, and keeps persistent subscriptions with their cursors,
// acknowledgements and dead letters.
package subscriptions

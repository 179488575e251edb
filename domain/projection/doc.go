// Package projection holds the rules of a projection's life: its statuses and roles, what
// operators may do in which of them, how checkpoints move, and what happens to an event
// that keeps failing.
//
// [Projection] is one version with its [Settings]; [Definition] describes a custom
// projection that a tenant created. application/projections and the stores call it. The
// package reads no storage and no clock.
package projection

// Package projections keeps read models in step with the log.
//
// A [Runner] has one loop per node, which compares the heads of all partitions with the
// checkpoints and queues partitions for a few workers. A partition of a projection is
// worked by one node at a time, under a lease whose term every transaction checks, and
// checkpoint and read model change in one transaction. An event that keeps failing is
// isolated by halving its batch and goes to the dead letters. [Operations] are what
// operators do to projections. [Rebuilds] build new versions while readers see the active one,
// and switch to them. Until then the active version keeps following the log, and after a switch
// the retained one does, as long as a node has its handler. [Targets] rebuild the rows of one
// entity or person, and a [Comparison] lists how the rows of two versions differ.
//
// cmd/wire runs it; the HTTP API calls the rest. The package never changes the log, and
// does not compute rows: handlers do.
package projections

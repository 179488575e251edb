// Package simulation runs several nodes of the real program in one process, in simulated time, over
// ports that fail, and compares what they do with a model. docs/testing.md says what it covers.
//
// A world is one run, from one seed. It has what nodes share (the stores in memory, the key
// service, the broker), the nodes, and the parts: users, operators and receivers. Each call of a
// port goes through the link of the node that makes it, which takes simulated time for it and lets
// some calls fail. So the seed decides in which order all nodes act, and the same seed gives the same
// run again.
//
//   - world.go, run.go: a run from its start to its checks.
//   - node.go: processes of the program, which start, stop, freeze and are killed.
//   - link.go, signals.go, ports.gen.go: what happens to calls and signals.
//   - till.go, handlers.go: the business module of the simulation.
//   - books.go: what must hold, with the rules of test/oracle.
//   - part.go: what a part is. All other files have one part each.
package simulation

//go:generate go run ./wrap

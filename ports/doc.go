// Package ports has the interfaces through which the application reaches its stores, brokers, key
// services, policies and clocks, and the values that they exchange. The application calls them;
// adapters implement them. A port here is outbound: inbound HTTP is in adapters/httpapi. No type
// of pgx, echo or OPA appears in a signature. The package has no state and does no I/O.
//
// # Where things are
//
// One file holds one concern, and its name is found again in the adapters: subscriptions.go is
// implemented by adapters/postgres/subscriptions and adapters/memory/subscriptions.go, and checked
// by test/conformance/subscriptions.go. EventAppender and EventReader are the log;
// Projections, ProjectionVersions and ProjectionRows are read models; Subscriptions and
// Deliveries are readers whose position the server stores; SubjectKeys is the key store. The suite
// RunEventStore checks the log and the read models together; doc.go of test/conformance lists
// the suites of all others.
//
// The words are those of docs/glossary.md. Above all: a tenant has legal entities, and the log of
// one legal entity is a partition, which has its own sequences, lock and checkpoints. A stream
// is the events of one thing in a partition. A subject is a person, and a subject key seals that
// person's values.
//
// # What holds for every port
//
//   - The comment of an interface and of its methods is the contract for every adapter. What only
//     one adapter does is said in that adapter.
//   - A refusal is a *fault.Error, and comments name its code and, in brackets, its kind. Of
//     the kinds, Unavailable may succeed later unchanged, Conflict after reading again, and Timeout
//     leaves the outcome open. docs/errors lists every code. Beside an error no result
//     counts, unless the comment says so.
//   - A call whose ctx has ended before returns ctx's error and changes nothing. If ctx ends
//     during a write, the write is rolled back, unless it may be committed already.
//   - A zero value means "no filter" or "no bound" only where a comment says so.
//   - Where nodes have to agree on a time, such as the end of a lease, it is the store's and not
//     the calling node's.
//
// # How two nodes share work
//
// A node takes a [Lease] on a resource, such as a projection in a partition. Its term grows with
// each new holder. A lease is a division of labour and no lock: a node that was paused may continue
// after its lease has ended. So transactions that must not run twice check the term under a lock
// of their own, and a node of an earlier term is refused as fenced. A fenced subject key is another
// matter: a person's key that an erasure is about to destroy, which seals nothing any more.
package ports

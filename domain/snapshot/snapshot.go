// Package snapshot has the rules of stored states of entities and streams: how many are kept,
// how large they may be, and the faults of stores that refuse one. The stores of snapshots
// and the services above them use it. A snapshot is derived from events: a lost one is folded
// again.
package snapshot

import "github.com/erpbackbone/backbone/domain/fault"

// Kept is how many snapshots of one thing are kept: the newest ones.
const Kept = 3

// MaxBytes is how large a stored state may be, as JSON.
const MaxBytes = 1 << 20

// CodeSuperseded is the code of Superseded.
const CodeSuperseded = "snapshot.superseded"

// NotFound is the fault of a snapshot that is not there.
func NotFound() *fault.Error {
	return fault.New(fault.NotFound, "snapshot.not_found", "there is no such snapshot; the newest %d are kept, read the latest", Kept)
}

// Exists is the fault of another content for a version that has a snapshot.
func Exists() *fault.Error {
	return fault.New(fault.Conflict, "snapshot.exists", "this version of the stream has a snapshot with another content; read it, or store the state of a later version")
}

// CodeForged is the code of Forged.
const CodeForged = "snapshot.forged"

// Forged is the fault of a snapshot that no node has stored so.
func Forged() *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeForged, "the stored snapshot is not what a node has stored; find out who writes to the database, and drop the snapshot")
}

// Superseded is the fault of a snapshot that is too old to be kept.
func Superseded() *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeSuperseded, "the newest %d snapshots of a stream are kept and this one is older; read the latest", Kept)
}

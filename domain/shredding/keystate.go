package shredding

import (
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
)

// KeyState is the state of a subject's key, per partition, subject and key class.
type KeyState string

// The states.
const (
	KeyAbsent    KeyState = "absent" // never minted
	KeyActive    KeyState = "active"
	KeyFenced    KeyState = "fenced"    // an erasure has begun: opens, seals no more
	KeyDestroyed KeyState = "destroyed" // every version is deleted
)

// keyMoves are the allowed moves. Destroyed becomes active only by a reopening
// that two persons approved, with a new version; absent becomes destroyed by the
// erasure of a subject nobody knew, so that nothing can be minted later.
var keyMoves = map[KeyState][]KeyState{
	KeyAbsent:    {KeyActive, KeyDestroyed},
	KeyActive:    {KeyActive, KeyFenced},
	KeyFenced:    {KeyActive, KeyDestroyed},
	KeyDestroyed: {KeyActive},
}

// CanBecome reports whether a key may move from one state to another; active
// becomes active by a new version.
func (s KeyState) CanBecome(to KeyState) bool { return slices.Contains(keyMoves[s], to) }

// Seals reports whether new values may be sealed.
func (s KeyState) Seals() bool { return s == KeyActive }

// Opens reports whether values may be opened.
func (s KeyState) Opens() bool { return s == KeyActive || s == KeyFenced }

// Codes of faults that callers act on.
const (
	CodeKeyMoved      = "pii.key_moved"      // of the store: seal again
	CodeSubjectErased = "pii.subject_erased" // Erased
)

// Erased is the fault for an append about a subject whose key is fenced or
// destroyed.
func Erased(pointer string) *fault.Error {
	return fault.New(fault.Gone, CodeSubjectErased,
		"the personal data of this subject are erased or being erased; leave the personal fields out").WithField(pointer)
}

package shredding

import (
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
)

// RedactionState is the state of a request to redact values of one event. Like an erasure, a
// request is approved by a second person for what was previewed, an approval is valid for
// ApprovalValidity, and a worker carries it out.
type RedactionState string

// The states that lead to completed, in order.
const (
	RedactionPreviewed RedactionState = "previewed" // checked, and the hash of the payload is stored
	RedactionApproved  RedactionState = "approved"  // by a second person, for that payload
	RedactionRedacted  RedactionState = "redacted"  // the payload is replaced: the point of no return
	RedactionAnnounced RedactionState = "announced" // the event that vouches for the new payload is appended
	RedactionRebuilt   RedactionState = "rebuilt"   // the rows of read models show [REDACTED]
	RedactionCompleted RedactionState = "completed" // the log is verified and the certificate stored
)

// The final states besides RedactionCompleted.
const (
	RedactionRejected  RedactionState = "rejected"  // by the second person
	RedactionWithdrawn RedactionState = "withdrawn" // before the payload is replaced
	RedactionExpired   RedactionState = "expired"   // the approval is too old
	RedactionRefused   RedactionState = "refused"   // a member may not be redacted any more
)

// redactionCourse has one way back: an approved request becomes previewed again if another
// redaction changed the event since its preview.
var redactionCourse = course[RedactionState]{
	path: []RedactionState{
		RedactionPreviewed, RedactionApproved, RedactionRedacted, RedactionAnnounced, RedactionRebuilt, RedactionCompleted,
	},
	exits: map[RedactionState][]RedactionState{
		RedactionPreviewed: {RedactionRejected, RedactionWithdrawn, RedactionRefused},
		RedactionApproved:  {RedactionPreviewed, RedactionWithdrawn, RedactionExpired, RedactionRefused},
	},
	ends: []RedactionState{RedactionRejected, RedactionWithdrawn, RedactionExpired, RedactionRefused},
}

// RedactionStates lists every state, those that lead to completed first.
func RedactionStates() []RedactionState { return redactionCourse.states() }

// Valid reports whether the state is one of the list.
func (s RedactionState) Valid() bool { return slices.Contains(RedactionStates(), s) }

// Final reports whether nothing follows.
func (s RedactionState) Final() bool { return redactionCourse.final(s) }

// CarriedOut reports whether the payload is replaced.
func (s RedactionState) CarriedOut() bool { return redactionCourse.reached(s, RedactionRedacted) }

// CanBecome reports whether a request may move from one state to another.
func (s RedactionState) CanBecome(to RedactionState) bool { return redactionCourse.canBecome(s, to) }

// Move is CanBecome with the fault redaction.move_refused.
func (s RedactionState) Move(to RedactionState) (RedactionState, error) {
	if !s.CanBecome(to) {
		return s, fault.New(fault.FailedPrecondition, "redaction.move_refused",
			"a redaction request that is %s cannot become %s; read the request again", s, to)
	}
	return to, nil
}

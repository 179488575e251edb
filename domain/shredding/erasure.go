package shredding

import (
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Times of an erasure request.
const (
	ApprovalValidity = 72 * time.Hour      // an older approval does not set the fences; afterwards its age does not count
	ErasureDue       = 30 * 24 * time.Hour // unless the request names another date
)

// Basis is the legal reason for an erasure.
type Basis string

// The bases.
const (
	GDPRArticle17    Basis = "gdpr_art_17"
	SubjectRequest   Basis = "subject_request"
	RetentionExpired Basis = "retention_expired"
	CourtOrder       Basis = "court_order"
)

// Valid reports whether the basis is one of the list.
func (b Basis) Valid() bool {
	return slices.Contains([]Basis{GDPRArticle17, SubjectRequest, RetentionExpired, CourtOrder}, b)
}

// ErasureState is the state of an erasure request.
type ErasureState string

// The states of ErasurePath, in order.
const (
	ErasureRequested ErasureState = "requested"
	ErasurePreviewed ErasureState = "previewed" // the scope is counted and its digest stored
	ErasureApproved  ErasureState = "approved"  // by a second person, for that digest
	ErasureFenced    ErasureState = "fenced"    // appends with personal values of the subject are refused
	ErasureDestroyed ErasureState = "destroyed" // the point of no return
	ErasureReceipted ErasureState = "receipted" // the signed receipt is outside the database
	ErasureAnnounced ErasureState = "announced" // the event is appended
	ErasureEvicted   ErasureState = "evicted"   // no node can decrypt with the keys any more
	ErasureRebuilt   ErasureState = "rebuilt"   // projections and snapshots show [REDACTED]
	ErasureVerified  ErasureState = "verified"
	ErasureCompleted ErasureState = "completed" // the certificate is stored
)

// The final states besides ErasureCompleted.
const (
	ErasureRejected  ErasureState = "rejected"  // by the second person
	ErasureWithdrawn ErasureState = "withdrawn" // before the fences
	ErasureExpired   ErasureState = "expired"   // the approval is too old
	ErasureRefused   ErasureState = "refused"   // by a hold or retention
)

// erasureCourse leaves its path by these exits: an approved request goes back to previewed when
// its scope has changed, since a new partition needs a new preview and approval. The second
// person can reject a request until it is approved, and the requester's side can withdraw it
// until it is fenced. A fenced request ends only by a legal hold, and nothing stops it once the
// keys are destroyed.
var erasureCourse = course[ErasureState]{
	path: []ErasureState{
		ErasureRequested, ErasurePreviewed, ErasureApproved, ErasureFenced, ErasureDestroyed, ErasureReceipted,
		ErasureAnnounced, ErasureEvicted, ErasureRebuilt, ErasureVerified, ErasureCompleted,
	},
	exits: map[ErasureState][]ErasureState{
		ErasureRequested: {ErasureRejected, ErasureWithdrawn, ErasureRefused},
		ErasurePreviewed: {ErasureRejected, ErasureWithdrawn, ErasureRefused},
		ErasureApproved:  {ErasurePreviewed, ErasureWithdrawn, ErasureExpired, ErasureRefused},
		ErasureFenced:    {ErasureRefused},
	},
	ends: []ErasureState{ErasureRejected, ErasureWithdrawn, ErasureExpired, ErasureRefused},
}

// ErasurePath lists the states that lead to completed, in order.
func ErasurePath() []ErasureState { return slices.Clone(erasureCourse.path) }

// ErasureStates lists every state, those of ErasurePath first.
func ErasureStates() []ErasureState { return erasureCourse.states() }

// Valid reports whether the state is one of the list.
func (s ErasureState) Valid() bool { return slices.Contains(ErasureStates(), s) }

// Next returns the state after this one on ErasurePath, false at its end and off the path.
func (s ErasureState) Next() (ErasureState, bool) { return erasureCourse.next(s) }

// Final reports whether nothing follows.
func (s ErasureState) Final() bool { return erasureCourse.final(s) }

// Irrevocable reports whether keys are destroyed, after which a request only moves on along
// ErasurePath.
func (s ErasureState) Irrevocable() bool { return erasureCourse.reached(s, ErasureDestroyed) }

// Fences reports whether appends with personal values of the request's subject, in the classes
// that it erases, are refused in this state. ErasureRefused has no fences: the transaction that
// moves a request there removes them.
func (s ErasureState) Fences() bool { return erasureCourse.reached(s, ErasureFenced) }

// CanBecome reports whether a request may move from one state to another.
func (s ErasureState) CanBecome(to ErasureState) bool { return erasureCourse.canBecome(s, to) }

// Move is CanBecome with the fault erasure.move_refused. No state becomes itself: callers
// that repeat a step check that first.
func (s ErasureState) Move(to ErasureState) (ErasureState, error) {
	if !s.CanBecome(to) {
		return s, fault.New(fault.FailedPrecondition, "erasure.move_refused",
			"an erasure request that is %s cannot become %s; read the request again", s, to)
	}
	return to, nil
}

// CheckApprover requires a second person: erasure.same_person if the approver made the
// request or one of the two has no person id. It compares persons, not logins.
func CheckApprover(requester, approver string) error {
	if requester == "" || approver == "" || requester == approver {
		return fault.New(fault.Forbidden, "erasure.same_person", "an erasure is approved by another person than requested it; ask a colleague")
	}
	return nil
}

// CheckApproval requires an approval that is younger than ApprovalValidity, not in the
// future, and of the present scope: erasure.approval_expired or erasure.scope_changed.
func CheckApproval(approvedAt, now time.Time, approvedScope, scope [32]byte) error {
	if age := now.Sub(approvedAt); age < 0 || age >= ApprovalValidity {
		return fault.New(fault.FailedPrecondition, "erasure.approval_expired", "the approval is valid for %d hours and is over; request the erasure again", int(ApprovalValidity.Hours()))
	}
	if approvedScope != scope {
		return fault.New(fault.FailedPrecondition, "erasure.scope_changed", "the request concerns more or less than was approved; approve the new preview")
	}
	return nil
}

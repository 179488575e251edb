package shredding

import "github.com/erpbackbone/backbone/domain/fault"

// The codes of faults that the worker of redactions acts on.
const (
	CodeRedactionChanged = "redaction.changed"
	CodeApprovalExpired  = "redaction.approval_expired"
	CodeNotApproved      = "redaction.not_approved"
)

// RedactionNotFound is the fault of a request that is not there, or that the caller does not see.
func RedactionNotFound() *fault.Error {
	return fault.New(fault.NotFound, "redaction.not_found", "there is no such redaction request, or you may not see it; list the requests to find its id")
}

// RedactionInvalid is the fault of a request that cannot be stored.
func RedactionInvalid() *fault.Error {
	return fault.New(fault.Invalid, "redaction.invalid",
		"a redaction needs 1 to 64 pointers, a reason of at most 1,000 bytes and person ids of at most 128 letters, digits, '.', '_', ':' and '-'; correct them")
}

// RedactionDuplicate is the fault of another request with the same id.
func RedactionDuplicate() *fault.Error {
	return fault.New(fault.Conflict, "redaction.duplicate", "there is a request with this id already; list them")
}

// RedactionSamePerson is the fault of an approval by the requester.
func RedactionSamePerson() *fault.Error {
	return fault.New(fault.Forbidden, "redaction.same_person", "a redaction is approved by another person than requested it; ask a colleague")
}

// RedactionMoveRefused is the fault of a move that the state of the request does not permit.
func RedactionMoveRefused() *fault.Error {
	return fault.New(fault.FailedPrecondition, "redaction.move_refused", "the redaction request cannot move to that state from its present one; read the request again")
}

// RedactionChanged is the fault of a request that was moved since it was read.
func RedactionChanged() *fault.Error {
	return fault.New(fault.Conflict, CodeRedactionChanged, "another process has changed the request; read it again")
}

// RedactionScopeChanged is the fault of an approval for another payload.
func RedactionScopeChanged() *fault.Error {
	return fault.New(fault.FailedPrecondition, "redaction.scope_changed", "the event is not as it was when the request was previewed; read its preview again, then approve that")
}

// RedactionNotApproved is the fault of carrying out what is not approved.
func RedactionNotApproved() *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeNotApproved, "this redaction is not approved yet; let a second person approve it")
}

// RedactionApprovalExpired is the fault of an approval that is older than ApprovalValidity.
func RedactionApprovalExpired() *fault.Error {
	return fault.New(fault.FailedPrecondition, CodeApprovalExpired, "the approval is valid for 72 hours and is over; request the redaction again")
}

// RedactionEventNotFound is the fault of an event that is not there or has no plain payload.
func RedactionEventNotFound() *fault.Error {
	return fault.New(fault.NotFound, "redaction.event_not_found", "there is no such event with a payload in plain JSON; check legal entity and sequence")
}

// RedactionEventChanged is the fault of a payload that was changed without a redaction.
func RedactionEventChanged() *fault.Error {
	return fault.New(fault.FailedPrecondition, "redaction.event_changed", "the stored payload is not the one that the log vouches for; verify the log first")
}

// RedactionPointerInvalid is the fault of a pointer to no value.
func RedactionPointerInvalid() *fault.Error {
	return fault.New(fault.Invalid, "redaction.pointer_invalid", "a pointer leads to no value below /data of the event; read the event and correct it")
}

// RedactionOfNumber is the fault of a pointer to a number.
func RedactionOfNumber() *fault.Error {
	return fault.New(fault.FailedPrecondition, "redaction.not_redactable", "a value at the pointers is a number, which is never redacted; leave the pointer out")
}

// RedactionOfSealed is the fault of a pointer to a sealed value.
func RedactionOfSealed() *fault.Error {
	return fault.New(fault.FailedPrecondition, "redaction.sealed", "a value at the pointers is sealed; request the erasure of the person instead")
}

// RedactionRepeated is the fault of a pointer to a redacted value.
func RedactionRepeated() *fault.Error {
	return fault.New(fault.FailedPrecondition, "redaction.repeated", "a value at the pointers is redacted already; leave the pointer out")
}

// RedactionPayloadRefused is the fault of a payload that differs at other places than the pointers.
func RedactionPayloadRefused() *fault.Error {
	return fault.New(fault.Internal, "redaction.payload_refused",
		"the database refused the redacted payload: it differs at other places or its hash does not match; report this defect")
}

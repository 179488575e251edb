package redaction

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/application/requests"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Service handles the requests of officers. Its callers check first whether the policies permit
// an action. Service requires that the caller is a person who sees the legal entity; the store
// requires that another person approves than requested.
type Service struct {
	config Config
	wake   func()
}

// NewService makes a Service, which calls wake after an approval. It refuses periods that are
// not positive.
func NewService(c Config, wake func()) (*Service, error) { return &Service{c, wake}, c.check() }

// NewRequest asks for a redaction.
type NewRequest struct {
	LegalEntity    string // code
	EventID        event.ID
	Pointers       []string
	Reason         string
	IdempotencyKey string // remembered for this day and the one before; may be ""
}

// Preview is what a request concerns. It holds no values.
type Preview struct {
	EventType     string    `json:"event_type"`
	SchemaVersion uint32    `json:"schema_version"`
	Stream        string    `json:"stream"`
	EffectiveDate string    `json:"effective_date"`
	CheckedAt     time.Time `json:"checked_at"`
}

// Status is a request as an officer sees it. Times in the future are zero.
type Status struct {
	ID          event.ID
	LegalEntity string
	EventID     event.ID
	Sequence    event.Sequence
	Pointers    []string
	Reason      string
	State       string // of shredding.RedactionState
	Preview     Preview
	Scope       string // of the preview, to which an approval is bound, in hex
	RequestedBy string // person id
	RequestedAt time.Time
	ApprovedBy  string
	ApprovedAt  time.Time
	EndedBy     string
	EndReason   string
	Attempts    int    // failed ones, of the next step
	LastError   string // code of the last failure
	CompletedAt time.Time
	Replayed    bool // the idempotency key was known: the earlier request with its present state
}

// Request checks and stores a request, as previewed.
//
//	redaction.needs_person  Forbidden: the caller is a service or an agent
//	legal_entity.not_found  NotFound: absent, or not visible to the caller
//	event.not_found         NotFound
//	redaction.invalid       Invalid: number of pointers, reason
//	idempotency.mismatch    Conflict: the key was used for another request
//
// and those of Rules.
func (s *Service) Request(ctx context.Context, p ports.Principal, n NewRequest) (Status, error) {
	if err := requirePerson(p); err != nil {
		return Status{}, err
	}
	all, err := s.config.entities(ctx, p.TenantID)
	if err != nil {
		return Status{}, err
	}
	le, found := all.find(func(le ports.LegalEntity) bool { return le.Code == n.LegalEntity && sees(p, le) })
	if !found {
		return Status{}, fault.New(fault.NotFound, "legal_entity.not_found", "there is no such legal entity, or you may not see it; use a code from GET /api/admin/legal-entities").WithField("/legal_entity")
	}
	reason, err := checkReason(n.Reason)
	if err != nil {
		return Status{}, err
	}
	if _, err := s.config.adopt(ctx, p.TenantID); err != nil {
		return Status{}, err
	}
	if err := requests.CheckKey(n.IdempotencyKey); err != nil {
		return Status{}, err
	}
	r := ports.RedactionRequest{
		TenantID: p.TenantID, Partition: le.Partition, EventID: n.EventID, Pointers: n.Pointers, Reason: reason, RequestedBy: p.PersonID,
	}
	now := s.config.Clock.Now()
	r.ID = s.config.IDs.NewID(now)
	if n.IdempotencyKey != "" {
		today, before := requests.KeyedIDs(kind, p, n.IdempotencyKey, now)
		if first, found, err := s.findReplayed(ctx, r, today, before); err != nil || found {
			if err == nil {
				err = s.config.record(ctx, p.Actor(), all, first)
			}
			status := statusOf(le, first)
			status.Replayed = true
			return status, err
		}
		r.ID = today
	}
	if r, err = s.config.preview(ctx, r); err != nil {
		return Status{}, err
	}
	stored, err := s.config.Redactions.AddRedaction(ctx, r)
	if fault.CodeOf(err) == "redaction.duplicate" {
		err = requests.KeyMismatch(kind)
	}
	if err != nil {
		return Status{}, err
	}
	return statusOf(le, stored), s.config.record(ctx, p.Actor(), all, stored)
}

// findReplayed returns the first request with one of the ids, if it asks for the same as r.
func (s *Service) findReplayed(ctx context.Context, r ports.RedactionRequest, ids ...event.ID) (ports.RedactionRequest, bool, error) {
	read := func(ctx context.Context, id event.ID) (ports.RedactionRequest, error) {
		return s.config.Redactions.RedactionRequest(ctx, r.TenantID, id)
	}
	return requests.Replayed(ctx, kind, read, func(first ports.RedactionRequest) bool {
		return first.Partition == r.Partition && first.EventID == r.EventID && slices.Equal(first.Pointers, r.Pointers) && first.Reason == r.Reason
	}, ids...)
}

// preview checks what a request concerns and returns it with the digest that an approval is
// bound to.
func (c Config) preview(ctx context.Context, r ports.RedactionRequest) (ports.RedactionRequest, error) {
	e, err := c.Events.EventByID(ctx, r.Partition, r.EventID)
	if err != nil {
		return r, err
	}
	if _, err := c.Rules.redact(ctx, e, r.Pointers); err != nil {
		return r, err
	}
	if err := c.checkVouched(ctx, e); err != nil {
		return r, err
	}
	r.Sequence, r.Scope = e.Sequence, event.HashPayload(e.Salt, e.Payload)
	r.Preview, err = json.Marshal(Preview{
		EventType: e.Type, SchemaVersion: e.SchemaVersion, Stream: e.Stream.String(), EffectiveDate: e.EffectiveDate.String(), CheckedAt: event.Micros(c.Clock.Now()),
	})
	return r, err
}

// Preview checks again what a request concerns that waits for its approval. If another redaction
// has changed the event since, the request gets a new scope. Faults of Rules, redaction.not_found,
// redaction.move_refused, redaction.changed.
func (s *Service) Preview(ctx context.Context, p ports.Principal, id event.ID) (Status, error) {
	return s.change(ctx, p, id, func(r ports.RedactionRequest) (ports.RedactionRequest, error) {
		if r.State != shredding.RedactionPreviewed {
			_, err := r.State.Move(shredding.RedactionPreviewed)
			if err == nil { // approved: the worker has it
				err = fault.New(fault.FailedPrecondition, "redaction.move_refused", "the request is approved already; read it")
			}
			return r, err
		}
		now, err := s.config.preview(ctx, r)
		if err != nil || now.Scope == r.Scope {
			return r, err
		}
		return s.config.Redactions.MoveRedaction(ctx, now)
	})
}

// Approve stores the approval of a second person for the previewed payload and starts the
// redaction. Approving again changes nothing. scope is the digest that the preview showed to the
// person; "" accepts the stored one.
//
//	redaction.scope_changed                        FailedPrecondition: the event is not as the person saw it
//	redaction.needs_person, redaction.same_person  Forbidden
//	redaction.not_found                            NotFound
//	redaction.move_refused                         FailedPrecondition: it does not wait for an approval
func (s *Service) Approve(ctx context.Context, p ports.Principal, id event.ID, scope string) (Status, error) {
	return s.change(ctx, p, id, func(r ports.RedactionRequest) (ports.RedactionRequest, error) {
		if scope != "" && scope != hex.EncodeToString(r.Scope[:]) {
			return r, shredding.RedactionScopeChanged().WithField("/scope")
		}
		if r.ApprovedBy == p.PersonID && r.State.CarriedOut() {
			return r, nil
		}
		return s.config.Redactions.ApproveRedaction(ctx, r.Partition, id, p.PersonID, r.Scope)
	})
}

// Reject ends a request that waits for approval, by a second person. Faults of Approve, and
// redaction.invalid for the reason.
func (s *Service) Reject(ctx context.Context, p ports.Principal, id event.ID, reason string) (Status, error) {
	return s.end(ctx, p, id, shredding.RedactionRejected, reason)
}

// Withdraw ends a request that is not carried out yet, also an approved one. Any person whom the
// policies permit may call it. Faults of Reject, except redaction.same_person.
func (s *Service) Withdraw(ctx context.Context, p ports.Principal, id event.ID, reason string) (Status, error) {
	return s.end(ctx, p, id, shredding.RedactionWithdrawn, reason)
}

func (s *Service) end(ctx context.Context, p ports.Principal, id event.ID, to shredding.RedactionState, reason string) (Status, error) {
	return s.change(ctx, p, id, func(r ports.RedactionRequest) (ports.RedactionRequest, error) {
		reason, err := checkReason(reason)
		if err != nil || r.State == to { // an earlier call ended it: this one returns the same
			return r, err
		}
		if to == shredding.RedactionRejected && shredding.CheckApprover(r.RequestedBy, p.PersonID) != nil {
			return r, fault.New(fault.Forbidden, "redaction.same_person", "a redaction is decided on by another person than requested it; withdraw it, or ask a colleague")
		}
		if r.State, err = r.State.Move(to); err != nil {
			return r, err
		}
		r.EndedBy, r.EndReason = p.PersonID, reason
		return s.config.Redactions.MoveRedaction(ctx, r)
	})
}

// change runs f on a request that the caller may see. The caller must be a person.
func (s *Service) change(ctx context.Context, p ports.Principal, id event.ID, f func(ports.RedactionRequest) (ports.RedactionRequest, error)) (Status, error) {
	if err := requirePerson(p); err != nil {
		return Status{}, err
	}
	r, le, err := s.find(ctx, p, id)
	if err != nil {
		return Status{}, err
	}
	if _, err := s.config.adopt(ctx, p.TenantID); err != nil {
		return Status{}, err
	}
	record, before := s.config.record, r.Revision
	if r, err = f(r); err != nil {
		return Status{}, err
	}
	if r.Revision > before { // the caller's own move, also to a state that another person asked for first
		record = s.config.recordAs
	}
	if err := record(ctx, p.Actor(), entities{le}, r); err != nil {
		return Status{}, err
	}
	if r.State == shredding.RedactionApproved {
		s.wake()
	}
	return statusOf(le, r), nil
}

func (s *Service) find(ctx context.Context, p ports.Principal, id event.ID) (ports.RedactionRequest, ports.LegalEntity, error) {
	all, err := s.config.entities(ctx, p.TenantID)
	if err != nil {
		return ports.RedactionRequest{}, ports.LegalEntity{}, err
	}
	r, err := s.config.Redactions.RedactionRequest(ctx, p.TenantID, id)
	if err != nil {
		return r, ports.LegalEntity{}, err
	}
	le, found := all.byPartition(r.Partition)
	if !found || !sees(p, le) {
		return r, le, shredding.RedactionNotFound()
	}
	return r, le, nil
}

// Get reads a request. redaction.not_found.
func (s *Service) Get(ctx context.Context, p ports.Principal, id event.ID) (Status, error) {
	r, le, err := s.find(ctx, p, id)
	return statusOf(le, r), err
}

// List lists the requests that the caller sees, newest first. No states: all;
// redaction.state_invalid. At most 1,000; 0 is 100.
func (s *Service) List(ctx context.Context, p ports.Principal, states []string, limit int) ([]Status, error) {
	wanted, known := requests.States[shredding.RedactionState](states)
	if !known {
		return nil, fault.New(fault.Invalid, "redaction.state_invalid", "there is no such state of a redaction request; use the states that requests have").WithField("/status")
	}
	all, err := s.config.entities(ctx, p.TenantID)
	if err != nil {
		return nil, err
	}
	limit, fetch := requests.Limits(p, limit)
	found, err := s.config.Redactions.RedactionRequests(ctx, p.TenantID, wanted, fetch)
	if err != nil {
		return nil, err
	}
	out := []Status{}
	for _, r := range found {
		if le, known := all.byPartition(r.Partition); known && sees(p, le) && len(out) < limit {
			out = append(out, statusOf(le, r))
		}
	}
	return out, nil
}

// Certificate returns the signed certificate of a completed request. redaction.not_completed
// (Conflict) before.
func (s *Service) Certificate(ctx context.Context, p ports.Principal, id event.ID) ([]byte, error) {
	r, _, err := s.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if r.State != shredding.RedactionCompleted {
		return nil, fault.New(fault.Conflict, "redaction.not_completed",
			"the request is %s, and its certificate is signed once it is completed; ask again then", r.State)
	}
	return s.config.Exports.Get(ctx, certificateName(id))
}

func statusOf(le ports.LegalEntity, r ports.RedactionRequest) Status {
	out := Status{
		ID: r.ID, LegalEntity: le.Code, EventID: r.EventID, Sequence: r.Sequence, Pointers: r.Pointers, Reason: r.Reason, State: string(r.State),
		RequestedBy: r.RequestedBy, RequestedAt: r.RequestedAt, ApprovedBy: r.ApprovedBy, ApprovedAt: r.ApprovedAt,
		EndedBy: r.EndedBy, EndReason: r.EndReason, Attempts: r.Attempts, LastError: r.LastError, CompletedAt: r.CompletedAt,
		Scope: scopeText(r),
	}
	_ = json.Unmarshal(r.Preview, &out.Preview) // requests from before the preview have none
	return out
}

// scopeText renders the scope of a request, "" of one from a release without previews.
func scopeText(r ports.RedactionRequest) string {
	if r.Scope == (event.Hash{}) {
		return ""
	}
	return hex.EncodeToString(r.Scope[:])
}

func sees(p ports.Principal, le ports.LegalEntity) bool {
	return len(p.LegalEntities) == 0 || slices.Contains(p.LegalEntities, le.Code)
}

// requirePerson requires a human caller: two persons are responsible for a redaction.
func requirePerson(p ports.Principal) error {
	if !requests.IsPerson(p) {
		return fault.New(fault.Forbidden, "redaction.needs_person", "only persons decide about redactions; sign in as a person")
	}
	return nil
}

// checkReason requires a short text in which nothing looks like personal data, because it is
// stored for ever.
func checkReason(text string) (string, error) {
	reason, ok := requests.CleanReason(text)
	if reason == "" || !ok {
		return "", fault.New(fault.Invalid, "redaction.invalid",
			"a reason has 1 to %d bytes and holds no personal data, because it is stored for ever; write it without personal data", requests.MaxReason).WithField("/reason")
	}
	return reason, nil
}

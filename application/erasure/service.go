package erasure

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/requests"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Service handles the requests of officers. Its callers check first whether the policies
// permit an action. Service requires that the caller is a person and sees all legal entities
// concerned, and that another person approves than requested.
type Service struct {
	config Config
	wake   func()
}

// NewService makes a Service. The Service calls wake after an approval, so that a worker of
// this process starts at once. NewService refuses periods that are not positive.
func NewService(c Config, wake func()) (*Service, error) {
	c, err := c.complete()
	return &Service{config: c, wake: wake}, err
}

// NewRequest asks for an erasure.
type NewRequest struct {
	Subject        string
	LegalEntities  []string // codes; none: all that the caller sees
	Basis          string
	Reason         string
	DueOn          *event.Date // nil: shredding.ErasureDue from today
	IdempotencyKey string      // remembered for this day and the one before; may be ""
}

// Request stores a request and counts the records it concerns. If a hold or retention
// forbids all of it, Request refuses it at once.
//
//	erasure.needs_person    Forbidden: the caller is a service or an agent
//	pii.subject_invalid, erasure.basis_invalid, erasure.reason_missing,
//	erasure.reason_invalid, erasure.due_invalid  Invalid
//	legal_entity.not_found  NotFound: absent, or not visible to the caller
//	erasure.duplicate       Conflict: an erasure of the subject has not ended
//	idempotency.mismatch    Conflict: the key was used for another request
func (s *Service) Request(ctx context.Context, principal ports.Principal, n NewRequest) (Status, error) {
	if err := requirePerson(principal); err != nil {
		return Status{}, err
	}
	dir, err := s.config.directory(ctx, principal.TenantID)
	if err != nil {
		return Status{}, err
	}
	r, err := s.check(principal, dir, n)
	if err != nil {
		return Status{}, err
	}
	if _, err := s.config.adopt(ctx, principal.TenantID); err != nil {
		return Status{}, err
	}
	stored, replayed, err := s.add(ctx, principal, r, n.IdempotencyKey)
	if err != nil {
		return Status{}, err
	}
	if err := s.record(ctx, principal, stored); err != nil {
		return Status{}, err
	}
	next := s.config.refuseIfAllKept // of an earlier call that was cut off after its preview
	if stored.State == shredding.ErasureRequested {
		next = s.config.preview
	}
	if stored, err = next(ctx, stored); err != nil {
		return Status{}, err
	}
	if err := s.record(ctx, principal, stored); err != nil {
		return Status{}, err
	}
	status, err := dir.status(stored, s.today())
	status.Replayed = replayed
	return status, err
}

func (s *Service) check(principal ports.Principal, dir directory, n NewRequest) (ports.ErasureRequest, error) {
	now := s.config.now()
	r := ports.ErasureRequest{
		TenantID: principal.TenantID, Basis: shredding.Basis(n.Basis), RequestedBy: principal.PersonID, RequestedAt: now,
		DueOn: event.DateOf(now.Add(shredding.ErasureDue)),
	}
	var err error
	if r.Subject, err = parseSubject(n.Subject); err != nil {
		return r, err
	}
	if !r.Basis.Valid() {
		return r, fault.New(fault.Invalid, "erasure.basis_invalid",
			"the basis is gdpr_art_17, subject_request, retention_expired or court_order; name one").WithField("/basis")
	}
	if r.Reason, err = checkReason(n.Reason); err != nil {
		return r, err
	}
	if n.DueOn != nil {
		if r.DueOn = *n.DueOn; r.DueOn < event.DateOf(now) {
			return r, fault.New(fault.Invalid, "erasure.due_invalid", "the due date is over already; name one from today on").WithField("/due_on")
		}
	}
	r.Partitions, r.AllEntities, err = dir.choose(principal, n.LegalEntities)
	return r, err
}

// choose returns the partitions of a request or hold. all is true if the caller sees all
// legal entities and has named none.
func (d directory) choose(principal ports.Principal, codes []string) (partitions []event.PartitionID, all bool, err error) {
	if len(codes) == 0 {
		if len(principal.LegalEntities) == 0 {
			if len(d.all) == 0 {
				return nil, false, entityNotFound()
			}
			return slices.Clone(d.all), true, nil
		}
		codes = principal.LegalEntities
	}
	for _, code := range codes {
		le, found := d.byCode[code]
		if !found || !d.sees(principal, []event.PartitionID{le.Partition}) {
			return nil, false, entityNotFound()
		}
		partitions = append(partitions, le.Partition)
	}
	slices.Sort(partitions)
	return slices.Compact(partitions), false, nil
}

func entityNotFound() error {
	return fault.New(fault.NotFound, "legal_entity.not_found", "there is no such legal entity, or you may not see it; use a code from GET /api/admin/legal-entities").WithField("/legal_entities")
}

// add stores a request. If the caller used the key before, add returns that earlier request
// (replayed).
func (s *Service) add(ctx context.Context, principal ports.Principal, r ports.ErasureRequest, key string) (stored ports.ErasureRequest, replayed bool, err error) {
	if err := requests.CheckKey(key); err != nil {
		return r, false, err
	}
	if key == "" {
		r.ID = s.config.IDs.NewID(r.RequestedAt)
		if err := s.config.Register.AddErasure(ctx, r); err != nil {
			return r, false, err
		}
		stored, err = s.config.Register.Erasure(ctx, r.TenantID, r.ID)
		return stored, false, err
	}
	today, before := requests.KeyedIDs(kind, principal, key, r.RequestedAt)
	first, found, err := s.findReplayed(ctx, r, today, before)
	if err != nil || found {
		return first, found, err
	}
	r.ID = today
	if err := s.config.Register.AddErasure(ctx, r); err != nil {
		if first, found, firstErr := s.findReplayed(ctx, r, today); found && firstErr == nil {
			return first, true, nil // the caller sent the same request twice at the same time
		}
		return r, false, err
	}
	stored, err = s.config.Register.Erasure(ctx, r.TenantID, r.ID)
	return stored, false, err
}

// findReplayed returns the first request with one of the ids, if it asks for the same as r.
func (s *Service) findReplayed(ctx context.Context, r ports.ErasureRequest, ids ...event.ID) (ports.ErasureRequest, bool, error) {
	read := func(ctx context.Context, id event.ID) (ports.ErasureRequest, error) {
		return s.config.Register.Erasure(ctx, r.TenantID, id)
	}
	return requests.Replayed(ctx, kind, read, func(first ports.ErasureRequest) bool {
		return first.Subject == r.Subject && first.Basis == r.Basis && first.Reason == r.Reason && first.AllEntities == r.AllEntities &&
			(r.AllEntities || slices.Equal(first.Partitions, r.Partitions))
	}, ids...)
}

// Approve stores the approval of a second person for the previewed scope, and starts the
// erasure. Approving again changes nothing. scope is the digest that the preview showed to
// the person: if the request concerns other data since, Approve refuses. "" accepts the
// stored preview.
//
//	erasure.scope_changed                      FailedPrecondition: it concerns other data than the person saw
//	erasure.needs_person, erasure.same_person  Forbidden
//	erasure.not_found                          NotFound
//	erasure.move_refused                       FailedPrecondition: it does not wait for an approval
func (s *Service) Approve(ctx context.Context, principal ports.Principal, id event.ID, scope string) (Status, error) {
	r, dir, err := s.find(ctx, principal, id, true)
	if err != nil {
		return Status{}, err
	}
	if err := shredding.CheckApprover(r.RequestedBy, principal.PersonID); err != nil {
		return Status{}, err
	}
	if scope != "" && scope != scopeText(r) {
		return Status{}, fault.New(fault.FailedPrecondition, "erasure.scope_changed", "the request concerns other data than the preview that you saw; read its preview again, then approve that").WithField("/scope")
	}
	if r.ApprovedBy == principal.PersonID && r.State != shredding.ErasurePreviewed {
		if r.State == shredding.ErasureApproved { // an earlier call may have died before the event
			err = s.record(ctx, principal, r)
			s.wake()
		}
		if err != nil {
			return Status{}, err
		}
		return dir.status(r, s.today())
	}
	if _, err := r.State.Move(shredding.ErasureApproved); err != nil {
		return Status{}, err
	}
	r, err = s.config.Register.ApproveErasure(ctx, id, principal.PersonID, r.Scope, s.config.now())
	if err != nil {
		return Status{}, err
	}
	if err := s.record(ctx, principal, r); err != nil {
		return Status{}, err
	}
	s.wake()
	return dir.status(r, s.today())
}

// Reject ends a request that waits for approval, by a second person. Faults of
// Approve, erasure.reason_missing and erasure.reason_invalid.
func (s *Service) Reject(ctx context.Context, principal ports.Principal, id event.ID, reason string) (Status, error) {
	r, dir, err := s.find(ctx, principal, id, true)
	if err != nil {
		return Status{}, err
	}
	if err := shredding.CheckApprover(r.RequestedBy, principal.PersonID); err != nil {
		return Status{}, err
	}
	return s.end(ctx, principal, dir, r, shredding.ErasureRejected, reason)
}

// Withdraw ends a request that is not fenced yet, also an approved one. Any person whom the
// policies permit may call it. Faults of Reject, except erasure.same_person.
func (s *Service) Withdraw(ctx context.Context, principal ports.Principal, id event.ID, reason string) (Status, error) {
	r, dir, err := s.find(ctx, principal, id, true)
	if err != nil {
		return Status{}, err
	}
	return s.end(ctx, principal, dir, r, shredding.ErasureWithdrawn, reason)
}

func (s *Service) end(ctx context.Context, principal ports.Principal, dir directory, r ports.ErasureRequest, to shredding.ErasureState, reason string) (Status, error) {
	reason, err := checkReason(reason)
	if err != nil {
		return Status{}, err
	}
	if r.State != to { // else an earlier call ended it: this one returns the same
		if _, err := r.State.Move(to); err != nil {
			return Status{}, err
		}
		r.State, r.EndedBy, r.EndReason = to, principal.PersonID, reason
		if r, err = s.config.Register.MoveErasure(ctx, r); err != nil {
			return Status{}, err
		}
	}
	if err := s.record(ctx, principal, r); err != nil {
		return Status{}, err
	}
	return dir.status(r, s.today())
}

// record appends the event of a request's present state, with the person as its actor if the
// person decided it.
func (s *Service) record(ctx context.Context, principal ports.Principal, r ports.ErasureRequest) error {
	return s.config.record(ctx, principal.Actor(), r)
}

// Get reads a request, with the times of its steps. erasure.not_found.
func (s *Service) Get(ctx context.Context, principal ports.Principal, id event.ID) (Status, error) {
	r, dir, err := s.find(ctx, principal, id, false)
	if err != nil {
		return Status{}, err
	}
	journal, err := s.config.Register.ErasureSteps(ctx, r.TenantID, id)
	if err != nil {
		return Status{}, err
	}
	status, err := dir.status(r, s.today())
	status.Steps = steps(r, journal)
	return status, err
}

// List lists the requests that the caller sees, newest first. No states: all;
// erasure.state_invalid. At most 1,000; 0 is 100.
func (s *Service) List(ctx context.Context, principal ports.Principal, states []string, limit int) ([]Status, error) {
	wanted, known := requests.States[shredding.ErasureState](states)
	if !known {
		return nil, fault.New(fault.Invalid, "erasure.state_invalid", "there is no such state of an erasure request; use the states that requests have").WithField("/status")
	}
	dir, err := s.config.directory(ctx, principal.TenantID)
	if err != nil {
		return nil, err
	}
	limit, fetch := requests.Limits(principal, limit)
	all, err := s.config.Register.Erasures(ctx, principal.TenantID, wanted, fetch)
	if err != nil {
		return nil, err
	}
	out := []Status{}
	for _, r := range all {
		if len(out) == limit || !dir.sees(principal, r.Partitions) {
			continue
		}
		status, err := dir.status(r, s.today())
		if err != nil {
			return nil, err
		}
		out = append(out, status)
	}
	slices.SortStableFunc(out, func(a, b Status) int { return b.RequestedAt.Compare(a.RequestedAt) })
	return out, nil
}

// Certificate returns the signed certificate of a completed request.
// erasure.not_completed (Conflict) before.
func (s *Service) Certificate(ctx context.Context, principal ports.Principal, id event.ID) ([]byte, error) {
	r, _, err := s.find(ctx, principal, id, false)
	if err != nil {
		return nil, err
	}
	if r.State != shredding.ErasureCompleted {
		return nil, fault.New(fault.Conflict, "erasure.not_completed",
			"the request is %s, and its certificate is signed once it is completed; ask again then", r.State)
	}
	return s.config.Exports.Get(ctx, certificateName(id))
}

// find reads a request, if the caller sees all of its legal entities. If the caller is to
// change it, the caller must be a person.
func (s *Service) find(ctx context.Context, principal ports.Principal, id event.ID, change bool) (ports.ErasureRequest, directory, error) {
	if change {
		if err := requirePerson(principal); err != nil {
			return ports.ErasureRequest{}, directory{}, err
		}
		if _, err := s.config.adopt(ctx, principal.TenantID); err != nil {
			return ports.ErasureRequest{}, directory{}, err
		}
	}
	dir, err := s.config.directory(ctx, principal.TenantID)
	if err != nil {
		return ports.ErasureRequest{}, dir, err
	}
	r, err := s.config.Register.Erasure(ctx, principal.TenantID, id)
	if err == nil && !dir.sees(principal, r.Partitions) {
		err = fault.New(fault.NotFound, "erasure.not_found", "there is no such erasure request, or you may not see it; list the requests to find its id")
	}
	return r, dir, err
}

// directory knows the legal entities and the administrative log, which holds names of persons.
func (c Config) directory(ctx context.Context, tenantID string) (directory, error) {
	partitions, err := c.LegalEntities.Partitions(ctx, tenantID)
	return newDirectory(partitions), err
}

func (s *Service) today() event.Date { return event.DateOf(s.config.now()) }

// requirePerson requires a human caller: two persons are responsible for an erasure.
func requirePerson(p ports.Principal) error {
	if !requests.IsPerson(p) {
		return fault.New(fault.Forbidden, "erasure.needs_person", "only persons decide about erasures and holds; sign in as a person")
	}
	return nil
}

func parseSubject(text string) (shredding.Subject, error) {
	subject, err := shredding.ParseSubject(text)
	if f, ok := fault.As(err); ok {
		return "", f.WithField("/subject")
	}
	if err == nil && shredding.PersonalPattern(subject.ID()) != "" {
		return "", fault.New(fault.Invalid, "pii.subject_invalid", "the id looks like personal data itself; name the person by a surrogate id").WithField("/subject")
	}
	return subject, err
}

// checkReason requires a short text in which nothing looks like personal data, because the
// register stores it for ever.
func checkReason(text string) (string, error) {
	reason, ok := requests.CleanReason(text)
	switch {
	case reason == "":
		return "", fault.New(fault.Invalid, "erasure.reason_missing", "the reason is missing; send one, which is stored with the request").WithField("/reason")
	case !ok:
		return "", fault.New(fault.Invalid, "erasure.reason_invalid",
			"a reason has at most %d bytes and holds no personal data, because it is stored for ever; write it without personal data", requests.MaxReason).WithField("/reason")
	}
	return reason, nil
}

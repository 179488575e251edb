package domain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// The states of a payment run.
const (
	RunNone     = ""
	RunProposed = "proposed"
	RunApproved = "approved"
	RunExported = "exported"
	RunRejected = "rejected"
)

// PaymentRun is the state of the stream of a payment run.
type PaymentRun struct {
	RunID         string
	State         string
	EventID       event.ID // of the proposal
	CorrelationID string
	BankAccount   string
	PayDate       event.Date
	Payments      []contract.ProposedPayment // those that were not excluded, in the order of the proposal
	Proposers     []Step
	ApprovedAt    time.Time                   // when the approval was recorded
	Exported      contract.PaymentRunExported // the newest export
	Excluded      map[string]bool
}

// Clone copies the run. Payments never change, so clones share them.
func (r *PaymentRun) Clone() *PaymentRun {
	c := *r
	c.Payments, c.Proposers, c.Excluded = slices.Clone(r.Payments), slices.Clone(r.Proposers), maps.Clone(r.Excluded)
	return &c
}

// Apply folds an event.
func (r *PaymentRun) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case contract.EventRunProposed:
		var p contract.PaymentRunProposed
		if err := json.Unmarshal(data, &p); err != nil {
			return fmt.Errorf("payment run: %w", err)
		}
		if p.Part == 1 {
			step, err := stepOf("proposed", e)
			if err != nil {
				return err
			}
			r.RunID, r.State, r.EventID, r.CorrelationID = p.RunID, RunProposed, e.ID, e.CorrelationID
			r.BankAccount, r.PayDate, r.Proposers = p.BankAccount, p.PayDate, []Step{step}
		}
		r.Payments = append(r.Payments, p.Payments...)
	case contract.EventPaymentExcluded:
		var x contract.PaymentExcluded
		if err := json.Unmarshal(data, &x); err != nil {
			return fmt.Errorf("excluded payment: %w", err)
		}
		r.Payments = slices.DeleteFunc(r.Payments, func(p contract.ProposedPayment) bool { return p.PaymentID == x.PaymentID })
		if r.Excluded == nil {
			r.Excluded = map[string]bool{}
		}
		r.Excluded[x.PaymentID] = true
	case contract.EventRunApproved:
		r.State, r.ApprovedAt = RunApproved, e.RecordedAt
	case contract.EventRunRejected:
		r.State = RunRejected
	case contract.EventRunExported:
		r.State = RunExported
		if err := json.Unmarshal(data, &r.Exported); err != nil {
			return fmt.Errorf("exported payment run: %w", err)
		}
	}
	return nil
}

// RequireState refuses a run that does not exist or is in none of the states. Faults:
// ap.payment_run.not_found, ap.payment_run.wrong_state.
func (r *PaymentRun) RequireState(allowed ...string) error {
	if r.State == RunNone {
		return fault.New(fault.NotFound, "ap.payment_run.not_found",
			"there is no payment run with this id in this legal entity; take run_id from the proposal").WithField("/run_id")
	}
	if slices.Contains(allowed, r.State) {
		return nil
	}
	return fault.New(fault.FailedPrecondition, "ap.payment_run.wrong_state",
		"the payment run is %s, and this needs %s; look at its events to see what happened", r.State, strings.Join(allowed, " or ")).
		With("state", r.State).With("allowed_states", allowed)
}

// Payment finds a payment that was not excluded. Fault: payment.not_found.
func (r *PaymentRun) Payment(id string) (contract.ProposedPayment, error) {
	i := slices.IndexFunc(r.Payments, func(p contract.ProposedPayment) bool { return p.PaymentID == id })
	if i < 0 {
		return contract.ProposedPayment{}, PaymentNotFoundFault()
	}
	return r.Payments[i], nil
}

// DistinctSteps keeps one of the steps of the same persons, so that the facts of a large run stay
// small.
func DistinctSteps(steps []Step) []Step {
	seen := map[string]bool{}
	var out []Step
	for _, s := range steps {
		key := s.Name + "\x00" + fmt.Sprint(s.Persons)
		if len(s.Persons) > 0 && !seen[key] {
			seen[key] = true
			out = append(out, s)
		}
	}
	return out
}

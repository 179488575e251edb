package ap

import (
	"cmp"
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// paymentStatusDeclarations are the event type and the intent of statuses that a bank reports.
func paymentStatusDeclarations() declarations {
	return declarations{
		events: []declaredEvent{{schema: contract.EventPaymentStatus, EventType: module.EventType{
			Registration: eventtype.Registration{
				Type: contract.EventPaymentStatus, Description: "The bank reported a status of a payment that neither executes nor refuses it.",
				RequiredEntityRefs: []eventtype.RequiredRef{
					{EntityType: contract.EntityPaymentRun, Role: contract.RolePaymentRun, Cardinality: eventtype.One},
					{EntityType: contract.EntityPayment, Role: contract.RolePayment, Cardinality: eventtype.One}, vendorRefRule(),
				},
			},
			Redactable: []string{"$.text"},
		}}},
		intents: []declaredIntent{{schema: "import_payment_status", IntentType: module.IntentType{
			Type: contract.IntentImportPaymentStatus, Description: "Record what the bank reports about a payment (pain.002): settled executes it, rejected fails it, others are kept.",
			Emits: append([]string{contract.EventPaymentFailed, contract.EventPaymentStatus}, executionEvents()...), Policy: paymentPolicy, Plan: module.PlanOf(planImportPaymentStatus),
		}}},
	}
}

// Statuses of ISO 20022 that decide a payment.
const (
	statusSettledDebtor   = "ACSC" // the debtor's account was debited
	statusSettledCreditor = "ACCC" // the creditor's account was credited
	statusRejected        = "RJCT"
)

// reasonNotGiven is the reason of a refusal without one: ISO 20022's code for a reason that is
// not specified.
const reasonNotGiven = "MS03"

// planImportPaymentStatus plans what a status of the bank means. Who recorded it counts as who
// pays, whatever the status is (S4).
func planImportPaymentStatus(ctx context.Context, in module.Input, s module.State, p contract.PaymentStatusImport) (module.Plan, error) {
	switch p.Status {
	case statusSettledDebtor, statusSettledCreditor:
		if p.ExecutedOn == nil || p.BankReference == "" {
			return module.Plan{}, fault.New(fault.Invalid, "payment.status_incomplete",
				"the bank settled the payment, and that needs executed_on and bank_reference; add them").WithField("/executed_on")
		}
		return planExecutePayment(ctx, in, s, contract.PaymentExecution{
			PaymentID: p.PaymentID, ExecutedOn: *p.ExecutedOn, BankAmount: p.BankAmount, BankReference: p.BankReference,
		})
	case statusRejected:
		plan, err := planFailPayment(ctx, in, s, contract.PaymentFailure{PaymentID: p.PaymentID, ReasonCode: cmp.Or(p.ReasonCode, reasonNotGiven), Text: p.Text})
		if err != nil {
			return plan, err
		}
		plan.Facts, err = statusFacts(ctx, in, s, p.PaymentID)
		return plan, err
	}
	run, payment, err := pendingPayment(ctx, s, p.PaymentID)
	if err != nil {
		return module.Plan{}, err
	}
	facts, err := statusFacts(ctx, in, s, p.PaymentID)
	if err != nil {
		return module.Plan{}, err
	}
	reported := paymentDraft(run.RunID, p.PaymentID, payment.VendorID, contract.EventPaymentStatus, contract.PaymentStatusReported{
		RunID: run.RunID, PaymentID: p.PaymentID, MessageID: p.MessageID, Status: p.Status, ReasonCode: p.ReasonCode, Text: p.Text,
	}, in.Date())
	reported.CausedBy = run.EventID
	return module.Plan{
		Events: []event.Draft{reported}, Facts: facts, CorrelationID: run.CorrelationID,
		Amount: &module.Amount{Value: payment.Amount, Currency: payment.Currency},
	}, nil
}

// statusFacts tells who submitted and approved the documents of a payment.
func statusFacts(ctx context.Context, in module.Input, s module.State, paymentID string) (*paymentFacts, error) {
	run, err := loadRun(ctx, s, contract.RunOfPayment(paymentID))
	if err != nil {
		return nil, err
	}
	payment, err := run.Payment(paymentID)
	if err != nil {
		return nil, err
	}
	f := paymentFacts{facts: factsOf(in)}
	f.Submitters, err = documentSteps(ctx, s, &domain.PaymentRun{Payments: []contract.ProposedPayment{payment}})
	return &f, err
}

// executionEvents lists the event types that the execution of a payment emits.
func executionEvents() []string {
	types := []string{contract.EventPaymentExecuted, gl.EventJournalPosted, contract.EventReleased}
	for _, k := range contract.Kinds() {
		types = append(types, k.Event(contract.Paid), k.Event(contract.PartiallyPaid))
	}
	return types
}

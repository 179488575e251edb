package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// Kinds of rows for invoices that are not of the standard document type.
const (
	kindPrepayment = contract.TypePrepayment
	kindOpening    = contract.TypeOpening
)

// bodyActions are the actions whose event has a body of the document.
var bodyActions = []string{contract.Drafted, contract.Submitted, contract.Corrected, contract.Reinstated}

// settlementSigns says of each action that changes what is open, after the posting, whether it
// takes from the open amount (-1) or gives back (1).
var settlementSigns = map[string]int{
	contract.Applied: -1, contract.CreditApplied: -1, contract.PrepaymentApplied: -1, contract.Paid: -1, contract.PartiallyPaid: -1,
	contract.Unapplied: 1, contract.CreditUnapplied: 1, contract.PrepaymentUndone: 1, contract.PaymentReversed: 1,
}

// stateAfter has the state that an action leads to. Of an approved document something is open
// until a settlement or a payment leaves nothing.
var stateAfter = map[string]domain.State{
	contract.Drafted: domain.StateDraft, contract.Discarded: domain.StateDiscarded, contract.Submitted: domain.StateSubmitted,
	contract.Corrected: domain.StateSubmitted, contract.Reinstated: domain.StateSubmitted, contract.Validated: domain.StateValidated,
	contract.Approved: domain.StatePosted, contract.Posted: domain.StatePosted,
	contract.Rejected: domain.StateRejected, contract.Voided: domain.StateVoided,
}

// documentBatch collects rows, so that one statement per table writes those of all events.
type documentBatch struct {
	documents   apdb.DocumentInsertParams
	postings    apdb.DocumentPostingInsertParams
	settlements apdb.DocumentSettlementInsertParams
	steps       apdb.DocumentStepInsertParams
	states      apdb.DocumentStateInsertParams
	ended       []*apdb.DocumentStateEndParams // states of earlier batches
	stated      map[string]bool                // the documents in states
}

func newDocumentBatch(partition, version int32) *documentBatch {
	return &documentBatch{
		documents:   apdb.DocumentInsertParams{PartitionID: partition, Version: version},
		postings:    apdb.DocumentPostingInsertParams{PartitionID: partition, Version: version},
		settlements: apdb.DocumentSettlementInsertParams{PartitionID: partition, Version: version},
		steps:       apdb.DocumentStepInsertParams{PartitionID: partition, Version: version},
		states:      apdb.DocumentStateInsertParams{PartitionID: partition, Version: version},
		stated:      map[string]bool{},
	}
}

// write inserts the rows: bodies before the postings that refer to them, and postings before
// settlements.
func (b *documentBatch) write(ctx context.Context, db pgx.Tx, queries *apdb.Queries) error {
	if len(b.documents.Sequences) > 0 {
		if err := queries.DocumentInsert(ctx, db, &b.documents); err != nil {
			return err
		}
	}
	if len(b.postings.Sequences) > 0 {
		if err := queries.DocumentPostingInsert(ctx, db, &b.postings); err != nil {
			return err
		}
	}
	if len(b.settlements.Sequences) > 0 {
		if err := queries.DocumentSettlementInsert(ctx, db, &b.settlements); err != nil {
			return err
		}
	}
	if len(b.steps.Sequences) > 0 {
		if err := queries.DocumentStepInsert(ctx, db, &b.steps); err != nil {
			return err
		}
	}
	if len(b.states.Sequences) == 0 {
		return nil
	}
	if err := b.endStates(ctx, db, queries); err != nil {
		return err
	}
	return queries.DocumentStateInsert(ctx, db, &b.states)
}

// endStates ends what documents were before this batch.
func (b *documentBatch) endStates(ctx context.Context, db pgx.Tx, queries *apdb.Queries) error {
	if len(b.ended) == 0 {
		return nil
	}
	var failed error
	queries.DocumentStateEnd(ctx, db, b.ended).Exec(func(_ int, err error) {
		if failed == nil {
			failed = err
		}
	})
	return failed
}

// add adds the rows of an event of a document's stream.
func (b *documentBatch) add(k contract.Kind, action string, e *event.Recorded, data []byte) error {
	step := data
	var err error
	switch {
	case slices.Contains(bodyActions, action):
		if step, err = b.addBody(k, action, e, data); err != nil {
			return err
		}
	case action == contract.Posted:
		err = b.addPosting(k, e, data)
	case action == contract.Voided:
		err = b.addVoid(e, data)
	default:
		err = b.addSettlement(k, action, e, data)
	}
	if err != nil {
		return err
	}
	if state, ok := stateAfter[action]; ok {
		b.addState(e, state)
	}
	return b.addStep(action, e, step)
}

// addBody adds a body, and returns what its step has of it.
func (b *documentBatch) addBody(k contract.Kind, action string, e *event.Recorded, data []byte) ([]byte, error) {
	var d struct { // the members of contract.Document that have columns
		VendorID      string          `json:"vendor_id"`
		DocumentType  string          `json:"document_type"`
		InvoiceNumber string          `json:"invoice_number"`
		InvoiceDate   *event.Date     `json:"invoice_date"`
		DueDate       *event.Date     `json:"due_date"`
		Currency      string          `json:"currency"`
		TotalAmount   money.Number    `json:"total_amount"`
		Discount      json.RawMessage `json:"discount"`
		Reason        string          `json:"reason"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	if d.DueDate == nil {
		d.DueDate = d.InvoiceDate
	}
	kind := string(k)
	if k == contract.Invoice && (d.DocumentType == kindPrepayment || d.DocumentType == kindOpening) {
		kind = d.DocumentType
	}
	dimensions, found, err := jsondoc.Member(e.Payload, "dimensions")
	if err != nil {
		return nil, err
	}
	if !found || string(dimensions) == "null" {
		dimensions = []byte("{}")
	}
	body, err := withoutVendorName(data)
	if err != nil {
		return nil, err
	}
	rows := &b.documents
	rows.Sequences = append(rows.Sequences, int64(e.Sequence))
	rows.InvoiceDates = append(rows.InvoiceDates, dateText(d.InvoiceDate))
	rows.DueDates = append(rows.DueDates, dateText(d.DueDate))
	rows.DocumentIds = append(rows.DocumentIds, e.Stream.ID)
	rows.VendorIds = append(rows.VendorIds, d.VendorID)
	rows.Kinds = append(rows.Kinds, kind)
	rows.InvoiceNumbers = append(rows.InvoiceNumbers, d.InvoiceNumber)
	rows.Currencies = append(rows.Currencies, d.Currency)
	rows.Dimensions = append(rows.Dimensions, string(dimensions))
	rows.Actions = append(rows.Actions, action)
	rows.Totals = append(rows.Totals, d.TotalAmount.String())
	rows.Discounts = append(rows.Discounts, string(d.Discount))
	rows.Bodies = append(rows.Bodies, string(body))
	if d.Reason == "" {
		return []byte("{}"), nil
	}
	return json.Marshal(map[string]string{"reason": d.Reason})
}

// withoutVendorName copies a body without the vendor's name, which ap/vendors has.
func withoutVendorName(data []byte) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	delete(members, "vendor_name")
	return json.Marshal(members)
}

func dateText(d *event.Date) string {
	if d == nil {
		return ""
	}
	return d.String()
}

// addPosting adds the entry of the line on the control account. A credit there is owed to
// the vendor and positive, a debit negative.
func (b *documentBatch) addPosting(k contract.Kind, e *event.Recorded, data []byte) error {
	var p contract.DocumentPosted
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	amount, functional := p.Amount, p.FunctionalAmount
	if k == contract.CreditMemo {
		amount, functional = amount.Neg(), functional.Neg()
	}
	rows := &b.postings
	rows.Sequences = append(rows.Sequences, int64(e.Sequence))
	rows.EffectiveDates = append(rows.EffectiveDates, date(e.EffectiveDate))
	rows.EventIds = append(rows.EventIds, pgtype.UUID{Bytes: e.ID, Valid: true})
	rows.DocumentIds = append(rows.DocumentIds, e.Stream.ID)
	rows.Amounts = append(rows.Amounts, amount.String())
	rows.FunctionalAmounts = append(rows.FunctionalAmounts, functional.String())
	rows.FunctionalCurrencies = append(rows.FunctionalCurrencies, p.FunctionalCurrency)
	rows.Currencies = append(rows.Currencies, p.Currency)
	return nil
}

// addVoid adds the entry that takes a posting back. Nothing of it is settled.
func (b *documentBatch) addVoid(e *event.Recorded, data []byte) error {
	var v contract.DocumentVoided
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	if v.JournalID != "" {
		b.appendSettlement(e, contract.Voided, "", "", "")
	}
	return nil
}

// addSettlement adds the entry of an event that changes what is open, and the state that
// follows. A credit memo's amounts are negative. A document that owes nothing is paid without an
// entry.
func (b *documentBatch) addSettlement(k contract.Kind, action string, e *event.Recorded, data []byte) error {
	sign, ok := settlementSigns[action]
	if !ok {
		return nil
	}
	var s struct {
		Amount     money.Number         `json:"amount"`  // of an application
		Applied    money.Number         `json:"applied"` // of a payment
		Functional money.Number         `json:"functional_amount"`
		OpenAfter  money.Number         `json:"open_after"`
		With       contract.DocumentRef `json:"with"`
		PaymentID  string               `json:"payment_id"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	amount, functional := s.Amount.Add(s.Applied), s.Functional
	if (sign < 0) != (k == contract.CreditMemo) {
		amount, functional = amount.Neg(), functional.Neg()
	}
	if !amount.IsZero() || !functional.IsZero() {
		b.appendSettlement(e, action, amount.String(), functional.String(), cmp.Or(s.PaymentID, s.With.ID()))
	}
	state := domain.StatePosted
	if s.OpenAfter.IsZero() {
		state = domain.StatePaid
	}
	b.addState(e, state)
	return nil
}

func (b *documentBatch) appendSettlement(e *event.Recorded, action, amount, functional, counterpart string) {
	rows := &b.settlements
	rows.Sequences = append(rows.Sequences, int64(e.Sequence))
	rows.EffectiveDates = append(rows.EffectiveDates, date(e.EffectiveDate))
	rows.EventIds = append(rows.EventIds, pgtype.UUID{Bytes: e.ID, Valid: true})
	rows.DocumentIds = append(rows.DocumentIds, e.Stream.ID)
	rows.Actions = append(rows.Actions, action)
	rows.Amounts = append(rows.Amounts, amount)
	rows.FunctionalAmounts = append(rows.FunctionalAmounts, functional)
	rows.Counterparts = append(rows.Counterparts, counterpart)
}

func (b *documentBatch) addState(e *event.Recorded, state domain.State) {
	rows := &b.states
	if e.StreamVersion > 1 && !b.stated[e.Stream.ID] {
		b.ended = append(b.ended, &apdb.DocumentStateEndParams{
			Sequence: int64(e.Sequence), PartitionID: rows.PartitionID, Version: rows.Version, DocumentID: e.Stream.ID,
		})
	}
	b.stated[e.Stream.ID] = true
	rows.Sequences = append(rows.Sequences, int64(e.Sequence))
	rows.RecordedAts = append(rows.RecordedAts, e.RecordedAt)
	rows.DocumentIds = append(rows.DocumentIds, e.Stream.ID)
	rows.States = append(rows.States, string(state))
}

func (b *documentBatch) addStep(action string, e *event.Recorded, data []byte) error {
	actor, err := e.Actor()
	if err != nil {
		return err
	}
	onBehalfOf := ""
	if o := actor.Details.OnBehalfOf; o != nil {
		onBehalfOf = o.ID
	}
	rows := &b.steps
	rows.Sequences = append(rows.Sequences, int64(e.Sequence))
	rows.RecordedAts = append(rows.RecordedAts, e.RecordedAt)
	rows.EffectiveDates = append(rows.EffectiveDates, date(e.EffectiveDate))
	rows.EventIds = append(rows.EventIds, pgtype.UUID{Bytes: e.ID, Valid: true})
	rows.DocumentIds = append(rows.DocumentIds, e.Stream.ID)
	rows.Actions = append(rows.Actions, action)
	rows.ActorTypes = append(rows.ActorTypes, string(actor.Type))
	rows.ActorIds = append(rows.ActorIds, actor.ID)
	rows.OnBehalfOfs = append(rows.OnBehalfOfs, onBehalfOf)
	rows.Data = append(rows.Data, string(data))
	return nil
}

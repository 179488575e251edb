package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/ports"
)

// PaymentProjection writes ap.payments: payments as proposed, and the steps of runs and payments.
// It is stateless and idempotent.
type PaymentProjection struct{ queries *apdb.Queries }

var (
	_ ports.ProjectionHandler  = (*PaymentProjection)(nil)
	_ ports.ProjectionResetter = (*PaymentProjection)(nil)
	_ ports.ProjectionTables   = (*PaymentProjection)(nil)
	_ ports.ProjectionTargets  = (*PaymentProjection)(nil)
)

// NewPaymentProjection makes the handler of the projection ap.payments.
func NewPaymentProjection() *PaymentProjection { return &PaymentProjection{queries: apdb.New()} }

// The tables of ap.payments.
var (
	paymentsTable     = ports.ProjectionTable{Schema: "ap", Name: "payments", Key: []string{"run_id", "position", "sequence"}}
	runStepsTable     = ports.ProjectionTable{Schema: "ap", Name: "payment_run_steps", Key: []string{"run_id", "sequence"}}
	paymentStepsTable = ports.ProjectionTable{Schema: "ap", Name: "payment_steps", Key: []string{"payment_id", "sequence"}}
)

// Tables implements ports.ProjectionTables.
func (p *PaymentProjection) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{paymentsTable, runStepsTable, paymentStepsTable}
}

// Targets implements ports.ProjectionTargets. Events of a run's stream write its proposed payments
// and its steps, those of a payment's stream the steps of the payment.
func (p *PaymentProjection) Targets() []ports.ProjectionTarget {
	return []ports.ProjectionTarget{
		{Streams: []string{contract.StreamPaymentRun}, Tables: []ports.TargetTable{
			{ProjectionTable: paymentsTable, Entity: "run_id"}, {ProjectionTable: runStepsTable, Entity: "run_id"},
		}},
		{Streams: []string{contract.StreamPayment}, Tables: []ports.TargetTable{{ProjectionTable: paymentStepsTable, Entity: "payment_id"}}},
	}
}

// Reset implements ports.ProjectionResetter.
func (p *PaymentProjection) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return plugin.DeleteRows(ctx, tx, b, p.Tables())
}

// Apply implements ports.ProjectionHandler; tx must be a pgx.Tx.
func (p *PaymentProjection) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	db, err := plugin.Tx(tx)
	if err != nil {
		return err
	}
	for i := range b.Events {
		if err := p.apply(ctx, db, int32(b.Version), &b.Events[i]); err != nil {
			return fmt.Errorf("event %s: %w", b.Events[i].ID, err)
		}
	}
	return nil
}

func (p *PaymentProjection) apply(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded) error {
	data, err := e.Data()
	if err != nil {
		return err
	}
	actor, err := e.Actor()
	if err != nil {
		return err
	}
	if e.Stream.Type == contract.StreamPayment {
		return p.addPaymentStep(ctx, db, version, e, actor, data)
	}
	step := &apdb.PaymentRunStepInsertParams{
		RecordedAt: e.RecordedAt, Sequence: int64(e.Sequence), PartitionID: int32(e.Partition), Version: version, EffectiveDate: date(e.EffectiveDate),
		Step: e.Type[strings.LastIndexByte(e.Type, '.')+1:], RunID: e.Stream.ID, Actor: actor.ID, EventID: eventUUID(e.ID),
	}
	switch e.Type {
	case contract.EventRunProposed:
		var run contract.PaymentRunProposed
		if err := json.Unmarshal(data, &run); err != nil {
			return err
		}
		if err := p.addPayments(ctx, db, version, e, &run); err != nil || run.Part != 1 {
			return err
		}
		step.BankAccount, step.PayDate = run.BankAccount, date(run.PayDate)
	case contract.EventPaymentExcluded:
		var excluded contract.PaymentExcluded
		if err := json.Unmarshal(data, &excluded); err != nil {
			return err
		}
		step.Step, step.PaymentID = "excluded", excluded.PaymentID
	case contract.EventRunExported:
		var exported contract.PaymentRunExported
		if err := json.Unmarshal(data, &exported); err != nil {
			return err
		}
		step.MessageID, step.FileSha256 = exported.MessageID, exported.SHA256
	}
	return p.queries.PaymentRunStepInsert(ctx, db, step)
}

func (p *PaymentProjection) addPayments(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, run *contract.PaymentRunProposed) error {
	rows := &apdb.PaymentInsertParams{
		Sequence: int64(e.Sequence), PartitionID: int32(e.Partition), Version: version, EffectiveDate: date(e.EffectiveDate), PayDate: date(run.PayDate),
		RunID: e.Stream.ID, BankAccount: run.BankAccount, EventID: eventUUID(e.ID),
	}
	for i := range run.Payments {
		payment := &run.Payments[i]
		rows.Positions = append(rows.Positions, contract.PaymentPosition(payment.PaymentID))
		rows.Documents = append(rows.Documents, int32(len(payment.Applications)))
		rows.PaymentIds = append(rows.PaymentIds, payment.PaymentID)
		rows.VendorIds = append(rows.VendorIds, payment.VendorID)
		rows.Currencies = append(rows.Currencies, payment.Currency)
		rows.Amounts = append(rows.Amounts, payment.Amount.String())
		rows.Discounts = append(rows.Discounts, payment.Discount.String())
	}
	return p.queries.PaymentInsert(ctx, db, rows)
}

func (p *PaymentProjection) addPaymentStep(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, actor event.Actor, data []byte) error {
	var body struct {
		ExecutedOn    *event.Date `json:"executed_on"`
		BankReference string      `json:"bank_reference"`
		Status        string      `json:"status"`
		ReasonCode    string      `json:"reason_code"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return err
	}
	step := &apdb.PaymentStepInsertParams{
		RecordedAt: e.RecordedAt, Sequence: int64(e.Sequence), PartitionID: int32(e.Partition), Version: version, EffectiveDate: date(e.EffectiveDate),
		Step: e.Type[strings.LastIndexByte(e.Type, '.')+1:], PaymentID: e.Stream.ID, Actor: actor.ID,
		BankReference: body.BankReference, BankStatus: body.Status, ReasonCode: body.ReasonCode, EventID: eventUUID(e.ID),
	}
	if body.ExecutedOn != nil {
		step.ExecutedOn = date(*body.ExecutedOn)
	}
	return p.queries.PaymentStepInsert(ctx, db, step)
}

func eventUUID(id event.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

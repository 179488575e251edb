// Package postgres keeps the read models of accounts payable in the PostgreSQL schema ap.
// Projection and VendorProjection write the rows from events; OpenItems and Vendors answer
// queries from them. Rows are keyed by partition and version, so that a rebuild can write
// a new version while queries read the active one.
package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/ports"
)

// Kinds of rows for invoices that are not of the standard document type.
const (
	kindPrepayment = contract.TypePrepayment
	kindOpening    = contract.TypeOpening
)

// actionPosted is the action of the entry that posts a document to the subledger.
const actionPosted = "posted"

// eventLedgerConfigured is the general ledger's event with the functional currency.
const eventLedgerConfigured = "gl.ledger.configured"

// Projection writes ap.open-items. It is stateless and idempotent.
type Projection struct{ queries *apdb.Queries }

var (
	_ ports.ProjectionHandler  = (*Projection)(nil)
	_ ports.ProjectionResetter = (*Projection)(nil)
	_ ports.ProjectionTables   = (*Projection)(nil)
	_ ports.ProjectionTargets  = (*Projection)(nil)
)

// NewProjection makes the handler of the projection ap.open-items.
func NewProjection() *Projection { return &Projection{queries: apdb.New()} }

// Apply implements ports.ProjectionHandler; tx must be a pgx.Tx.
func (p *Projection) Apply(ctx context.Context, tx ports.ProjectionTx, given ports.ProjectionBatch) error {
	db, err := plugin.Tx(tx)
	if err != nil || len(given.Events) == 0 {
		return err
	}
	partition, version := int32(given.Partition), int32(given.Version)
	b := batch{
		version:   version,
		documents: apdb.DocumentInsertParams{PartitionID: partition, Version: version},
		entries:   apdb.DocumentEntryInsertParams{PartitionID: partition, Version: version},
	}
	for i := range given.Events {
		if err := p.apply(ctx, db, &given.Events[i], &b); err != nil {
			return fmt.Errorf("event %s: %w", given.Events[i].ID, err)
		}
	}
	if len(b.documents.Sequences) > 0 {
		if err := p.queries.DocumentInsert(ctx, db, &b.documents); err != nil {
			return err
		}
	}
	if len(b.entries.Sequences) > 0 {
		return p.queries.DocumentEntryInsert(ctx, db, &b.entries)
	}
	return nil
}

// The tables of ap.open-items.
var (
	ledgersTable   = ports.ProjectionTable{Schema: "ap", Name: "ledgers", Key: []string{"sequence"}}
	documentsTable = ports.ProjectionTable{Schema: "ap", Name: "documents", Key: []string{"document_id"}}
	entriesTable   = ports.ProjectionTable{Schema: "ap", Name: "document_entries", Key: []string{"document_id", "sequence"}}
	holdsTable     = ports.ProjectionTable{Schema: "ap", Name: "document_holds", Key: []string{"document_id", "sequence"}}
)

// Tables implements ports.ProjectionTables.
func (p *Projection) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{ledgersTable, documentsTable, entriesTable, holdsTable}
}

// The stream of the ledger's settings.
const (
	streamLedger = "gl.ledger"
	mainLedger   = "main"
)

// Targets implements ports.ProjectionTargets. A target is a document with its entries and
// holds, which only events of its own stream write, or the functional currency.
func (p *Projection) Targets() []ports.ProjectionTarget {
	const document = "document_id"
	streams := make([]string, 0, len(contract.Kinds()))
	for _, k := range contract.Kinds() {
		streams = append(streams, k.StreamType())
	}
	return []ports.ProjectionTarget{
		{Streams: streams, Tables: []ports.TargetTable{
			{ProjectionTable: documentsTable, Entity: document}, {ProjectionTable: entriesTable, Entity: document}, {ProjectionTable: holdsTable, Entity: document},
		}},
		{Streams: []string{streamLedger}, ID: mainLedger, Tables: []ports.TargetTable{{ProjectionTable: ledgersTable}}},
	}
}

// Reset implements ports.ProjectionResetter.
func (p *Projection) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return plugin.DeleteRows(ctx, tx, b, p.Tables())
}

// batch collects rows, so that one statement per table writes those of all events.
type batch struct {
	version   int32
	documents apdb.DocumentInsertParams
	entries   apdb.DocumentEntryInsertParams
}

func (p *Projection) apply(ctx context.Context, db pgx.Tx, e *event.Recorded, b *batch) error {
	data, err := e.Data()
	if err != nil {
		return err
	}
	if e.Type == eventLedgerConfigured {
		var s struct {
			FunctionalCurrency string `json:"functional_currency"`
		}
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		return p.queries.LedgerInsert(ctx, db, &apdb.LedgerInsertParams{
			PartitionID: int32(e.Partition), Version: b.version, Sequence: int64(e.Sequence), FunctionalCurrency: s.FunctionalCurrency,
		})
	}
	for _, k := range contract.Kinds() {
		switch e.Type {
		case k.Event(contract.Submitted):
			return b.addDocument(k, e, data)
		case k.Event(contract.Posted):
			return b.addPosting(k, e, data)
		case k.Event(contract.Held):
			var h contract.DocumentHeld
			if err := json.Unmarshal(data, &h); err != nil {
				return err
			}
			return p.addHold(ctx, db, b.version, e, h.HoldID, h.Kind, h.Blocks)
		case k.Event(contract.HoldReleased):
			var h contract.HoldReleasedData
			if err := json.Unmarshal(data, &h); err != nil {
				return err
			}
			return p.addHold(ctx, db, b.version, e, h.HoldID, h.Kind, "")
		}
	}
	return nil
}

// addHold writes the row of a placed hold or, with blocks "", of a released one.
func (p *Projection) addHold(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, id, kind, blocks string) error {
	return p.queries.DocumentHoldInsert(ctx, db, &apdb.DocumentHoldInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), EffectiveDate: date(e.EffectiveDate), Released: blocks == "",
		DocumentID: e.Stream.ID, HoldID: id, Kind: kind, Blocks: blocks,
	})
}

func (b *batch) addDocument(k contract.Kind, e *event.Recorded, data []byte) error {
	var d struct { // the members of contract.Document that have columns
		VendorID      string      `json:"vendor_id"`
		DocumentType  string      `json:"document_type"`
		InvoiceNumber string      `json:"invoice_number"`
		InvoiceDate   event.Date  `json:"invoice_date"`
		DueDate       *event.Date `json:"due_date"`
		Currency      string      `json:"currency"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	due := d.InvoiceDate
	if d.DueDate != nil {
		due = *d.DueDate
	}
	kind := string(k)
	if k == contract.Invoice && (d.DocumentType == kindPrepayment || d.DocumentType == kindOpening) {
		kind = d.DocumentType
	}
	dimensions, found, err := jsondoc.Member(e.Payload, "dimensions")
	if err != nil {
		return err
	}
	if !found || string(dimensions) == "null" {
		dimensions = []byte("{}")
	}
	b.documents.Sequences = append(b.documents.Sequences, int64(e.Sequence))
	b.documents.InvoiceDates = append(b.documents.InvoiceDates, date(d.InvoiceDate))
	b.documents.DueDates = append(b.documents.DueDates, date(due))
	b.documents.DocumentIds = append(b.documents.DocumentIds, e.Stream.ID)
	b.documents.VendorIds = append(b.documents.VendorIds, d.VendorID)
	b.documents.Kinds = append(b.documents.Kinds, kind)
	b.documents.InvoiceNumbers = append(b.documents.InvoiceNumbers, d.InvoiceNumber)
	b.documents.Currencies = append(b.documents.Currencies, d.Currency)
	b.documents.Dimensions = append(b.documents.Dimensions, string(dimensions))
	return nil
}

// addPosting adds the entry of the line on the control account. A credit there is owed to
// the vendor and positive, a debit negative.
func (b *batch) addPosting(k contract.Kind, e *event.Recorded, data []byte) error {
	var p contract.DocumentPosted
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	amount, functional := p.Amount, p.FunctionalAmount
	if k == contract.CreditMemo {
		amount, functional = amount.Neg(), functional.Neg()
	}
	b.entries.Sequences = append(b.entries.Sequences, int64(e.Sequence))
	b.entries.EffectiveDates = append(b.entries.EffectiveDates, date(e.EffectiveDate))
	b.entries.EventIds = append(b.entries.EventIds, pgtype.UUID{Bytes: e.ID, Valid: true})
	b.entries.DocumentIds = append(b.entries.DocumentIds, e.Stream.ID)
	b.entries.Actions = append(b.entries.Actions, actionPosted)
	b.entries.Amounts = append(b.entries.Amounts, amount.String())
	b.entries.FunctionalAmounts = append(b.entries.FunctionalAmounts, functional.String())
	b.entries.FunctionalCurrencies = append(b.entries.FunctionalCurrencies, p.FunctionalCurrency)
	return nil
}

func date(d event.Date) pgtype.Date { return pgtype.Date{Time: d.Time(), Valid: true} }

// Package postgres keeps the read models of accounts payable in the PostgreSQL schema ap.
// Projection and VendorProjection write the rows from events; the other types answer queries
// from them. Rows are keyed by partition and version, so that a rebuild can write a new version
// while queries read the active one.
package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/ports"
)

// eventLedgerConfigured is the general ledger's event with the functional currency.
const eventLedgerConfigured = "gl.ledger.configured"

// Projection writes ap.open-items: documents with their bodies, entries, holds, steps and
// states. It is stateless and idempotent.
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
	b := newDocumentBatch(int32(given.Partition), int32(given.Version))
	for i := range given.Events {
		if err := p.apply(ctx, db, &given.Events[i], b); err != nil {
			return fmt.Errorf("event %s: %w", given.Events[i].ID, err)
		}
	}
	return b.write(ctx, db, p.queries)
}

// The tables of ap.open-items.
var (
	ledgersTable   = ports.ProjectionTable{Schema: "ap", Name: "ledgers", Key: []string{"sequence"}}
	documentsTable = ports.ProjectionTable{Schema: "ap", Name: "documents", Key: []string{"document_id", "sequence"}}
	entriesTable   = ports.ProjectionTable{Schema: "ap", Name: "document_entries", Key: []string{"document_id", "sequence"}}
	holdsTable     = ports.ProjectionTable{Schema: "ap", Name: "document_holds", Key: []string{"document_id", "sequence"}}
	stepsTable     = ports.ProjectionTable{Schema: "ap", Name: "document_steps", Key: []string{"document_id", "sequence"}}
	statesTable    = ports.ProjectionTable{Schema: "ap", Name: "document_states", Key: []string{"document_id", "sequence"}}
)

// Tables implements ports.ProjectionTables.
func (p *Projection) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{ledgersTable, documentsTable, entriesTable, holdsTable, stepsTable, statesTable}
}

// The stream of the ledger's settings.
const (
	streamLedger = "gl.ledger"
	mainLedger   = "main"
)

// Targets implements ports.ProjectionTargets. A target is a document with all its rows, which
// only events of its own stream write, or the functional currency.
func (p *Projection) Targets() []ports.ProjectionTarget {
	streams := make([]string, 0, len(contract.Kinds()))
	for _, k := range contract.Kinds() {
		streams = append(streams, k.StreamType())
	}
	documents := ports.ProjectionTarget{Streams: streams}
	for _, t := range []ports.ProjectionTable{documentsTable, entriesTable, holdsTable, stepsTable, statesTable} {
		documents.Tables = append(documents.Tables, ports.TargetTable{ProjectionTable: t, Entity: "document_id"})
	}
	return []ports.ProjectionTarget{documents, {Streams: []string{streamLedger}, ID: mainLedger, Tables: []ports.TargetTable{{ProjectionTable: ledgersTable}}}}
}

// Reset implements ports.ProjectionResetter.
func (p *Projection) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return plugin.DeleteRows(ctx, tx, b, p.Tables())
}

func (p *Projection) apply(ctx context.Context, db pgx.Tx, e *event.Recorded, b *documentBatch) error {
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
			PartitionID: int32(e.Partition), Version: b.documents.Version, Sequence: int64(e.Sequence), FunctionalCurrency: s.FunctionalCurrency,
		})
	}
	k, ok := contract.KindOfStream(e.Stream.Type)
	if !ok {
		return nil
	}
	action, ok := k.Action(e.Type)
	if !ok {
		return nil
	}
	switch action {
	case contract.Held:
		var h contract.DocumentHeld
		if err := json.Unmarshal(data, &h); err != nil {
			return err
		}
		err = p.addHold(ctx, db, b.documents.Version, e, h.HoldID, h.Kind, h.Blocks)
	case contract.HoldReleased:
		var h contract.HoldReleasedData
		if err := json.Unmarshal(data, &h); err != nil {
			return err
		}
		err = p.addHold(ctx, db, b.documents.Version, e, h.HoldID, h.Kind, "")
	}
	if err != nil {
		return err
	}
	return b.add(k, action, e, data)
}

// addHold writes the row of a placed hold or, with blocks "", of a released one.
func (p *Projection) addHold(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, id, kind, blocks string) error {
	return p.queries.DocumentHoldInsert(ctx, db, &apdb.DocumentHoldInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), EffectiveDate: date(e.EffectiveDate), Released: blocks == "",
		DocumentID: e.Stream.ID, HoldID: id, Kind: kind, Blocks: blocks,
	})
}

func date(d event.Date) pgtype.Date { return pgtype.Date{Time: d.Time(), Valid: true} }

// Package postgres keeps the read model of items in PostgreSQL.
package postgres

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/cmd/scaffold/skeleton"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Migrations create the module's schema.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Projection writes skeleton.items.
type Projection struct{}

// Apply writes the effects of the batch inside tx, as rows of its partition and version.
func (Projection) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	db, err := plugin.Tx(tx)
	if err != nil {
		return err
	}
	for i := range b.Events {
		if err := apply(ctx, db, b.Version, &b.Events[i]); err != nil {
			return fmt.Errorf("event %s: %w", b.Events[i].ID, err)
		}
	}
	return nil
}

func apply(ctx context.Context, db pgx.Tx, version int, e *event.Recorded) error {
	data, err := e.Data()
	if err != nil {
		return err
	}
	switch e.Type {
	case skeleton.EventAdded:
		var d skeleton.Added
		if err := json.Unmarshal(data, &d); err != nil {
			return err
		}
		_, err = db.Exec(ctx, `INSERT INTO skeleton.items (partition_id, version, item_id, sequence, effective, code, quantity)
			VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
			int32(e.Partition), version, d.ItemID, int64(e.Sequence), e.EffectiveDate.String(), d.Code, d.Quantity)
	case skeleton.EventRemoved:
		_, err = db.Exec(ctx, `UPDATE skeleton.items SET removed_seq = $4, removed_date = $5
			WHERE partition_id = $1 AND version = $2 AND item_id = $3`,
			int32(e.Partition), version, e.Stream.ID, int64(e.Sequence), e.EffectiveDate.String())
	}
	return err
}

// Reset removes what a version wrote for a partition.
func (p Projection) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return plugin.DeleteRows(ctx, tx, b, p.Tables())
}

// Tables lists what Apply writes, so that Backbone can build several versions, compare and remove them.
func (Projection) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{{Schema: "skeleton", Name: "items", Key: []string{"item_id"}}}
}

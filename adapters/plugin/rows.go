package plugin

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Tx returns the transaction of PostgreSQL that a projection's handler writes in.
func Tx(tx ports.ProjectionTx) (pgx.Tx, error) {
	db, ok := tx.(pgx.Tx)
	if !ok {
		return nil, fmt.Errorf("a projection of a module writes in a pgx.Tx, not in a %T", tx)
	}
	return db, nil
}

// ApplyEach applies the events of a batch one by one: Apply of a ports.ProjectionHandler that writes
// the rows of each event on its own.
func ApplyEach(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch, apply func(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded) error) error {
	db, err := Tx(tx)
	if err != nil {
		return err
	}
	for i := range b.Events {
		if err := apply(ctx, db, int32(b.Version), &b.Events[i]); err != nil {
			return fmt.Errorf("event %s: %w", b.Events[i].ID, err)
		}
	}
	return nil
}

// DeleteRows removes the rows of the batch's version in its partition from tables that no
// other projection writes. It is what Reset of a ports.ProjectionResetter has to do.
func DeleteRows(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch, tables []ports.ProjectionTable) error {
	db, err := Tx(tx)
	if err != nil {
		return err
	}
	for _, t := range tables {
		statement := "DELETE FROM " + pgx.Identifier{t.Schema, t.Name}.Sanitize() + " WHERE partition_id = $1 AND version = $2"
		if _, err := db.Exec(ctx, statement, int32(b.Partition), int32(b.Version)); err != nil {
			return err
		}
	}
	return nil
}

package plugin

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

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

package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// InReadModelTx runs f in one transaction on the read models of a partition, outside
// of any projection's own; an error rolls it back. tx is a pgx.Tx.
func (s *Store) InReadModelTx(ctx context.Context, _ event.PartitionID, f func(tx ports.ProjectionTx) error) error {
	var failed error
	err := pgx.BeginTxFunc(ctx, s.reads, pgx.TxOptions{AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		failed = f(tx)
		return failed
	})
	if err != nil && failed == nil {
		err = translate(ctx, err)
	}
	return err
}

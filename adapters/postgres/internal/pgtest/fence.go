package pgtest

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/ports"
)

// Applied is a handler that calls a function.
type Applied func(ctx context.Context, tx pgx.Tx, b ports.ProjectionBatch) error

func (a Applied) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return a(ctx, tx.(pgx.Tx), b)
}

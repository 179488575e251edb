package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/ports"
)

// ReadModel puts the store's error seam around a module's read model, which
// queries the database by itself: nobody sees what PostgreSQL says about a value,
// and a database that is away is retryable. What the source says itself passes.
func ReadModel(source ports.ReadModelSource) ports.ReadModelSource { return readModel{source} }

type readModel struct{ source ports.ReadModelSource }

// Query implements ports.ReadModelSource.
func (r readModel) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	report, err := r.source.Query(ctx, q)
	if _, said := errors.AsType[*pgconn.PgError](err); said || pg.IsUnavailable(err) {
		err = pg.Translate(ctx, err)
	}
	return report, err
}

package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/ports"
)

// ReadModel translates the errors of a module's read model, which queries the database by
// itself: PostgreSQL's messages may quote values, and callers may retry when the database is
// unavailable. It returns the source's own faults unchanged.
func ReadModel(source ports.ReadModelSource) ports.ReadModelSource { return readModel{source} }

type readModel struct{ source ports.ReadModelSource }

// Query implements ports.ReadModelSource.
func (r readModel) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	report, err := r.source.Query(ctx, q)
	if _, refused := errors.AsType[*pgconn.PgError](err); refused || pg.IsUnavailable(err) {
		err = pg.Translate(ctx, err)
	}
	return report, err
}

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// failing is a read model whose query ends with an error.
type failing struct{ err error }

func (f failing) Query(context.Context, ports.ReadModelQuery) (ports.Report, error) {
	return ports.Report{}, f.err
}

// TestReadModel_ErrorsHoldNoValues lets a module's query fail with errors that quote
// its parameters.
func TestReadModel_ErrorsHoldNoValues(t *testing.T) {
	t.Parallel()
	ask := func(err error) error {
		_, err = postgres.ReadModel(failing{err}).Query(t.Context(), ports.ReadModelQuery{})
		return err
	}
	refused := &pgconn.PgError{Code: "22P02", Message: `invalid input syntax for type date: "Ada Lovelace"`, Detail: "Ada Lovelace"}
	err := ask(fmt.Errorf("open items: %w", refused))
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, fault.Internal, f.Kind)
	for e := error(f); e != nil; e = errors.Unwrap(e) {
		require.NotContains(t, fmt.Sprintf("%+v", e), "Ada")
		require.NotContains(t, e.Error(), "Ada")
	}

	require.Equal(t, fault.Unavailable, fault.KindOf(ask(fmt.Errorf("open items: %w", &pgconn.PgError{Code: "57P01"}))))

	own := fault.New(fault.Invalid, "report.parameter_invalid", "correct it")
	require.Same(t, own, ask(own))
	plain := errors.New("a row that cannot be read")
	require.Equal(t, plain, ask(plain))
	require.NoError(t, ask(nil))
}

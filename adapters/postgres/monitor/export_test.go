package monitor

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
)

// SetTimeouts sets the timeouts of a monitor's queries.
func SetTimeouts(ctx context.Context, m *Monitor, d time.Duration) error {
	_, err := m.conn.Exec(ctx, "SELECT set_config('statement_timeout', $1, false), set_config('lock_timeout', $1, false)", pg.Milliseconds(d))
	return err
}

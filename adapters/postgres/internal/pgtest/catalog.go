package pgtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
)

// Column reads a query of one text column.
func Column(t *testing.T, conn *pgx.Conn, query string, args ...any) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), query, args...)
	require.NoError(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return out
}

func Joined(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = strings.ReplaceAll(l, " ", ":")
	}
	return out
}

// Attacks are statements by which the log could be changed.
func Attacks(p event.PartitionID) []string {
	var out []string
	for _, table := range []string{
		"backbone.events", "backbone.event_payloads", "backbone.events_default", "backbone.event_payloads_default",
		fmt.Sprintf("backbone.events_p%d", p), fmt.Sprintf("backbone.event_payloads_p%d", p),
	} {
		out = append(out,
			"UPDATE "+table+" SET partition_id = partition_id", "DELETE FROM "+table, "TRUNCATE "+table)
	}
	return append(out, "TRUNCATE backbone.events, backbone.event_payloads CASCADE")
}

func SQLState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return fmt.Sprint(err)
}

package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

// takeAll gathers the lines of an export and the cursor that continues after them.
func takeAll(t *testing.T, c *client.Client, parameters url.Values) (lines, cursor string, events int, err error) {
	t.Helper()
	err = c.Export(t.Context(), parameters, func(p client.ExportedPage) error {
		require.Equal(t, strings.Count(string(p.Lines), "\n"), p.Events)
		lines, cursor, events = lines+string(p.Lines), p.NextCursor, events+p.Events
		return nil
	})
	return lines, cursor, events, err
}

func line(n int) string { return fmt.Sprintf("{\"id\":\"%d\",\"data\":{\"next_cursor\":1}}\n", n) }

func TestExportPages(t *testing.T) {
	t.Parallel()
	long := `{"id":"3","data":{"text":"` + strings.Repeat("x", 1<<20) + "\"}}\n"
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/api/events/export", r.URL.Path)
		require.Equal(t, url.Values{"checkpoints": {"true"}, "stream_id": {"US MF"}}, r.URL.Query())
		require.Equal(t, "Bearer bbk_x", r.Header.Get("Authorization"))
		_, _ = io.WriteString(w, line(1)+line(2)+"{\"next_cursor\":\"c-1\"}\n"+long)
	})
	lines, cursor, events, err := takeAll(t, c, url.Values{"stream_id": {"US MF"}})
	require.NoError(t, err)
	require.Equal(t, line(1)+line(2)+long, lines)
	require.Equal(t, 3, events)
	require.Empty(t, cursor, "nothing is left")
}

func TestExportBrokenConnection(t *testing.T) {
	t.Parallel()
	begin := line(1) + line(2) + "{\"next_cursor\":\"c-1\"}\n" + line(3)
	for name, c := range map[string]struct {
		rest string
		code string
		kind fault.Kind
	}{
		"with a problem":          {`{"error":{"status":503,"code":"store.unavailable","detail":"the store is away; try again"},"next_cursor":"c-1"}` + "\n", "store.unavailable", fault.Unavailable},
		"with an invalid problem": {"{\"error\":17}\n", "client.export_aborted", fault.Unavailable},
		"between two lines":       {"", "client.export_aborted", fault.Unavailable},
		"in the middle of a line": {`{"id":"4`, "client.export_aborted", fault.Unavailable},
	} {
		client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, begin+c.rest)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		lines, cursor, events, err := takeAll(t, client, nil)
		require.Equal(t, c.code, fault.CodeOf(err), name)
		require.Equal(t, c.kind, fault.KindOf(err), name)
		require.Equal(t, line(1)+line(2), lines, name)
		require.Equal(t, 2, events)
		require.Equal(t, "c-1", cursor)
	}
}

func TestExportRefused(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, 403, `{"status":403,"code":"auth.forbidden","detail":"no; ask"}`)
	})
	lines, _, _, err := takeAll(t, c, nil)
	require.Equal(t, "auth.forbidden", fault.CodeOf(err))
	require.Empty(t, lines)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Export(ctx, nil, func(client.ExportedPage) error { return nil }), context.Canceled)
}

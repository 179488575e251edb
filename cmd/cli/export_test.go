package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

// An export that breaks off leaves whole pages and says how to go on; going on
// makes the file what it would have been.
func TestExportContinues(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "":
			_, _ = io.WriteString(w, "{\"id\":\"1\"}\n{\"next_cursor\":\"c-1\"}\n{\"id\":\"2\"}\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "c-1":
			_, _ = io.WriteString(w, "{\"id\":\"2\"}\n{\"id\":\"3\"}\n")
		default:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"status":400,"code":"cursor.malformed","detail":"no; start again"}`)
		}
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "events.jsonl")
	d := &terminal{server: server.URL, token: "x"}
	export := func(target, cursor string) error {
		d.err.Reset()
		return d.run(t, "export", target, "--stream-id", "DEMF", "--after-cursor", cursor)
	}
	content := func() string {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, "cursor.malformed", fault.CodeOf(export(file, "odd")))
	require.NoFileExists(t, file, "a query that is refused makes no file")

	require.Equal(t, "client.export_aborted", fault.CodeOf(export(file, "")))
	require.Equal(t, "{\"id\":\"1\"}\n", content())
	require.Contains(t, d.err.String(), "--after-cursor c-1\n")

	require.Equal(t, "export.file_exists", fault.CodeOf(export(file, "")))
	require.Equal(t, "{\"id\":\"1\"}\n", content(), "what is there is kept")

	require.NoError(t, export(file, "c-1"))
	require.Equal(t, "{\"id\":\"1\"}\n{\"id\":\"2\"}\n{\"id\":\"3\"}\n", content())
	require.Contains(t, d.err.String(), "2 events in ")

	require.Error(t, export("-", ""))
	require.Equal(t, "{\"id\":\"1\"}\n", d.out.String())
	d.token = ""
	require.Equal(t, "export.token_missing", fault.CodeOf(export("-", "")))
}

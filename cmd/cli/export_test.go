package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

// An export that breaks off leaves whole pages and says how to go on; going on
// makes the file what it would have been.
func TestAnExportGoesOnBehindItsLastPage(t *testing.T) {
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
	var said bytes.Buffer
	export := func(target, cursor string, out io.Writer) error {
		said.Reset()
		return ExportEvents(t.Context(), EventExportOptions{
			Server: server.URL, Token: "x", Parameters: url.Values{"stream_type": {"scope"}}, AfterCursor: cursor, File: target, Out: out, Err: &said,
		})
	}
	content := func() string {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, "cursor.malformed", fault.CodeOf(export(file, "odd", nil)))
	require.NoFileExists(t, file, "a query that is refused makes no file")

	require.Equal(t, "client.export_aborted", fault.CodeOf(export(file, "", nil)))
	require.Equal(t, "{\"id\":\"1\"}\n", content())
	require.Contains(t, said.String(), "--after-cursor c-1\n")

	require.Equal(t, "export.file_exists", fault.CodeOf(export(file, "", nil)))
	require.Equal(t, "{\"id\":\"1\"}\n", content(), "what is there is kept")

	require.NoError(t, export(file, "c-1", nil))
	require.Equal(t, "{\"id\":\"1\"}\n{\"id\":\"2\"}\n{\"id\":\"3\"}\n", content())
	require.Contains(t, said.String(), "2 events in ")

	var out bytes.Buffer
	require.Error(t, export("-", "", &out))
	require.Equal(t, "{\"id\":\"1\"}\n", out.String())
	require.Equal(t, "export.token_missing", fault.CodeOf(ExportEvents(t.Context(), EventExportOptions{File: "-"})))
}

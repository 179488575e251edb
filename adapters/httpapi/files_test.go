package httpapi_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeclaredFile(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	get := func(token, path string) testAnswer {
		return h.do(t, testRequest{method: "GET", path: path, token: token, header: map[string]string{"Accept-Encoding": "gzip"}})
	}
	a := get("ap_clerk", "/api/note/books/B-1/print?legal_entity=USMF")
	require.Equal(t, http.StatusOK, a.status, string(a.body))
	require.Equal(t, "application/xml", a.header.Get("Content-Type"))
	require.Equal(t, "attachment; filename=B-1.xml", a.header.Get("Content-Disposition"))
	require.Equal(t, fmt.Sprintf(`"%x"`, sha256.Sum256(a.body)), a.header.Get("ETag"))
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.Empty(t, a.header.Get("Content-Encoding"))
	require.Contains(t, string(a.body), "<page>USMF</page>")

	for _, c := range []struct {
		token, path, code string
		status            int
	}{
		{"", "/api/note/books/B-1/print?legal_entity=USMF", "auth.token_missing", http.StatusUnauthorized},
		{"auditor", "/api/note/books/B-1/print?legal_entity=USMF", "auth.forbidden", http.StatusForbidden},
		{"module", "/api/note/books/B-1/print?legal_entity=USMF", "auth.forbidden", http.StatusForbidden},
		{"admin", "/api/note/books/B-1/print?legal_entity=USMF", "auth.forbidden", http.StatusForbidden},
		{"controller", "/api/note/books/B-1/print?legal_entity=USMF", "intent.forbidden", http.StatusForbidden},
		{"ap_clerk", "/api/note/books/B-1/print", "request.parameter_missing", http.StatusBadRequest},
		{"ap_clerk", "/api/note/books/B-1/print?legal_entity=NONE", "legal_entity.not_found", http.StatusNotFound},
		{"ap_clerk", "/api/note/books/B-1/print?legal_entity=USMF&as_of=2026-01-01", "request.parameter_unknown", http.StatusBadRequest},
		{"ap_clerk", "/api/note/books/a%2Fb/print?legal_entity=USMF", "file.parameter_invalid", http.StatusBadRequest},
		{"ap_clerk", "/api/note/books/secret/print?legal_entity=USMF", "policy.undecided", http.StatusForbidden},
	} {
		a := get(c.token, c.path)
		require.Equal(t, c.status, a.status, "%s %s: %s", c.token, c.path, a.body)
		require.Equal(t, c.code, a.json(t)["code"], "%s %s", c.token, c.path)
	}
}

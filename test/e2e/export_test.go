package e2e

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exportSamples exports the books after the samples as text for persons.
func exportSamples(t *testing.T, d *dev) {
	t.Helper()
	export := func(args ...string) result {
		return d.as(t, "auditor").command(t, append([]string{"export"}, args...)...)
	}
	decode := func(text string) (out []event) {
		for line := range strings.Lines(text) {
			var e event
			require.NoError(t, json.Unmarshal([]byte(line), &e), line)
			out = append(out, e)
		}
		return out
	}
	all, err := d.as(t, "auditor").events(url.Values{"stream_type": {"scope"}, "stream_id": {"DEMF"}})
	require.NoError(t, err)

	file := filepath.Join(t.TempDir(), "DEMF.jsonl")
	r := export("--legal-entity", "DEMF", file)
	require.Zero(t, r.code, r)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, all, decode(string(text)))

	r = export("--legal-entity", "DEMF", "--modules", "gl", "--direction", "backward", "--path", "$.journal_number", "--operator", "contains", "--value", "SL-", "-")
	require.Zero(t, r.code, r)
	journals := decode(r.stdout)
	require.Len(t, journals, 6)
	for _, e := range journals {
		require.Equal(t, "gl.journal.posted", e.Type)
	}

	for args, want := range map[string]string{
		"--legal-entity DEMF " + file:                                                    "the file is there already",
		"--legal-entity DEMF --after-cursor x -":                                         "next_cursor of the page before",
		"--legal-entity XXXX -":                                                          "no legal entity",
		"--legal-entity DEMF --path $.a --operator is -":                                 "operator is one of",
		"--token= --legal-entity DEMF -":                                                 "BACKBONE_TOKEN",
		"--legal-entity DEMF --from-date 2026-02-01 --to-date 2026-01-01 new.jsonl":      "range ends before it begins",
		"--server http://127.0.0.1:1 --legal-entity DEMF " + filepath.Dir(file) + "/new": "cannot be reached",
	} {
		r := export(strings.Fields(args)...)
		require.Equal(t, 1, r.code, args)
		require.Contains(t, r.stderr, want, args)
		require.Empty(t, r.stdout)
	}
	require.NoFileExists(t, filepath.Dir(file)+"/new")
}

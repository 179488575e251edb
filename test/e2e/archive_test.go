package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestArchiveCommands runs the commands of the archive on young books, of which nothing leaves. TestArchive in test/tamper
// archives.
func TestArchiveCommands(t *testing.T) {
	t.Parallel()
	d := sharedDev(t)
	run := func(args ...string) result {
		return command(t, nil, append(append([]string{"archive"}, args...), "--data-dir", d.dataDir)...)
	}
	planned := run("plan", "--json")
	require.Zero(t, planned.code, planned)
	var plan struct {
		Before   time.Time `json:"before"`
		Entities []struct {
			LegalEntity string   `json:"legal_entity"`
			ToArchive   uint64   `json:"to_archive"`
			Behind      []string `json:"projections_behind"`
		} `json:"legal_entities"`
	}
	require.NoError(t, json.Unmarshal([]byte(planned.stdout), &plan))
	require.Equal(t, time.Date(time.Now().UTC().Year()-2, 1, 1, 0, 0, 0, 0, time.UTC), plan.Before)
	require.NotEmpty(t, plan.Entities)
	for _, e := range plan.Entities {
		require.NotEqual(t, "_ADMIN", e.LegalEntity)
		require.Zero(t, e.ToArchive)
	}
	for _, c := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"plan"}, 0, "LEGAL ENTITY", ""},
		{[]string{"run"}, 0, "Nothing to archive.", ""},
		{[]string{"status"}, 0, "Nothing is archived.", ""},
		{[]string{"run", "--before", time.Now().UTC().AddDate(-1, 0, 0).Format(time.DateOnly)}, 1, "", "archive.too_young"},
		{[]string{"run", "--before", "yesterday"}, 1, "", "archive.day_invalid"},
		{[]string{"plan", "--legal-entity", "NONE"}, 1, "", "legal_entity.not_found"},
		{[]string{"restore", "--legal-entity", "USMF", "--reason", "Audit"}, 1, "", "archive.segment_not_found"},
		{[]string{"restore", "--legal-entity", "USMF"}, 1, "", "reason"},
	} {
		got := run(c.args...)
		require.Equal(t, c.code, got.code, "%v: %v", c.args, got)
		require.Contains(t, got.stdout, c.stdout, c.args)
		require.Contains(t, got.stderr, c.stderr, c.args)
	}
}

package e2e

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var hintsEnd = regexp.MustCompile(`(?m)^Press Ctrl-C to stop\.$`)

// TestSample checks the output of `make run` and each command that it recommends.
func TestSample(t *testing.T) {
	t.Parallel()
	dir := copyOfBooks(t)
	d := startOn(t, dir, recoveryStart, "--sample")
	_, err := d.awaitOutput(d.stdout, hintsEnd, endTime)
	require.NoError(t, err)
	printed := d.stdout.String()
	for _, part := range []string{
		"9 files: 6 accepted, 0 duplicates, 3 refused",
		"BR-CO-15 expected 2166.22, got 2166.32, difference 0.10 EUR",
		"the number is taken by ",
		"ubl.doctype_forbidden: Line 3",
		"posted as sequence ",
		"6 open items",
		"└─ ap.invoice.approved",
		"   └─ gl.journal.posted  SL-2026-00000",
	} {
		require.Contains(t, printed, part)
	}
	postings, items := requireBooksAgree(t, d, "DEMF")
	require.Equal(t, 6, items)
	require.Contains(t, printed, postings.TotalDebit)

	t.Run("README output", func(t *testing.T) { requireReadmeOutput(t, d, printed) })
	t.Run("hints", func(t *testing.T) { runHints(t, d, printed) })
	t.Run("trace", func(t *testing.T) { traceSamples(t, d) })
	t.Run("export", func(t *testing.T) { exportSamples(t, d) })
	t.Run("audit files", func(t *testing.T) { exportAuditFiles(t, d) })
	t.Run("follow", func(t *testing.T) { followSamples(t, d) })
	t.Run("approvers race", func(t *testing.T) { approversRace(t, d) })
	requireBooksAgree(t, d, "DEMF")

	// The next start with --sample leaves the books as they are.
	head, err := d.as(t, "auditor").head("DEMF")
	require.NoError(t, err)
	code, err := d.interrupt()
	require.NoError(t, err)
	require.Zero(t, code)
	d = startOn(t, dir, recoveryStart, "--sample")
	_, err = d.awaitOutput(d.stdout, hintsEnd, endTime)
	require.NoError(t, err)
	require.Contains(t, d.stdout.String(), "already")
	after, err := d.as(t, "auditor").head("DEMF")
	require.NoError(t, err)
	require.Equal(t, head, after)
}

// runHints runs the commands that are printed under "Try next", unchanged.
func runHints(t *testing.T, d *dev, printed string) {
	t.Helper()
	_, hints, found := strings.Cut(printed, "\nTry next")
	require.True(t, found)
	_, hints, _ = strings.Cut(hints, "\n")
	var export string
	ran := 0
	for line := range strings.Lines(hints) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "Press "):
			continue
		case strings.HasPrefix(line, "export "):
			export = line
			continue
		}
		require.NotEmpty(t, export)
		line = strings.Replace(line, "PATH...", repository(t, "test", "samples", "ubl", "01-invoice-two-rates.xml"), 1)
		shell := exec.Command("sh", "-c", export+"\n"+strings.Replace(line, "curl -s ", "curl -sf ", 1))
		shell.Env = cleanEnvironment()
		if strings.HasPrefix(line, "curl ") {
			if _, err := exec.LookPath("curl"); err != nil {
				continue
			}
		}
		out, err := shell.CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, out)
		ran++
	}
	require.GreaterOrEqual(t, ran, 3)
	require.True(t, d.alive())
}

func traceSamples(t *testing.T, d *dev) {
	t.Helper()
	trace := func(args ...string) result {
		return d.as(t, "auditor").command(t, append([]string{"trace"}, args...)...)
	}
	r := trace("--legal-entity", "DEMF", "SL-2026-000001")
	require.Zero(t, r.code, r)
	text := regexp.MustCompile(`(?m)\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z`).ReplaceAllString(r.stdout, "TIME")
	text = regexp.MustCompile(`[0-7][0-9A-HJKMNP-TV-Z]{25}`).ReplaceAllString(text, "ULID")
	text = regexp.MustCompile(`sequence \d+`).ReplaceAllString(text, "sequence N")
	text = regexp.MustCompile(`V-\d{6}`).ReplaceAllString(text, "V-N") // files are sent concurrently
	golden(t, "trace.txt", []byte(text))

	var report struct {
		Lineage []event           `json:"lineage"`
		Intents map[string]object `json:"intents"`
	}
	r = trace("--legal-entity", "DEMF", "--json", "SL-2026-000001")
	require.Zero(t, r.code, r)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	require.GreaterOrEqual(t, len(report.Lineage), 3)
	journal := report.Lineage[len(report.Lineage)-1]
	require.Len(t, report.Intents, 2)

	// The same by the event's id, which names no legal entity, and by the document.
	r = trace(journal.ID)
	require.Zero(t, r.code, r)
	require.Contains(t, r.stdout, "SL-2026-000001")
	r = trace("--legal-entity", "DEMF", report.Lineage[0].Stream.ID)
	require.Zero(t, r.code, r)
	require.Contains(t, r.stdout, report.Lineage[0].Metadata.Source.Reference)

	// Forward from the first cause to the journal, and the whole process.
	r = trace("--effects", report.Lineage[0].ID)
	require.Zero(t, r.code, r)
	require.True(t, strings.HasPrefix(r.stdout, report.Lineage[0].Type), r.stdout)
	require.Contains(t, r.stdout, "└─ "+journal.Type+"  SL-2026-000001")
	require.NotContains(t, r.stdout, "…")
	r = trace("--process", journal.ID)
	require.Zero(t, r.code, r)
	require.Contains(t, r.stdout, journal.Type+"  SL-2026-000001")
	require.Regexp(t, `(?m)^process \S+: \d+ events in \S+ by `, r.stdout)
	require.Regexp(t, `(?m)^about .*invoice `+report.Lineage[0].Stream.ID, r.stdout)

	for args, want := range map[string]string{
		"--legal-entity DEMF SL-2026-900001":                `no event, document or journal "SL-2026-900001"`,
		"SL-2026-000001":                                    "--legal-entity",
		"--token= --legal-entity DEMF x":                    "BACKBONE_TOKEN",
		"--server http://127.0.0.1:1 --legal-entity DEMF x": "cannot be reached",
		"--legal-entity XXXX x":                             `no legal entity "XXXX"`,
	} {
		r := trace(strings.Fields(args)...)
		require.Equal(t, 1, r.code, args)
		require.Contains(t, r.stderr, want, args)
		require.Empty(t, r.stdout)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	}
}

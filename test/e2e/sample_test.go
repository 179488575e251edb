package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
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

	traceFigures(t, d)

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

// traceFigures walks from each figure of the trial balance and the tax summary to its lines, to persons and papers,
// and back from the paper to the figure.
func traceFigures(t *testing.T, d *dev) {
	t.Helper()
	ask := func(out any, path string) {
		t.Helper()
		require.NoError(t, d.as(t, "auditor").want(http.StatusOK, out, http.MethodGet, path, ""))
	}
	type figureRow struct {
		EventID string   `json:"event_id"`
		Chain   []string `json:"chain"`
		Figures []string `json:"figures"`
	}
	type figureTrace struct {
		Rows       []figureRow `json:"rows"`
		Events     []event     `json:"events"`
		Intents    []object    `json:"intents"`
		NextCursor string      `json:"next_cursor"`
		Truncated  bool        `json:"truncated"`
	}
	var balance struct {
		Accounts []struct {
			Account string `json:"account"`
		} `json:"accounts"`
	}
	ask(&balance, "/api/gl/trial-balance?legal_entity=DEMF")
	require.NotEmpty(t, balance.Accounts)
	var tax struct {
		Rows []struct {
			TaxGroup string `json:"tax_group"`
		} `json:"rows"`
	}
	ask(&tax, "/api/ap/tax-summary?legal_entity=DEMF")
	require.NotEmpty(t, tax.Rows)
	var figures []string
	for _, a := range balance.Accounts {
		figures = append(figures, "gl:account:"+a.Account)
	}
	for _, r := range tax.Rows {
		figures = append(figures, "ap:tax:"+r.TaxGroup)
	}
	lines, papers := 0, map[string]bool{}
	for _, figure := range figures {
		for cursor := ""; ; {
			var page figureTrace
			ask(&page, "/api/trace/"+url.PathEscape(figure)+"?legal_entity=DEMF&limit=7&cursor="+cursor)
			require.False(t, page.Truncated)
			events, intents := map[string]event{}, map[string]object{}
			for _, e := range page.Events {
				events[e.ID] = e
			}
			for _, in := range page.Intents {
				intents[in["intent_id"].(string)] = in
			}
			for _, r := range page.Rows {
				lines++
				require.NotEmpty(t, r.Chain)
				require.Equal(t, r.EventID, r.Chain[len(r.Chain)-1])
				require.Contains(t, r.Figures, figure)
				root := events[r.Chain[0]]
				require.NotEmpty(t, root.Metadata.Source.Channel, "the paper, or where it came from")
				for _, id := range r.Chain {
					require.Contains(t, events, id)
					require.Contains(t, intents, events[id].IntentID)
					require.NotEmpty(t, intents[events[id].IntentID]["actor"])
				}
				papers[root.ID+" "+figure] = true
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
	}
	require.Greater(t, lines, 10)
	for way := range papers {
		paper, figure, _ := strings.Cut(way, " ")
		var back figureTrace
		ask(&back, "/api/trace/"+paper+"?legal_entity=DEMF")
		require.True(t, slices.ContainsFunc(back.Rows, func(r figureRow) bool { return slices.Contains(r.Figures, figure) }), "from %s back to %s", paper, figure)
	}
	r := d.as(t, "auditor").command(t, "trace", "--legal-entity", "DEMF", "gl:journal:SL-2026-000001")
	require.Zero(t, r.code, r)
	require.Contains(t, r.stdout, "└─ ap.invoice.approved")
	require.Contains(t, r.stdout, "behind ap:tax:S/19, ap:tax:S/7, gl:account:6000")

	var problem object
	require.NoError(t, d.as(t, "auditor").want(http.StatusNotFound, &problem, http.MethodGet, "/api/trace/gl:nothing:1?legal_entity=DEMF", ""))
	require.Equal(t, "trace.figure_unknown", problem["code"])
}

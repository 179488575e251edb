package cli

import (
	"encoding/csv"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules"
)

// runReadModel carries out a command line against a server that answers with the pages, in
// order, and returns what was printed and what was asked.
func runReadModel(t *testing.T, line string, pages ...string) (printed string, asked []string, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := pages[len(asked)]
		asked = append(asked, r.URL.String())
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, page)
	}))
	defer server.Close()
	var out strings.Builder
	root := newRoot(modules.BuiltIn())
	root.SetArgs(append(strings.Fields(line), "--server", server.URL, "--token", "t", "--legal-entity", "DEMF"))
	root.SetOut(&out)
	root.SetErr(io.Discard)
	err = root.ExecuteContext(t.Context())
	return out.String(), asked, err
}

var trialBalancePages = []string{
	`{"legal_entity":"DEMF","currency":"EUR","as_of":"2026-03-31","known_at":"seq:9","accounts":[{"account":"1000","name":"Bank","debit":"0.00","credit":"12.50","balance":"-12.50"}],` +
		`"total_debit":"12.50","total_credit":"12.50","has_more":true,"next_cursor":"C1"}`,
	`{"legal_entity":"DEMF","currency":"EUR","as_of":"2026-03-31","known_at":"seq:9","accounts":[{"account":"6000","name":"=Services\u001b[2J","debit":"12.50","credit":"0.00","balance":"12.50"}],` +
		`"total_debit":"12.50","total_credit":"12.50"}`,
}

func TestReadModelCommand(t *testing.T) {
	t.Parallel()
	out, asked, err := runReadModel(t, "gl trial-balance --as-of 2026-03-31 --known-at seq:9", trialBalancePages...)
	require.NoError(t, err)
	require.Equal(t, []string{
		"/api/gl/trial-balance?as_of=2026-03-31&known_at=seq%3A9&legal_entity=DEMF&limit=1000",
		"/api/gl/trial-balance?as_of=2026-03-31&cursor=C1&known_at=seq%3A9&legal_entity=DEMF&limit=1000",
	}, asked)
	require.Contains(t, out, "legal_entity DEMF, currency EUR, as_of 2026-03-31, known_at seq:9\n")
	require.Contains(t, out, "=Services?[2J")
	require.Contains(t, out, "-12.50\n")
	require.Contains(t, out, "\ntotal_debit 12.50, total_credit 12.50\n")
}

func TestReadModelCommand_Lists(t *testing.T) {
	t.Parallel()
	out, _, err := runReadModel(t, "ap aging", `{"header":{"as_of":"2026-03-31","buckets":[30,60],"tags":[]},`+
		`"rows":[{"vendor_id":["a","b\u0007"],"currency":{"department":"OPS","none":"","deep":{"state":"none","list":[]}}}],`+
		`"totals":[{"currency":"EUR","total":"7.00"},{"currency":"USD","total":"-12.50","note":"late"}],"empty":[]}`)
	require.NoError(t, err)
	lines := strings.Split(out, "\n")
	require.Equal(t, "as_of 2026-03-31, buckets 30, 60", lines[0])
	require.Regexp(t, `^a, b\?      department=OPS, deep=\{state=none\}$`, lines[2])
	require.Equal(t, []string{
		"", "totals",
		"CURRENCY   TOTAL  NOTE",
		"EUR         7.00",
		"USD       -12.50  late",
		"",
	}, lines[3:])
}

func TestReadModelCommand_JSON(t *testing.T) {
	t.Parallel()
	out, _, err := runReadModel(t, "gl trial-balance --json", trialBalancePages...)
	require.NoError(t, err)
	require.NotContains(t, out, "next_cursor")
	require.Less(t, strings.Index(out, `"known_at"`), strings.Index(out, `"accounts"`), "in the server's order")
	require.Less(t, strings.Index(out, `"6000"`), strings.Index(out, `"total_debit"`))
}

func TestReadModelCommand_CSV(t *testing.T) {
	t.Parallel()
	out, _, err := runReadModel(t, "gl trial-balance --csv", trialBalancePages...)
	require.NoError(t, err)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 3)
	require.Equal(t, "account", rows[0][0])
	require.Equal(t, "6000", rows[2][0])
	require.Equal(t, "'=Services\x1b[2J", rows[2][1])
}

func TestReadModelCommand_Arguments(t *testing.T) {
	t.Parallel()
	empty := `{"header":{},"rows":[],"has_more":true,"next_cursor":"more"}`
	_, asked, err := runReadModel(t, "gl account 20/00 --from 2026-03-01 --limit 5", strings.Replace(empty, "[]", "[{},{},{},{},{}]", 1))
	require.NoError(t, err)
	require.Equal(t, []string{"/api/gl/accounts/20%2F00/ledger?from=2026-03-01&legal_entity=DEMF&limit=5"}, asked, "no further page")
	_, asked, err = runReadModel(t, "ap open-items --held --due-before 2026-04-01", `{"header":{},"rows":[],"has_more":false}`)
	require.NoError(t, err)
	require.Equal(t, []string{"/api/ap/open-items?due_before=2026-04-01&held=true&legal_entity=DEMF&limit=1000"}, asked)
	for _, line := range []string{"gl account", "gl trial-balance 1", "gl trial-balance --json --csv", "gl trial-balance --nothing 1"} {
		_, _, err := runReadModel(t, line)
		require.Error(t, err, line)
	}
	root := newRoot(modules.BuiltIn())
	require.NotNil(t, subcommand(subcommand(root, "ap"), "import"), "beside the module's own commands")
}

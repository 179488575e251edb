package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules/ap/adapters/cli"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func document(t *testing.T, q submission) contract.Submission {
	t.Helper()
	var d contract.Submission
	if err := json.Unmarshal(q.Payload, &d); err != nil {
		t.Errorf("payload: %v", err)
	}
	return d
}

// run executes the command against s and gives what it wrote to standard output.
func run(t *testing.T, s cli.API, args ...string) (string, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := cli.ImportCommand(func(server, token string) (cli.API, error) {
		require.Equal(t, "http://127.0.0.1:9", server)
		require.Equal(t, "bbk_test", token)
		return s, nil
	})
	cmd.SilenceErrors = true
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(append([]string{}, args...)) // nil would take the test's own
	err := cmd.ExecuteContext(context.Background())
	require.Empty(t, stderr.String())
	return stdout.String(), err
}

var connection = []string{"--server", "http://127.0.0.1:9", "--token", "bbk_test", "--legal-entity", "DEMF"}

// golden compares with a file of testdata, found before the test changes folder.
func golden(t *testing.T, name string) func(got string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	require.NoError(t, err)
	return func(got string) {
		t.Helper()
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), got)
	}
}

// The samples with everything that a report can show: holds, warnings, a duplicate.
func goldenFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(sampleFolder(t))))
	text, err := os.ReadFile(filepath.Join(dir, "01-invoice-two-rates.xml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "07-copy.xml"), text, 0o600))
	writeInvoice(t, dir, "08-held.xml", sampleNumber, number("NBA-2026-2000"),
		"<cac:TaxTotal>", "<cac:PayeeParty><cac:PartyName><cbc:Name>Factor</cbc:Name></cac:PartyName></cac:PayeeParty><cac:TaxTotal>",
		">20.58<", ">20.60<", ">316.22<", ">316.24<", ">2166.22<", ">2166.24<")
	return dir
}

func TestGoldenTable(t *testing.T) {
	check := golden(t, "report.txt")
	t.Chdir(goldenFolder(t))
	out, err := run(t, newServer(), append(connection, "--parallel", "1", ".")...)
	require.Equal(t, 1, exitCode(t, err))
	require.Equal(t, "3 of 11 files refused; the report says why", err.Error())
	check(out)
}

func TestGoldenJSON(t *testing.T) {
	check := golden(t, "report.json")
	t.Chdir(goldenFolder(t))
	out, err := run(t, newServer(), append(connection, "--json", "--parallel", "1", ".")...)
	require.Equal(t, 1, exitCode(t, err))
	require.True(t, json.Valid([]byte(out)))
	check(out)
}

func TestImportCommand_BadUsage(t *testing.T) {
	for _, variable := range []string{cli.EnvServer, cli.EnvToken, cli.EnvLegalEntity} {
		t.Setenv(variable, "")
	}
	s, empty := newServer(), t.TempDir()
	for _, c := range []struct {
		args []string
		text string
	}{
		{nil, "name at least one file or folder"},
		{[]string{"--nonsense"}, "unknown flag"},
		{[]string{empty}, cli.EnvServer},
		{[]string{"--server", "http://127.0.0.1:9", empty}, cli.EnvToken},
		{append(connection[:4:4], empty), "--legal-entity"},
		{append(connection, empty), "no *.xml or *.pdf file"},
		{append(connection, filepath.Join(empty, "x")), "no such file"},
		{append(connection, "--posting-date", "31.03.2026", empty), "2026-03-31"},
		{append(connection, "--parallel", "0", empty), "--parallel"},
		{append(connection, "--parallel", "x", empty), "--parallel"},
	} {
		out, err := run(t, s, c.args...)
		require.Equal(t, 2, exitCode(t, err), c.args)
		require.ErrorContains(t, err, c.text)
		require.Empty(t, out)
	}
	require.Empty(t, s.received)
}

func TestImportCommand_Environment(t *testing.T) {
	t.Setenv(cli.EnvServer, "http://127.0.0.1:9")
	t.Setenv(cli.EnvToken, "bbk_test\n")
	t.Setenv(cli.EnvLegalEntity, "DEMF")
	s := newServer()
	path := writeInvoice(t, t.TempDir(), "a.xml")
	out, err := run(t, s, path, "--posting-date", "2026-04-01")
	require.NoError(t, err)
	require.Contains(t, out, "1 file: 1 accepted, 0 duplicates, 0 refused\n1 vendor registered\n")
	require.Equal(t, "2026-04-01", s.received[1].EffectiveDate)
	require.True(t, strings.HasPrefix(s.received[1].IdempotencyKey, "DEMF|"))
	require.Equal(t, s.received[1].Source.Reference, strings.TrimPrefix(s.received[1].IdempotencyKey, "DEMF|"))
}

// TestWriteTable_ControlCharacters checks that texts of a sender cannot control the terminal.
func TestWriteTable_ControlCharacters(t *testing.T) {
	t.Parallel()
	path := writeInvoice(t, t.TempDir(), "a\x1b[2J\n.xml", sampleNumber, number("A\u202e\u0085B"))
	out, err := run(t, newServer(), append(connection, path)...)
	require.NoError(t, err)
	require.NotContains(t, out, "\x1b")
	require.NotContains(t, out, "\u202e")
	require.Contains(t, out, "a?[2J?.xml")
}

func TestImportCommand_Help(t *testing.T) {
	t.Parallel()
	out, err := run(t, nil, "--help")
	require.NoError(t, err)
	for _, part := range []string{"backbone ap import --legal-entity DEMF", "Exit code: 0 nothing refused", "--posting-date", "BACKBONE_TOKEN"} {
		require.Contains(t, out, part)
	}
}

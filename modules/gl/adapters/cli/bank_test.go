package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/adapters/bankfile"
	"github.com/erpbackbone/backbone/modules/gl/adapters/cli"
	"github.com/erpbackbone/backbone/test/samples"
)

// bankServer answers like a server. It answers a repeated key as the
// first time.
type bankServer struct {
	sent     []client.IntentRequest
	keys     map[string]client.IntentOutcome
	refuse   map[string]error // by statement id
	imported map[string]bool  // by payload; false: it was discarded
	proposed []map[string]any
	queries  []url.Values
}

func (s *bankServer) SubmitIntent(_ context.Context, p client.SubmitIntentParams, i client.IntentRequest, options ...client.Option) (client.IntentOutcome, error) {
	var call client.Call
	for _, o := range options {
		o(&call)
	}
	if out, known := s.keys[p.IdempotencyKey]; known {
		if call.Replayed != nil {
			*call.Replayed = true
		}
		return out, nil
	}
	var payload struct {
		StatementID string `json:"statement_id"`
		Part        int    `json:"part"`
	}
	if err := json.Unmarshal(i.Payload, &payload); err != nil {
		return client.IntentOutcome{}, err
	}
	s.sent = append(s.sent, i)
	if err := s.refuse[payload.StatementID]; err != nil {
		return client.IntentOutcome{}, err
	}
	if s.imported[string(i.Payload)] {
		return client.IntentOutcome{}, fault.New(fault.Conflict, "gl.bank_statement.duplicate", "it exists").With("same_content", true)
	}
	s.imported[string(i.Payload)] = true
	out := client.IntentOutcome{IntentID: "I-1", Events: []client.IntentEvent{{ID: fmt.Sprintf("E-%d", len(s.sent)), Type: "gl.bank_statement.imported"}}}
	s.keys[p.IdempotencyKey] = out
	return out, nil
}

func (s *bankServer) ReadModel(_ context.Context, path string, query url.Values, out any, _ ...client.Option) error {
	if path != "gl/bank-reconciliation" {
		return fault.New(fault.NotFound, "report.not_found", "no such report")
	}
	copied := url.Values{}
	for k, v := range query {
		copied[k] = v
	}
	s.queries = append(s.queries, copied)
	page := map[string]any{"header": map[string]string{"currency": "EUR", "sequence": "77"}, "rows": s.proposed[:1], "next_cursor": "1"}
	if query.Get("cursor") != "" {
		page["rows"], page["next_cursor"] = s.proposed[1:], ""
	}
	text, err := json.Marshal(page)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

func newBankServer() *bankServer {
	return &bankServer{keys: map[string]client.IntentOutcome{}, refuse: map[string]error{}, imported: map[string]bool{}}
}

func camtFiles(t *testing.T) (folder string, files []string) {
	t.Helper()
	folder = t.TempDir()
	for _, name := range []string{"01-statement-v02.xml", "02-batch-v08.xml"} {
		text, err := samples.Camt.ReadFile("camt/" + name)
		require.NoError(t, err)
		files = append(files, filepath.Join(folder, name))
		require.NoError(t, os.WriteFile(files[len(files)-1], text, 0o600))
	}
	return folder, files
}

func TestImportStatements(t *testing.T) {
	t.Parallel()
	folder, files := camtFiles(t)
	broken := filepath.Join(folder, "broken.xml")
	require.NoError(t, os.WriteFile(broken, []byte("<!DOCTYPE x><x/>"), 0o600))
	server := newBankServer()
	report := cli.ImportStatements(t.Context(), server, "DEMF", append(files, broken, filepath.Join(folder, "missing.xml")), bankfile.Options{Account: "1010"})
	var got []string
	for _, s := range report.Statements {
		got = append(got, strings.TrimSpace(filepath.Base(s.File)+" "+s.Status+" "+s.Code))
	}
	require.Equal(t, []string{
		"01-statement-v02.xml accepted", "02-batch-v08.xml accepted", "broken.xml refused bank_file.doctype_forbidden", "missing.xml failed import.file_unreadable",
	}, got)
	require.Equal(t, map[string]int{"accepted": 2, "refused": 1, "failed": 1}, report.Totals)
	require.Equal(t, 2, exitCode(report.Err()))
	require.Equal(t, "2026-03-31/42", report.Statements[0].StatementID)
	require.Equal(t, "1148.50", report.Statements[0].Closing)
	require.Len(t, server.sent, 2)
	require.Equal(t, "gl.import_bank_statement", server.sent[0].Type)
	require.Equal(t, report.Statements[0].SHA256, server.sent[0].Source.Reference)
	require.NotContains(t, string(server.sent[0].Payload), "DE89370400440532013000")
	require.NotContains(t, string(server.sent[0].Payload), "Anna")

	again := cli.ImportStatements(t.Context(), server, "DEMF", files, bankfile.Options{Account: "1010"})
	require.Equal(t, map[string]int{"duplicate": 2}, again.Totals)
	require.NoError(t, again.Err())

	server.imported[string(server.sent[0].Payload)] = false
	again = cli.ImportStatements(t.Context(), server, "DEMF", files, bankfile.Options{Account: "1010"})
	require.Equal(t, map[string]int{"accepted": 1, "duplicate": 1}, again.Totals, "the first statement was discarded")
	again = cli.ImportStatements(t.Context(), server, "DEMF", files, bankfile.Options{Account: "1010"})
	require.Equal(t, map[string]int{"duplicate": 2}, again.Totals)
}

// The command prints the event of a discard, or the intent that waits for a second person.
func TestDiscardStatement(t *testing.T) {
	t.Parallel()
	answer, status := `{"intent_id": "I-1", "status": "executed", "events": [{"id": "E-1", "type": "gl.bank_statement.discarded"}], "rules": []}`, http.StatusOK
	var sent client.IntentRequest
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&sent)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(api.Close)
	run := func() (string, error) {
		cmd := cli.Command()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SilenceErrors = true
		cmd.SetArgs([]string{"discard-statement", "--server", api.URL, "--token", "t", "--legal-entity", "DEMF", "--account", "1010", "--part", "2", "--reason", "Wrong file", "2026-03-31/42"})
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := run()
	require.NoError(t, err)
	require.Equal(t, "discarded by event E-1\n", out)
	require.Equal(t, "gl.discard_bank_statement", sent.Type)
	require.JSONEq(t, `{"account": "1010", "statement_id": "2026-03-31/42", "part": 2, "reason": "Wrong file"}`, string(sent.Payload))

	answer, status = `{"intent_id": "I-2", "status": "pending_approval", "events": [], "rules": []}`, http.StatusAccepted
	out, err = run()
	require.NoError(t, err)
	require.Equal(t, "waits for approval: backbone intents approve I-2\n", out)

	answer, status = `{"code": "gl.bank_statement.has_matches", "detail": "2 lines are matched"}`, http.StatusUnprocessableEntity
	_, err = run()
	require.Equal(t, 1, exitCode(err))
	require.ErrorContains(t, err, "gl.bank_statement.has_matches 2 lines are matched")
}

func TestImportStatements_Answers(t *testing.T) {
	t.Parallel()
	_, files := camtFiles(t)
	duplicate := fault.New(fault.Conflict, "gl.bank_statement.duplicate", "it exists").WithHolder(fault.Holder{EventID: "E-9"})
	for name, c := range map[string]struct {
		answer error
		status string
		exit   int
	}{
		"the same statement":      {duplicate.With("same_content", true), "duplicate", 0},
		"another one with its id": {duplicate.With("same_content", false), "refused", 1},
		"refused":                 {fault.New(fault.Invalid, "gl.bank_statement.unbalanced", "it does not add up"), "refused", 1},
		"forbidden":               {fault.New(fault.Forbidden, "intent.forbidden", "for other roles"), "refused", 1},
		"unavailable":             {fault.New(fault.Unavailable, "store.unavailable", "later"), "failed", 2},
		"no answer":               {context.DeadlineExceeded, "failed", 2},
	} {
		server := newBankServer()
		server.refuse["2026-03-31/42"] = c.answer
		report := cli.ImportStatements(t.Context(), server, "DEMF", files[:1], bankfile.Options{Account: "1010"})
		require.Equal(t, c.status, report.Statements[0].Status, name)
		require.Equal(t, c.exit, exitCode(report.Err()), name)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	report := cli.ImportStatements(ended, newBankServer(), "DEMF", files, bankfile.Options{Account: "1010"})
	require.Equal(t, map[string]int{"failed": 2}, report.Totals)
}

func TestMatch(t *testing.T) {
	t.Parallel()
	row := func(statement string, line int, journal string) map[string]any {
		return map[string]any{"amount": "-1.00", "statement_id": statement, "part": 1, "line_number": line, "proposed_journal_id": journal, "proposed_line": 2}
	}
	server := newBankServer()
	server.proposed = []map[string]any{row("S-1", 1, "J-1"), row("S-2", 1, "J-2"), row("S-1", 2, "")}
	server.refuse["S-2"] = fault.New(fault.Conflict, "gl.bank_line.already_matched", "another match has the line")
	report, err := cli.Match(t.Context(), server, "DEMF", "1010")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"matched": 1, "refused": 1}, report.Totals)
	require.Equal(t, 1, report.Unmatched)
	require.JSONEq(t, `{"account": "1010", "statement_id": "S-1", "part": 1, "line_number": 1, "journal_lines": [{"journal_id": "J-1", "line_number": 2}]}`, string(server.sent[0].Payload))
	require.Len(t, server.queries, 2)
	require.Equal(t, "seq:77", server.queries[1].Get("known_at"), "all pages are of one sequence")
}

// The commands report as a table and as JSON, and end with their exit codes.
func TestBankCommands(t *testing.T) {
	t.Parallel()
	_, files := camtFiles(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"header": {"currency": "EUR", "sequence": "7"}, "rows": [], "has_more": false}`))
			return
		}
		_, _ = w.Write([]byte(`{"intent_id": "I-1", "status": "executed", "events": [{"id": "E-1", "type": "gl.bank_statement.imported"}], "rules": []}`))
	}))
	t.Cleanup(api.Close)
	run := func(args ...string) (string, int) {
		cmd := cli.Command()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SilenceErrors = true
		cmd.SetArgs(append(args, "--server", api.URL, "--token", "t", "--legal-entity", "DEMF"))
		code := exitCode(cmd.ExecuteContext(t.Context()))
		return out.String(), code
	}
	out, code := run("import-statement", "--account", "1010", files[0])
	require.Zero(t, code)
	require.Contains(t, out, "accepted  2026-03-31/42  2      1000.00  1148.50  -")
	out, code = run("import-statement", "--account", "1010", "--json", files[0])
	require.Zero(t, code)
	require.True(t, json.Valid([]byte(out)))
	_, code = run("import-statement", "--account", "1010", filepath.Join(t.TempDir(), "missing.xml"))
	require.Equal(t, 2, code)
	_, code = run("import-statement", "--account", "1010", "--csv", filepath.Join(t.TempDir(), "missing.json"), files[0])
	require.Equal(t, 2, code)
	out, code = run("match", "1010")
	require.Zero(t, code)
	require.Contains(t, out, "0 matched in EUR, 0 lines of both sides have no proposal")
}

// exitCode is that of a command which ended with an error.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if coded, ok := err.(interface{ ExitCode() int }); ok {
		return coded.ExitCode()
	}
	return -1
}

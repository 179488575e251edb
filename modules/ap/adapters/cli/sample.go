package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/fault"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/test/samples"
)

// Sample takes the sample documents through submit, approve, post and trace, over the
// HTTP API as a customer would.
func Sample(ctx context.Context, s plugin.Session) error {
	r := sampleRun{s}
	folder := filepath.Join(s.DataDir, "samples")
	if err := writeSamples(folder); err != nil {
		return err
	}
	r.printf("\n1. Submit: the importer reads UBL documents from %s", folder)
	files, err := FindFiles([]string{folder})
	if err != nil {
		return err
	}
	report := Import(ctx, r.client("importer"), files, Options{LegalEntity: s.LegalEntity})
	if err := report.WriteTable(s.Out); err != nil {
		return err
	}
	r.printf("\n2. Approve and post: three roles with rising limits")
	var journal string
	for _, f := range report.Files {
		if f.Status != StatusAccepted {
			continue
		}
		posted, err := r.approve(ctx, string(f.Kind), f.DocumentID)
		if err != nil {
			r.printf("   %s %s waits: %s", f.Kind, f.DocumentID, err.Error())
			continue
		}
		if posted != "" {
			journal = posted
		}
	}
	r.printf("\n3. The books of %s", s.LegalEntity)
	if err := r.printBooks(ctx); err != nil {
		return err
	}
	r.printf("\n4. Trace the last journal back to its paper")
	return s.Trace(ctx, journal)
}

// Hints lists commands to try next on accounts payable and its journals.
func Hints(s plugin.Session) []string {
	hints := []string{
		fmt.Sprintf("%s ap import --token %s --legal-entity %s PATH...", s.Program, s.Tokens["importer"], s.LegalEntity),
		fmt.Sprintf("curl -s -H \"Authorization: Bearer $BACKBONE_TOKEN\" \"$BACKBONE_SERVER/api/gl/trial-balance?legal_entity=%s\"", s.LegalEntity),
		fmt.Sprintf("curl -s -H \"Authorization: Bearer $BACKBONE_TOKEN\" \"$BACKBONE_SERVER/api/ap/open-items?legal_entity=%s\"", s.LegalEntity),
	}
	if s.SampleDone {
		hints = append(hints, fmt.Sprintf("%s trace --legal-entity %s SL-2026-000001", s.Program, s.LegalEntity))
	}
	return hints
}

// sampleRun is one run of the sample.
type sampleRun struct{ plugin.Session }

func (r sampleRun) printf(format string, args ...any) { fmt.Fprintf(r.Out, format+"\n", args...) }

func (r sampleRun) client(role string) *client.Client {
	c, err := client.New(client.Config{Server: r.Server, Token: r.Tokens[role]})
	if err != nil {
		panic(err) // the session's own server has a valid address
	}
	return c
}

func writeSamples(folder string) error {
	return fs.WalkDir(samples.UBL, "ubl", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(folder, strings.TrimPrefix(path, "ubl"))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		content, err := samples.UBL.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644) //nolint:gosec // fictional documents, readable by all
	})
}

// approve has the role with the smallest sufficient limit approve a document. It returns
// the id of the journal's event.
func (r sampleRun) approve(ctx context.Context, kind, id string) (string, error) {
	payload, err := json.Marshal(map[string]string{kind + "_id": id})
	if err != nil {
		return "", err
	}
	var last error
	for _, role := range []string{"approver", "controller", "cfo"} {
		out, err := r.client(role).SubmitIntent(ctx, client.SubmitIntentParams{IdempotencyKey: "sample-approve-" + role + "-" + id}, client.IntentRequest{
			Type: "ap.approve_" + kind, LegalEntity: r.LegalEntity, Payload: payload,
		})
		if fault.CodeOf(err) == "ap.approval.over_limit" {
			last = err
			continue
		}
		if err != nil {
			return "", err
		}
		for _, e := range out.Events {
			if e.Type == gl.EventJournalPosted {
				r.printf("   %s %s approved by %s, posted as sequence %s", kind, id, role, e.Sequence)
				return e.ID, nil
			}
		}
		last = nil // the first approval of two; the next role gives the second
	}
	return "", last
}

// printBooks prints the trial balance and the number of open items.
func (r sampleRun) printBooks(ctx context.Context) error {
	auditor := r.client("auditor")
	var document json.RawMessage
	if _, err := auditor.ReadGlTrialBalance(ctx, client.ReadGlTrialBalanceParams{LegalEntity: r.LegalEntity}, client.Document(&document)); err != nil {
		return err
	}
	var balance struct {
		Currency string `json:"currency"`
		Accounts []struct {
			Account, Name, Debit, Credit string
		} `json:"accounts"`
		TotalDebit  string `json:"total_debit"`
		TotalCredit string `json:"total_credit"`
	}
	if err := json.Unmarshal(document, &balance); err != nil {
		return err
	}
	r.printf("   %-8s %-28s %14s %14s", "account", "name ("+balance.Currency+")", "debit", "credit")
	for _, a := range balance.Accounts {
		r.printf("   %-8s %-28s %14s %14s", a.Account, a.Name, a.Debit, a.Credit)
	}
	r.printf("   %-8s %-28s %14s %14s", "", "total", balance.TotalDebit, balance.TotalCredit)
	items, err := auditor.ReadApOpenItems(ctx, client.ReadApOpenItemsParams{LegalEntity: r.LegalEntity})
	if err != nil {
		return err
	}
	r.printf("   %d open items", len(items.Rows))
	return nil
}

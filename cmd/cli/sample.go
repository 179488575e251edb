package cli

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	apiclient "github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/cli"
	"github.com/erpbackbone/backbone/test/samples"
)

// sampleEntity is the legal entity whose books take the samples.
const sampleEntity = "DEMF"

// runSample takes the sample documents through submit, approve, post and trace, over
// the HTTP API as a customer would. Books that have seen them keep them.
func runSample(ctx context.Context, o DevOptions, dir string, state *devState, file DevFile, say func(string, ...any)) error {
	if state.SampleDone {
		say("\nThe sample documents are in the books of %s already.", sampleEntity)
		return nil
	}
	folder := filepath.Join(dir, "samples")
	if err := writeSamples(folder); err != nil {
		return err
	}
	client := func(role string) *httpclient.Client {
		c, err := httpclient.New(httpclient.Config{Server: file.HTTP, Token: file.Tokens[role]})
		if err != nil {
			panic(err) // the address is our own
		}
		return c
	}
	say("\n1. Submit: the importer reads UBL documents from %s", folder)
	files, err := cli.FindFiles([]string{folder})
	if err != nil {
		return err
	}
	importer, err := apiclient.New(apiclient.Config{Server: file.HTTP, Token: file.Tokens["importer"]})
	if err != nil {
		return err
	}
	report := cli.Import(ctx, importer, files, cli.Options{LegalEntity: sampleEntity})
	if err := report.WriteTable(o.Out); err != nil {
		return err
	}
	say("\n2. Approve and post: three roles with rising limits")
	var journal string
	for _, f := range report.Files {
		if f.Status != cli.StatusAccepted {
			continue
		}
		posted, err := approveDocument(ctx, client, string(f.Kind), f.DocumentID, say)
		if err != nil {
			say("   %s %s waits: %s", f.Kind, f.DocumentID, err.Error())
			continue
		}
		if posted != "" {
			journal = posted
		}
	}
	say("\n3. The books of %s", sampleEntity)
	if err := printBooks(ctx, client("auditor"), say); err != nil {
		return err
	}
	say("\n4. Trace the last journal back to its paper")
	if err := traceBack(ctx, client("auditor"), TraceOptions{LegalEntity: sampleEntity, ID: journal, Out: o.Out}); err != nil {
		return err
	}
	state.SampleDone = true
	return writeJSON(filepath.Join(dir, devStateName), state)
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
		return os.WriteFile(target, content, 0o644) //nolint:gosec // fictional papers for everybody to read
	})
}

// approveDocument lets the persona with the smallest sufficient limit approve. It
// returns the id of the journal's event.
func approveDocument(ctx context.Context, client func(string) *httpclient.Client, kind, id string, say func(string, ...any)) (string, error) {
	var last error
	for _, role := range []string{"approver", "controller", "cfo"} {
		out, err := client(role).SubmitIntent(ctx, httpclient.Intent{
			Type: "ap.approve_" + kind, LegalEntity: sampleEntity, Payload: map[string]string{kind + "_id": id},
		}, "sample-approve-"+role+"-"+id)
		if fault.CodeOf(err) == "ap.approval.over_limit" {
			last = err
			continue
		}
		if err != nil {
			return "", err
		}
		for _, e := range out.Events {
			if e.Type == "gl.journal.posted" {
				say("   %s %s approved by %s, posted as sequence %s", kind, id, role, e.Sequence)
				return e.ID, nil
			}
		}
		last = nil // one approval of two; the next role gives the other
	}
	return "", last
}

// printBooks shows the trial balance and that open items equal the control
// account.
func printBooks(ctx context.Context, client *httpclient.Client, say func(string, ...any)) error {
	var balance struct {
		Currency string `json:"currency"`
		Accounts []struct {
			Account, Name, Debit, Credit, Balance string
		} `json:"accounts"`
		TotalDebit  string `json:"total_debit"`
		TotalCredit string `json:"total_credit"`
	}
	if err := client.ReadModel(ctx, "gl/trial-balance", url.Values{"legal_entity": {sampleEntity}}, &balance); err != nil {
		return err
	}
	say("   %-8s %-28s %14s %14s", "account", "name ("+balance.Currency+")", "debit", "credit")
	for _, a := range balance.Accounts {
		say("   %-8s %-28s %14s %14s", a.Account, a.Name, a.Debit, a.Credit)
	}
	say("   %-8s %-28s %14s %14s", "", "total", balance.TotalDebit, balance.TotalCredit)
	var items struct {
		Rows []json.RawMessage `json:"rows"`
	}
	if err := client.ReadModel(ctx, "ap/open-items", url.Values{"legal_entity": {sampleEntity}}, &items); err != nil {
		return err
	}
	say("   %d open items", len(items.Rows))
	return nil
}

// printDevHints gives commands to try next, such as the state of the books allows.
func printDevHints(say func(string, ...any), dir string, state *devState, file DevFile) {
	program := os.Args[0]
	say("\nTry next, in another terminal (%s has a token for every role; these are the auditor's and the importer's):", filepath.Join(dir, devFileName))
	say("  export BACKBONE_SERVER=%s BACKBONE_TOKEN=%s", file.HTTP, file.Tokens["auditor"])
	say("  %s ap import --token %s --legal-entity %s PATH...", program, file.Tokens["importer"], sampleEntity)
	say("  curl -s -H \"Authorization: Bearer $BACKBONE_TOKEN\" \"$BACKBONE_SERVER/api/gl/trial-balance?legal_entity=DEMF\"")
	say("  curl -s -H \"Authorization: Bearer $BACKBONE_TOKEN\" \"$BACKBONE_SERVER/api/ap/open-items?legal_entity=DEMF\"")
	if state.SampleDone {
		say("  %s trace --legal-entity %s SL-2026-000001", program, sampleEntity)
	} else {
		say("  %s dev --sample --data-dir %s      (after Ctrl-C here: the sample invoices)", program, dir)
	}
	say("  %s verify --data-dir %s", program, dir)
	say("Press Ctrl-C to stop.")
}

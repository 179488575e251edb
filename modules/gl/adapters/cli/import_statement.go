package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/adapters/bankfile"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// BankAPI is what imports and matching call of a server; *client.Client implements it.
type BankAPI interface {
	ReadModel(ctx context.Context, path string, query url.Values, out any, options ...client.Option) error
	SubmitIntent(ctx context.Context, params client.SubmitIntentParams, intent client.IntentRequest, options ...client.Option) (client.IntentOutcome, error)
}

// The statuses of a statement or a match.
const (
	StatusAccepted  = "accepted"
	StatusDuplicate = "duplicate" // the ledger has the same statement
	StatusRefused   = "refused"
	StatusFailed    = "failed" // there is no usable answer; run again
	StatusMatched   = "matched"
)

// StatementResult is the outcome of a statement, or of a part of one.
type StatementResult struct {
	File        string            `json:"file"`
	Status      string            `json:"status"`
	Code        string            `json:"code"`
	StatementID string            `json:"statement_id,omitempty"`
	Part        int               `json:"part,omitempty"`
	Parts       int               `json:"parts,omitempty"`
	Lines       int               `json:"lines"`
	Currency    string            `json:"currency,omitempty"`
	Opening     string            `json:"opening_balance,omitempty"`
	Closing     string            `json:"closing_balance,omitempty"`
	SHA256      string            `json:"sha256,omitempty"`
	IntentID    string            `json:"intent_id,omitempty"`
	EventID     string            `json:"event_id,omitempty"` // of the statement in the ledger
	Detail      string            `json:"detail,omitempty"`
	Violations  []fault.Violation `json:"violations"`
}

// StatementReport is the outcome of an import.
type StatementReport struct {
	Statements []StatementResult `json:"statements"`
	Totals     map[string]int    `json:"totals"` // by status
}

type importFlags struct {
	connection
	options bankfile.Options
	mapping string
	json    bool
}

func importStatementCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import-statement [flags] FILE...",
		Short: "Import bank statements (camt.053, CSV)",
		Long: `Read bank statements and import each into the reconciliation of a bank account. A file is
camt.053 in version 02 to 08, or CSV with a mapping of its columns (--csv). Statements
of more than 1,000 lines are imported in parts.

Names and account numbers of counterparties stay in the file. Remittance texts do too,
unless --texts asks for them: they are kept in clear, so use it only for accounts whose
texts name no persons. Texts and references with an account or card number are left out.

Each statement ends as
  accepted    it was imported
  duplicate   the account has the same statement already
  refused     it does not add up, or another statement has its id
  failed      there was no usable answer; run the command again
Running it twice imports nothing twice.

Exit code: 0 nothing refused, 1 something refused, 2 could not run or not finish.`,
		Example: `  backbone gl import-statement --legal-entity DEMF --account 1010 march.xml
  backbone gl import-statement --legal-entity DEMF --account 1010 --csv mapping.json \
    --currency EUR --opening-balance 1000.00 --closing-balance 899.50 march.csv`,
		Args:         cobra.MinimumNArgs(1),
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.options.Account, "account", "", "ledger account of the bank account (required)")
	flags.BoolVar(&f.options.Texts, "texts", false, "import remittance texts, which may name persons")
	flags.StringVar(&f.mapping, "csv", "", "JSON file with the mapping of a CSV file's columns")
	flags.StringVar(&f.options.Currency, "currency", "", "currency of a CSV file")
	flags.StringVar(&f.options.ID, "statement-id", "", "id of a CSV file's statement (default from the file's hash)")
	flags.StringVar(&f.options.Opening, "opening-balance", "", "balance before the lines of a CSV file, as -12.50")
	flags.StringVar(&f.options.Closing, "closing-balance", "", "balance after the lines of a CSV file")
	flags.BoolVar(&f.json, "json", false, "write the report as JSON")
	_ = cmd.MarkFlagRequired("account")
	return cmd
}

func (f *importFlags) run(cmd *cobra.Command, files []string) error {
	if f.mapping != "" {
		if len(files) > 1 {
			return usageError{errors.New("one CSV file at a time: its balances are given on the command line")}
		}
		mapping, err := os.Open(f.mapping)
		if err != nil {
			return usageError{fmt.Errorf("the mapping cannot be read: %w", withoutPath(err))}
		}
		f.options.Mapping, err = bankfile.ReadMapping(mapping)
		_ = mapping.Close()
		if err != nil {
			return usageError{err}
		}
	}
	api, err := f.open()
	if err != nil {
		return err
	}
	ctx, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer release()
	report := ImportStatements(ctx, api, f.legalEntity, files, f.options)
	write := report.writeTable
	if f.json {
		write = func(w io.Writer) error { return writeJSON(w, report) }
	}
	if err := write(cmd.OutOrStdout()); err != nil {
		return usageError{fmt.Errorf("the report cannot be written: %w", err)}
	}
	return report.Err()
}

// ImportStatements imports the statements of files in their order. A file that cannot be read as
// a whole imports nothing. The idempotency key of a statement is made from the content of its
// file, so a second run imports nothing twice.
func ImportStatements(ctx context.Context, api BankAPI, legalEntity string, files []string, o bankfile.Options) *StatementReport {
	report := &StatementReport{Statements: []StatementResult{}, Totals: map[string]int{}}
	add := func(r StatementResult) {
		if r.Violations == nil {
			r.Violations = []fault.Violation{}
		}
		report.Statements, report.Totals[r.Status] = append(report.Statements, r), report.Totals[r.Status]+1
	}
	for _, path := range files {
		result := StatementResult{File: path}
		if ctx.Err() != nil {
			result.Status, result.Code, result.Detail = StatusFailed, "import.not_sent", "the import was interrupted; run the command again"
			add(result)
			continue
		}
		statements, digest, err := readFile(path, o)
		result.SHA256 = digest
		if err != nil {
			add(result.withError(err))
			continue
		}
		for i, s := range statements {
			r := importStatement(ctx, api, legalEntity, s, digest, i, result)
			add(r)
			if r.Status == StatusRefused || r.Status == StatusFailed {
				break // what follows begins with the balance of this one
			}
		}
	}
	return report
}

func readFile(path string, o bankfile.Options) ([]domain.BankStatement, string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, "", &fileError{err}
	}
	defer file.Close()
	statements, digest, err := bankfile.Read(file, o)
	if _, refused := fault.As(err); err != nil && !refused {
		return nil, "", &fileError{err}
	}
	return statements, digest, err
}

// fileError is the error of a file that cannot be opened or read.
type fileError struct{ err error }

func (e *fileError) Error() string { return withoutPath(e.err).Error() }
func (e *fileError) Unwrap() error { return e.err }

// withoutPath strips operation and path from the error of a file operation.
func withoutPath(err error) error {
	if failed, ok := errors.AsType[*os.PathError](err); ok {
		return failed.Err
	}
	return err
}

func importStatement(ctx context.Context, api BankAPI, legalEntity string, s domain.BankStatement, digest string, n int, r StatementResult) StatementResult {
	r.StatementID, r.Part, r.Parts, r.Lines, r.Currency = s.StatementID, s.Part, s.Parts, len(s.Lines), s.Currency
	r.Opening, r.Closing = s.OpeningBalance.String(), s.ClosingBalance.String()
	payload, err := json.Marshal(s)
	if err != nil {
		return r.withError(err)
	}
	key := []string{legalEntity, digest, strconv.Itoa(n), string(payload)}
	for range maxImports {
		replayed := false
		out, err := api.SubmitIntent(ctx, client.SubmitIntentParams{IdempotencyKey: idempotencyKey("statement", key...)}, client.IntentRequest{
			Type: "gl.import_bank_statement", LegalEntity: legalEntity, Payload: payload,
			Source: client.Source{System: "backbone gl import-statement", Channel: "batch", Reference: digest},
		}, client.Replayed(&replayed))
		if err != nil {
			return r.withError(err)
		}
		if len(out.Events) == 0 {
			break
		}
		r.IntentID, r.EventID = out.IntentID, out.Events[0].ID
		if !replayed {
			r.Status = StatusAccepted
			return r
		}
		// The statement may have been discarded since, so it is sent again under another key. The
		// ledger has it as a duplicate otherwise.
		key = append(key, r.EventID)
	}
	r.Status, r.Code, r.Detail = StatusFailed, "import.unexpected", unexpectedAnswer
	return r
}

// maxImports bounds how often one file is sent that was imported and discarded again and again.
const maxImports = 20

const unexpectedAnswer = "the server's answer is not what its API describes; check the server's address and version"

const codeDuplicate = "gl.bank_statement.duplicate"

// withError is the result of a statement that ended with an error: refused if the reader or the
// server decided about it, else failed.
func (r StatementResult) withError(err error) StatementResult {
	if unread, ok := errors.AsType[*fileError](err); ok {
		r.Status, r.Code, r.Detail = StatusFailed, "import.file_unreadable", "the file cannot be read: "+unread.Error()+"; make it readable and run the command again"
		return r
	}
	r.Status, r.Code, r.Detail = outcomeOf(err)
	failure, ok := fault.As(err)
	if !ok {
		return r
	}
	r.Violations = failure.Violations
	if failure.IntentID != "" {
		r.IntentID = failure.IntentID
	}
	if failure.Holder != nil {
		r.EventID = failure.Holder.EventID
	}
	if same, _ := failure.Attributes["same_content"].(bool); failure.Code == codeDuplicate && same {
		r.Status, r.Detail = StatusDuplicate, ""
	}
	return r
}

// outcomeOf is refused for what the server decided, and failed for what it did not answer.
func outcomeOf(err error) (status, code, detail string) {
	f, ok := fault.As(err)
	if !ok {
		return StatusFailed, "import.no_answer", "the server did not answer; run the command again"
	}
	switch f.Kind {
	case fault.Unavailable, fault.TooMany, fault.Timeout, fault.Internal, fault.Unauthenticated:
		return StatusFailed, f.Code, f.Detail
	}
	return StatusRefused, f.Code, f.Detail
}

// idempotencyKey is a digest of the parts, so that any text can be part of it.
func idempotencyKey(kind string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x1f")))
	return kind + "|" + hex.EncodeToString(sum[:])
}

// exitError is the error of a command that ran, with its exit code.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// ExitCode is 1 if something was refused, and 2 if something is not finished.
func (e *exitError) ExitCode() int { return e.code }

// Err is nil if every statement is in the ledger.
func (r *StatementReport) Err() error { return exitOf(r.Totals, "statements") }

func exitOf(totals map[string]int, what string) error {
	switch {
	case totals[StatusFailed] > 0:
		return &exitError{code: 2, text: fmt.Sprintf("%d %s could not be finished; run the command again", totals[StatusFailed], what)}
	case totals[StatusRefused] > 0:
		return &exitError{code: 1, text: fmt.Sprintf("%d %s refused; the report says why", totals[StatusRefused], what)}
	}
	return nil
}

func writeJSON(w io.Writer, report any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}

func (r *StatementReport) writeTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FILE\tSTATUS\tSTATEMENT\tLINES\tOPENING\tCLOSING\tREASON")
	for i := range r.Statements {
		s := &r.Statements[i]
		id := cmp.Or(s.StatementID, "-")
		if s.Parts > 1 {
			id += fmt.Sprintf(" (%d of %d)", s.Part, s.Parts)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", strconv.QuoteToGraphic(filepath.Base(s.File)), s.Status, id, s.Lines, cmp.Or(s.Opening, "-"), cmp.Or(s.Closing, "-"), reasonText(s.Code, s.Detail))
	}
	return table.Flush()
}

// reasonText is code and sentence of an outcome, "-" without any.
func reasonText(code, detail string) string {
	if code == "" {
		return "-"
	}
	return strings.TrimSpace(code + " " + detail)
}

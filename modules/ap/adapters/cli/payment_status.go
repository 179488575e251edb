package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/adapters/pain002"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/ports"
)

// StatusAPI is what the import of payment statuses calls of a server; *client.Client implements it.
type StatusAPI interface {
	IntentAPI
	// ReadApPayments lists the payments of a run, for statuses of whole files and blocks.
	ReadApPayments(ctx context.Context, params client.ReadApPaymentsParams, options ...client.Option) (client.ApPaymentsReport, error)
}

// PaymentOutcome is what the report did to one payment. Status is accepted, duplicate, refused,
// pending or failed, as of files that are imported.
type PaymentOutcome struct {
	PaymentID  string `json:"payment_id"`
	BankStatus string `json:"bank_status"`
	Status     Status `json:"status"`
	Event      string `json:"event,omitempty"` // type of what was recorded
	ReasonCode string `json:"reason_code,omitempty"`
	Code       string `json:"code,omitempty"` // of a refusal or failure
	Detail     string `json:"detail,omitempty"`
	IntentID   string `json:"intent_id,omitempty"`
}

// StatusReport is the result of an import of payment statuses.
type StatusReport struct {
	MessageID string           `json:"message_id"`
	RunID     string           `json:"run_id"`
	SHA256    string           `json:"sha256"`
	Payments  []PaymentOutcome `json:"payments"`
	Unknown   []string         `json:"unknown"` // ids that name no payment of this legal entity
	Totals    StatusTotals     `json:"totals"`
	Complete  bool             `json:"complete"` // no payment failed

	cause error // why the import ended early
}

// StatusTotals counts payments.
type StatusTotals struct {
	Executed  int `json:"executed"`
	Rejected  int `json:"rejected"` // by the bank
	Reported  int `json:"reported"` // with a status that decides nothing
	Duplicate int `json:"duplicate"`
	Refused   int `json:"refused"`
	Pending   int `json:"pending"`
	Failed    int `json:"failed"`
}

func (t *StatusTotals) summary() string {
	return fmt.Sprintf("%d executed, %d rejected by the bank, %d reported, %s, %d refused, %d pending, %d failed",
		t.Executed, t.Rejected, t.Reported, count(t.Duplicate, "duplicate"), t.Refused, t.Pending, t.Failed)
}

func (t *StatusTotals) tally(o PaymentOutcome) {
	switch o.Status {
	case StatusDuplicate:
		t.Duplicate++
	case StatusRefused:
		t.Refused++
	case StatusPending:
		t.Pending++
	case StatusFailed:
		t.Failed++
	case StatusAccepted:
		switch o.Event {
		case contract.EventPaymentExecuted:
			t.Executed++
		case contract.EventPaymentFailed:
			t.Rejected++
		default:
			t.Reported++
		}
	}
}

// reportedStatus is a status of one payment, as it is submitted.
type reportedStatus struct {
	paymentID string
	pain002.Status
}

// ImportStatus submits what a bank reports, one intent for each payment. Keys of message and
// payment make a second run submit nothing twice.
func ImportStatus(ctx context.Context, api StatusAPI, report *pain002.Report, o Options, progress func(StatusTotals, int)) (*StatusReport, error) {
	if o.Parallel <= 0 {
		o.Parallel = DefaultParallel
	}
	if o.Wait == nil {
		o.Wait = ports.Sleep
	}
	statuses, err := expandStatuses(ctx, api, report, o.LegalEntity)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })()
	r := &run{api: api, Options: o, ctx: ctx, stop: stop, requests: requests}
	out := &StatusReport{MessageID: report.MessageID, RunID: report.RunID, SHA256: report.SHA256, Payments: make([]PaymentOutcome, len(statuses)), Unknown: []string{}}
	var mu sync.Mutex // guards Totals and the calls of progress
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(o.Parallel, len(statuses)) {
		workers.Go(func() {
			for i := range next {
				outcome := r.submitStatus(report, statuses[i])
				mu.Lock()
				out.Payments[i] = outcome
				out.Totals.tally(outcome)
				if progress != nil {
					progress(out.Totals, len(statuses))
				}
				mu.Unlock()
			}
		})
	}
	for i := range statuses {
		next <- i
	}
	close(next)
	workers.Wait()
	for _, p := range out.Payments {
		if p.Code == "payment.not_found" {
			out.Unknown = append(out.Unknown, p.PaymentID)
		}
	}
	out.Complete, out.cause = out.Totals.Failed == 0, context.Cause(ctx)
	return out, nil
}

// expandStatuses lists the statuses by payment. A status of a whole block or file holds for those
// of its payments that are not named and that the bank has not answered; they are read from the
// server.
func expandStatuses(ctx context.Context, api StatusAPI, report *pain002.Report, legalEntity string) ([]reportedStatus, error) {
	var out []reportedStatus
	named := map[string]bool{}
	whole := map[string]pain002.Status{} // by block
	for _, b := range report.Blocks {
		for _, p := range b.Payments {
			out, named[p.PaymentID] = append(out, reportedStatus{p.PaymentID, p.Status}), true
		}
		if b.Status.Whole() {
			whole[b.ID] = b.Status
		}
	}
	if len(whole) == 0 && !report.Group.Whole() {
		return out, nil
	}
	blocks := map[string]string{} // by currency: blocks of the payment file are numbered in the order of their first payment
	for params := (client.ReadApPaymentsParams{LegalEntity: legalEntity, Run: report.RunID, Limit: 1000}); ; {
		page, err := api.ReadApPayments(ctx, params)
		if err != nil {
			return nil, err
		}
		for _, p := range page.Rows {
			if p.State == "excluded" {
				continue
			}
			if blocks[p.Currency] == "" {
				blocks[p.Currency] = report.RunID + "-" + strconv.Itoa(len(blocks)+1)
			}
			status, found := whole[blocks[p.Currency]]
			if !found && report.Group.Whole() {
				status, found = report.Group, true
			}
			if found && !named[p.PaymentID] && (p.State == "approved" || p.State == "exported") {
				out = append(out, reportedStatus{p.PaymentID, status})
			}
		}
		if !page.HasMore {
			return out, nil
		}
		params.Cursor = page.NextCursor
	}
}

// Bounds of the payload's texts, in characters.
const (
	maxStatusText      = 500
	maxStatusReference = 140
)

// payload makes the payload of a status. A text that looks like personal data, such as one that
// quotes an account, is left out: the bank's file has it.
func (s *reportedStatus) payload(messageID string) (json.RawMessage, error) {
	p := contract.PaymentStatusImport{PaymentID: s.paymentID, MessageID: messageID, Status: s.Code, ReasonCode: s.ReasonCode}
	if shredding.CheckText("/text", s.Text) == nil {
		p.Text = shorten(s.Text, maxStatusText)
	}
	if s.Code == pain002.Settled || s.Code == pain002.SettledOnCreditor {
		if s.ExecutedOn != 0 {
			p.ExecutedOn = &s.ExecutedOn
		}
		p.BankReference = shorten(s.Reference, maxStatusReference)
	}
	return json.Marshal(p)
}

func shorten(text string, limit int) string {
	if utf8.RuneCountInString(text) > limit {
		return string([]rune(text)[:limit])
	}
	return text
}

// submitStatus submits the status of one payment.
func (r *run) submitStatus(report *pain002.Report, s reportedStatus) PaymentOutcome {
	o := PaymentOutcome{PaymentID: s.paymentID, BankStatus: s.Code, ReasonCode: s.ReasonCode}
	payload, err := s.payload(report.MessageID)
	if err == nil && r.ctx.Err() != nil {
		err = errNotSent
	}
	if err != nil {
		return o.withError(err)
	}
	out, err := r.send(submission{
		IntentRequest: client.IntentRequest{
			Type: contract.IntentImportPaymentStatus, LegalEntity: r.LegalEntity, Payload: payload,
			Source: client.Source{System: "backbone ap import-status", Channel: sourceChannel, Reference: report.SHA256},
		},
		key: idempotencyKey(r.LegalEntity, "payment-status", report.MessageID, s.paymentID, s.Code),
	})
	if err != nil {
		return o.withError(err)
	}
	o.IntentID, o.Status = out.IntentID, StatusAccepted
	if len(out.Events) > 0 {
		o.Event = out.Events[0].Type
	}
	switch {
	case out.hasNoEvents():
		return o.withError(out.earlierRefusal("this status"))
	case out.Status != string(intent.Executed):
		o.Status, o.Code, o.Detail = StatusPending, "intent.pending_approval", "it waits for the approval of another person; approve that intent"
	case out.replayed:
		o.Status = StatusDuplicate
	}
	return o
}

// withError is the outcome of a payment that ended with an error. An execution that is recorded
// already makes a report that it was executed a duplicate.
func (o PaymentOutcome) withError(err error) PaymentOutcome {
	f := FileResult{}.withError(err)
	o.Status, o.Code, o.Detail, o.IntentID = f.Status, f.Code, f.Detail, cmp.Or(f.IntentID, o.IntentID)
	settled := o.BankStatus == pain002.Settled || o.BankStatus == pain002.SettledOnCreditor
	if settled && o.Code == "payment.already_executed" {
		o.Status = StatusDuplicate
	}
	return o
}

// WriteTable writes the report for a person: the payments that were not simply recorded, then the
// totals.
func (r *StatusReport) WriteTable(w io.Writer) error {
	shown := slices.DeleteFunc(slices.Clone(r.Payments), func(o PaymentOutcome) bool {
		return o.Status == StatusDuplicate || o.Status == StatusAccepted && o.Event != contract.EventPaymentFailed
	})
	if len(shown) > 0 {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "PAYMENT\tBANK\tSTATUS\tREASON")
		for _, o := range shown {
			reason := cmp.Or(o.ReasonCode, "-")
			if o.Code != "" {
				reason = o.Code + ": " + o.Detail
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", dash(o.PaymentID), dash(o.BankStatus), o.Status, printable(reason))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintf(w, "%s of message %s: %s\n", count(len(r.Payments), "payment"), printable(r.MessageID), r.Totals.summary())
	return err
}

// WriteJSON writes the report as one JSON document.
func (r *StatusReport) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// Err returns an *ExitError with ExitUnfinished if a payment failed, else with ExitRefused if one
// was refused, else nil.
func (r *StatusReport) Err() error {
	switch {
	case !r.Complete:
		text := fmt.Sprintf("%d of %s could not be finished; run the command again, which submits nothing twice", r.Totals.Failed, count(len(r.Payments), "payment"))
		if r.cause != nil {
			text = "the import ended early: " + printable(reason(r.cause)) + "; " + text
		}
		return &ExitError{code: ExitUnfinished, text: text, err: r.cause}
	case r.Totals.Refused > 0:
		return &ExitError{code: ExitRefused, text: fmt.Sprintf("%d of %s refused; the report says why", r.Totals.Refused, count(len(r.Payments), "payment"))}
	default:
		return nil
	}
}

// ImportStatusCommand is `backbone ap import-status`. newAPI makes the client of a server from its
// base URL and a token. Errors of the command are *ExitError.
func ImportStatusCommand(newAPI func(server, token string) (StatusAPI, error)) *cobra.Command {
	var c importFlags
	cmd := &cobra.Command{
		Use:   "import-status [flags] FILE",
		Short: "Record what a bank reports about payments (pain.002)",
		Long: `Read a report of a bank about a payment run, pain.002.001.10 or pain.002.001.03,
and submit the status of each payment to accounts payable: settled (ACSC, ACCC)
executes the payment, rejected (RJCT) fails it with the bank's reason, any other
status is recorded. A status of the whole file or of a block holds for those of
its payments that the report does not name. FILE - is standard input.

Each payment is handled independently. A payment in another currency than the
account that paid it is refused, since the report does not tell what the bank
took: record it with ap.execute_payment. Running the command twice submits nothing
twice.

Exit code: 0 nothing refused, 1 something refused, 2 could not run or not finish.`,
		Example: `  export BACKBONE_SERVER=http://127.0.0.1:8080 BACKBONE_TOKEN=bbk_...
  backbone ap import-status --legal-entity DEMF pain002.xml
  backbone ap import-status --legal-entity DEMF --json pain002.xml > report.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError("name one file; backbone ap import-status --help shows examples", nil)
			}
			return nil
		},
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.runStatus(cmd, args[0], newAPI)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usageError(err.Error()+"; backbone ap import-status --help lists the flags", err)
	})
	flags := cmd.Flags()
	flags.StringVar(&c.server, "server", "", "base URL of the server (environment "+EnvServer+")")
	flags.StringVar(&c.token, "token", "", "access token (environment "+EnvToken+", which other users of this machine cannot see)")
	flags.StringVar(&c.legalEntity, "legal-entity", "", "code of the legal entity that pays (required; environment "+EnvLegalEntity+")")
	flags.IntVar(&c.parallel, "parallel", DefaultParallel, fmt.Sprintf("payments submitted concurrently, 1 to %d", MaxParallel))
	flags.BoolVar(&c.json, "json", false, "write the report as JSON")
	return cmd
}

func (c *importFlags) runStatus(cmd *cobra.Command, path string, newAPI func(server, token string) (StatusAPI, error)) error {
	options, server, token, err := c.options()
	if err != nil {
		return err
	}
	report, err := readStatusFile(cmd.InOrStdin(), path)
	if err != nil {
		return usageError(reason(err), err)
	}
	api, err := newAPI(server, token)
	if err != nil {
		return usageError(reason(err), err)
	}
	ctx, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer release()
	var progress func(StatusTotals, int)
	finished := func() {}
	if isTerminal(cmd.ErrOrStderr()) {
		done := 0
		progress = func(t StatusTotals, payments int) {
			done++
			fmt.Fprintf(cmd.ErrOrStderr(), "\r\x1b[K%d/%d  %s", done, payments, t.summary())
		}
		finished = func() { fmt.Fprintln(cmd.ErrOrStderr()) }
	}
	result, err := ImportStatus(ctx, api, report, options, progress)
	finished()
	if err != nil {
		return usageError(reason(err), err)
	}
	write := result.WriteTable
	if c.json {
		write = result.WriteJSON
	}
	if err := write(cmd.OutOrStdout()); err != nil {
		return usageError("the report cannot be written: "+withoutPath(err).Error()+"; "+result.Totals.summary(), err)
	}
	return result.Err()
}

// readStatusFile reads a report from a file, or with - from standard input.
func readStatusFile(stdin io.Reader, path string) (*pain002.Report, error) {
	if path == "-" {
		return pain002.Read(stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, statusFileFault(err)
	}
	defer f.Close()
	report, err := pain002.Read(f)
	if _, refused := fault.As(err); err != nil && !refused {
		err = statusFileFault(err)
	}
	return report, err
}

func statusFileFault(err error) error {
	return fault.New(fault.Invalid, CodeFileUnreadable, "the file cannot be read: %s; make it readable and run the command again", withoutPath(err)).WithCause(err)
}

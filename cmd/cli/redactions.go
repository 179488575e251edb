package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

func redactionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redactions",
		Short: "Redact personal data that is in clear text in events",
		Long: "A redaction replaces values of one event by [REDACTED]. It is for what was never sealed:\n" +
			"migrated events and free texts. (Sealed values go by `backbone erasure`.) One person\n" +
			"requests, another approves, then the server carries it out: the chain stays valid, and an\n" +
			"event in the log vouches for the new payload. Amounts, ids and keys are never redacted.",
	}
	cmd.AddCommand(requestRedactionCommand(), previewRedactionCommand(), approveRedactionCommand(),
		endRedactionCommand("reject", "End a request, as the second person", (*client.Client).RejectRedactionRequest),
		endRedactionCommand("withdraw", "Take a request back before it is carried out", (*client.Client).WithdrawRedactionRequest),
		showRedactionCommand(), listRedactionsCommand(),
		certificateCommand("redaction", "backbone redactions", (*client.Client).GetRedactionCertificate))
	return cmd
}

const waitRedactionHelp = "follow the request until it has ended; exit code 1 unless it is completed"

func requestRedactionCommand() *cobra.Command {
	var body client.NewRedactionRequest
	var key string
	cmd := &cobra.Command{
		Use:   "request EVENT",
		Short: "Request the redaction of values of an event",
		Long:  "EVENT is the id of the event. Nothing is redacted before another person has approved.",
		Example: "  backbone redactions request 01JQ8E6Z6G3V5T8C9N2M4K7R1P --legal-entity DEMF \\\n" +
			"    --pointer /data/description --reason \"Free text with an address\"",
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&body.LegalEntity, "legal-entity", "", "code of the legal entity (required)")
	f.StringArrayVar(&body.Pointers, "pointer", nil, "RFC 6901 pointer into the stored payload, below /data; may be repeated (required)")
	f.StringVar(&body.Reason, "reason", "", "why, for colleagues and auditors; no personal data (required)")
	f.StringVar(&key, "idempotency-key", "", "makes the same call twice one request")
	required(cmd, "legal-entity", "pointer", "reason")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		body.EventID = args[0]
		made, err := s.RequestRedaction(ctx, client.RequestRedactionParams{IdempotencyKey: key}, body, s.keep())
		return s.redaction(ctx, false, made, err)
	})
}

func previewRedactionCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use:     "preview ID",
		Short:   "Check again what a request concerns",
		Long:    "If another redaction has changed the event since, the request gets a new scope to approve.",
		Example: "  backbone redactions preview 01JQ8E6Z6G3V5T8C9N2M4K7R1P",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, s *session, args []string) error {
		x, err := s.PreviewRedactionRequest(ctx, args[0], s.keep())
		return s.redaction(ctx, false, x, err)
	})
}

func approveRedactionCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "approve ID",
		Short: "Let a redaction be carried out, as another person than requested it",
		Long: "The approval covers the event as it is now, which is shown first. Once the payload is\n" +
			"replaced there is no way back.",
		Example: "  backbone redactions approve 01JQ8E6Z6G3V5T8C9N2M4K7R1P --wait",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, waitRedactionHelp)
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		seen, err := s.GetRedactionRequest(ctx, args[0])
		if err != nil {
			return err
		}
		if seen.Status == string(shredding.RedactionPreviewed) {
			fmt.Fprintf(s.err, "Approving the redaction of %s in event %s (%s) of %s\n",
				strings.Join(seen.Pointers, ", "), seen.EventID, seen.Preview.EventType, seen.LegalEntity)
		}
		// The approval names the scope that was read. If the event changes before the approval
		// arrives, the server refuses it.
		approved, err := s.ApproveRedactionRequest(ctx, args[0], client.ApproveErasure{Scope: seen.Preview.Scope}, s.keep())
		return s.redaction(ctx, wait, approved, err)
	})
}

// endRedactionCommand builds reject, for the approver, and withdraw, for the requester.
func endRedactionCommand(verb, short string, end func(*client.Client, context.Context, string, client.RejectRequest, ...client.Option) (client.RedactionRequest, error)) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     verb + " ID",
		Short:   short,
		Example: "  backbone redactions " + verb + " 01JQ8E6Z6G3V5T8C9N2M4K7R1P --reason \"The wrong event\"",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; no personal data (required)")
	required(cmd, "reason")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		ended, err := end(s.Client, ctx, args[0], client.RejectRequest{Reason: reason}, s.keep())
		return s.redaction(ctx, false, ended, err)
	})
}

func showRedactionCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a request and how far it is",
		Example: "  backbone redactions show 01JQ8E6Z6G3V5T8C9N2M4K7R1P --wait --json",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, waitRedactionHelp)
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		x, err := s.GetRedactionRequest(ctx, args[0], s.keep())
		return s.redaction(ctx, wait, x, err)
	})
}

// redaction prints a request; with wait it follows the request to its end first. Fault
// redaction.ended (FailedPrecondition): the request that was followed ended, or needs a new
// approval, and nothing was redacted.
func (s *session) redaction(ctx context.Context, wait bool, x client.RedactionRequest, err error) error {
	state := func() shredding.RedactionState { return shredding.RedactionState(x.Status) }
	for pause := firstPoll; err == nil && wait && !state().Final(); pause = min(2*pause, longestPoll) {
		before := x
		if err = ports.Sleep(ctx, pause); err == nil {
			x, err = s.GetRedactionRequest(ctx, x.ID, s.keep())
		}
		if state() == shredding.RedactionPreviewed && (before.Status != x.Status || before.Preview.Scope != x.Preview.Scope) {
			break // the event has changed: no approver knows that a second approval is needed
		}
	}
	if err != nil {
		return err
	}
	if err := s.print(func(p *page) { p.redaction(x) }); err != nil {
		return err
	}
	if wait && state() != shredding.RedactionCompleted {
		return fault.New(fault.FailedPrecondition, "redaction.ended", "the request is %s and nothing was redacted; read it", x.Status)
	}
	return nil
}

// redaction writes a whole request and the next step.
func (p *page) redaction(x client.RedactionRequest) {
	p.line("Redaction %s is %s", x.ID, x.Status)
	row := func(name, format string, args ...any) {
		p.row("  "+name, fmt.Sprintf(format, args...))
	}
	row("event", "%s, sequence %s in %s", x.EventID, x.Sequence, x.LegalEntity)
	row("type", "%s version %d, stream %s", x.Preview.EventType, x.Preview.SchemaVersion, x.Preview.Stream)
	row("values", "%s", strings.Join(x.Pointers, " "))
	row("reason", "%s", x.Reason)
	row("requested", "%s by %s", x.RequestedAt.UTC().Format(minuteLayout), x.RequestedBy)
	if x.ApprovedBy != "" {
		row("approved", "%s by %s", x.ApprovedAt.UTC().Format(minuteLayout), x.ApprovedBy)
	}
	if x.Error != "" {
		row("trouble", "the step after %s failed %s: %s", x.Status, counted(x.Attempts, "time"), x.Error)
	}
	if !x.CompletedAt.IsZero() {
		row("completed", "%s", x.CompletedAt.UTC().Format(minuteLayout))
	}
	if x.EndReason != "" {
		row("ended", "%s", x.EndReason)
	}
	switch shredding.RedactionState(x.Status) {
	case shredding.RedactionPreviewed:
		p.line("Next: another person runs  backbone redactions approve %s", x.ID)
	case shredding.RedactionCompleted:
		p.line("Next: backbone redactions certificate %s", x.ID)
	}
}

func listRedactionsCommand() *cobra.Command {
	var statuses []string
	limit := 0
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List requests, newest first",
		Example: "  backbone redactions list --status previewed,approved",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringSliceVar(&statuses, "status", nil, "only requests in these states")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many, 1 to 1000 (default 100)")
	return serverCommand(cmd, func(ctx context.Context, s *session, _ []string) error {
		list, err := s.ListRedactionRequests(ctx, client.ListRedactionRequestsParams{Status: strings.Join(statuses, ","), Limit: limit}, s.keep())
		if err != nil {
			return err
		}
		return s.print(func(p *page) {
			if len(list.RedactionRequests) == 0 {
				p.line("There are no such redaction requests.")
				return
			}
			p.row("ID", "LEGAL ENTITY", "SEQUENCE", "TYPE", "STATUS", "REQUESTED BY", "APPROVED BY", "VALUES")
			for _, x := range list.RedactionRequests {
				p.row(x.ID, x.LegalEntity, x.Sequence, x.Preview.EventType, x.Status, x.RequestedBy, cmp.Or(x.ApprovedBy, "-"), strings.Join(x.Pointers, " "))
			}
		})
	})
}

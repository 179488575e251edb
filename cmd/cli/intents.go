package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/intent"
)

func intentsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "intents",
		Short: "See what was asked for, and decide on what waits",
		Long: "An intent asks a business module to do something. One that needs another person waits,\n" +
			"with status pending_approval, until persons of the roles in its needs have approved it.",
	}
	cmd.AddCommand(listIntentsCommand(), showIntentCommand(), approveIntentCommand(),
		endIntentCommand("reject", "End a waiting intent without effect", "The goods have not arrived", func(s *session, ctx context.Context, id string, p intentPlace, body client.RejectRequest) (client.IntentOutcome, error) {
			return s.RejectIntent(ctx, id, client.RejectIntentParams{LegalEntity: p.legalEntity, IdempotencyKey: p.key}, body, s.keep())
		}),
		endIntentCommand("withdraw", "Take a waiting intent back, as its requester", "Submitted twice", func(s *session, ctx context.Context, id string, p intentPlace, body client.RejectRequest) (client.IntentOutcome, error) {
			return s.WithdrawIntent(ctx, id, client.WithdrawIntentParams{LegalEntity: p.legalEntity, IdempotencyKey: p.key}, body, s.keep())
		}))
	return cmd
}

const allLegalEntities = "only in this legal entity (environment BACKBONE_LEGAL_ENTITY; default: all that you may see)"

// intentPlace is where an intent is looked for, and the key of a decision on it.
type intentPlace struct{ legalEntity, key string }

func (p *intentPlace) flags(cmd *cobra.Command) {
	legalEntityFlag(cmd, &p.legalEntity, allLegalEntities)
	cmd.Flags().StringVar(&p.key, "idempotency-key", "", "makes the same call twice one decision")
}

func listIntentsCommand() *cobra.Command {
	var q client.ListIntentsParams
	var newest bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List intents, such as those that wait for you",
		Long: "The oldest come first. A page looks at a bounded number of intents, so it may be short or\n" +
			"empty before the end; the last line says how to go on.",
		Example: "  backbone intents list --waiting-for-me\n" +
			"  backbone intents list --role controller --min-age-hours 48\n" +
			"  backbone intents list --status denied --from 2026-03-01 --to 2026-03-31 --legal-entity DEMF --json",
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	legalEntityFlag(cmd, &q.LegalEntity, allLegalEntities)
	f.BoolVar(&q.WaitingForMe, "waiting-for-me", false, "only what you may approve or reject now")
	f.StringVar(&q.Status, "status", "", "only with this status: pending_approval, executed, rejected, withdrawn, expired, denied or failed")
	f.StringVar(&q.Type, "type", "", "only of these types, separated by commas")
	f.StringVar(&q.Actor, "actor", "", "only asked for by this person or service")
	f.StringVar(&q.Role, "role", "", "only waiting for an approval by this role")
	f.StringVar(&q.Document, "document", "", "only those that write this stream: its id, or type/id")
	f.StringVar(&q.SubmittedFrom, "from", "", "submitted then or later: a date or an RFC 3339 time")
	f.StringVar(&q.SubmittedTo, "to", "", "submitted then or earlier: a date or an RFC 3339 time")
	f.IntVar(&q.MinAgeHours, "min-age-hours", 0, "submitted at least so many hours ago")
	f.BoolVar(&newest, "newest-first", false, "in the order of the newest first")
	f.IntVar(&q.Limit, "limit", 0, "at most so many, 1 to 1000 (default 100)")
	f.StringVar(&q.Cursor, "cursor", "", "where the page before ended")
	return serverCommand(cmd, func(ctx context.Context, s *session, _ []string) error {
		if newest {
			q.Direction = "backward"
		}
		found, err := s.ListIntents(ctx, q, s.keep())
		if err != nil {
			return err
		}
		return s.print(func(p *page) {
			if len(found.Intents) == 0 {
				p.line("There are no such intents on this page.")
			} else {
				p.row("ID", "SUBMITTED", "TYPE", "LEGAL ENTITY", "DOCUMENT", "REQUESTED BY", "STATUS", "WAITS FOR")
			}
			for _, in := range found.Intents {
				p.row(in.IntentID, in.CreatedAt.UTC().Format(minuteLayout), in.Type, in.LegalEntity, cmp.Or(strings.Join(in.Documents, ", "), "-"),
					withName(in.RequestedBy, found.Names), statusOrCode(in.Status, in.Refusal), cmp.Or(rolesOf(in.Needs), "-"))
			}
			p.next(found.NextCursor)
		})
	})
}

// statusOrCode is the status of an intent, with the code if it was refused.
func statusOrCode(status string, refusal client.Refusal) string {
	if refusal.Code == "" {
		return status
	}
	return status + ": " + refusal.Code
}

// rolesOf lists the roles of each need.
func rolesOf(needs []client.ApprovalNeed) string {
	out := make([]string, len(needs))
	for i, n := range needs {
		out[i] = cmp.Or(strings.Join(n.Roles, " or "), "any role")
	}
	return strings.Join(out, ", ")
}

func showIntentCommand() *cobra.Command {
	var legalEntity string
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show an intent with its payload, decisions and events",
		Example: "  backbone intents show 01JQ8E6Z6G3V5T8C9N2M4K7R1P",
		Args:    cobra.ExactArgs(1),
	}
	legalEntityFlag(cmd, &legalEntity, allLegalEntities)
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		in, err := s.GetIntent(ctx, args[0], client.GetIntentParams{LegalEntity: legalEntity}, s.keep())
		if err != nil {
			return err
		}
		return s.print(func(p *page) { p.intent(&in) })
	})
}

// intent writes a whole intent and the next step.
func (p *page) intent(in *client.Intent) {
	p.line("Intent %s is %s", in.IntentID, in.Status)
	row := func(name, format string, args ...any) { p.row("  "+name, fmt.Sprintf(format, args...)) }
	row("asks for", "%s in %s", in.Type, in.LegalEntity)
	row("submitted", "%s by %s", in.CreatedAt.UTC().Format(minuteLayout), actorLine(in.Actor, in.Names))
	if in.EffectiveDate != "" {
		row("effective", "%s", in.EffectiveDate)
	}
	if in.CausedBy != "" {
		row("caused by", "%s in %s", in.CausedBy, cmp.Or(in.CausedByLegalEntity, in.LegalEntity))
	}
	row("process", "%s", in.CorrelationID)
	for _, d := range in.Documents {
		row("document", "%s", d)
	}
	for _, n := range in.Needs {
		row("needs", "%s: %s (%s)", rolesOf([]client.ApprovalNeed{n}), n.Reason, n.RuleID)
	}
	for _, a := range in.Approvals {
		row(a.Decision, "%s by %s%s%s", a.At.UTC().Format(minuteLayout), withName(a.PersonID, in.Names), prefixed(" as ", a.Role), prefixed(": ", a.Comment))
	}
	if in.Refusal.Code != "" {
		row("refused", "%s%s", in.Refusal.Code, prefixed(": ", in.Refusal.Detail))
	}
	for _, e := range in.Events {
		row("event", "%s %s, %s, sequence %s", e.Type, e.ID, e.Stream, e.Sequence)
	}
	for _, r := range in.Rules {
		row("rule", "%s: %s", r.RuleID, r.Result)
	}
	if payload, err := json.MarshalIndent(in.Payload, "", "  "); err == nil {
		p.line("%s", payload)
	}
	if in.Status == string(intent.PendingApproval) {
		p.line("Next: another person runs  backbone intents approve %s", in.IntentID)
	}
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func approveIntentCommand() *cobra.Command {
	var place intentPlace
	var comment string
	cmd := &cobra.Command{
		Use:   "approve ID",
		Short: "Approve a waiting intent, as another person than its requester",
		Long: "The intent is shown first, and the approval covers the plan that is shown: if the plan has\n" +
			"changed when the approval arrives, it is refused.",
		Example: "  backbone intents approve 01JQ8E6Z6G3V5T8C9N2M4K7R1P --comment \"Checked with purchasing\"",
		Args:    cobra.ExactArgs(1),
	}
	place.flags(cmd)
	cmd.Flags().StringVar(&comment, "comment", "", "for colleagues and auditors; no personal data")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		seen, err := s.GetIntent(ctx, args[0], client.GetIntentParams{LegalEntity: place.legalEntity})
		if err != nil {
			return err
		}
		if seen.Status == string(intent.PendingApproval) {
			if err := printPage(s.err, func(p *page) { p.intent(&seen) }); err != nil {
				return err
			}
		}
		out, err := s.ApproveIntent(ctx, args[0], client.ApproveIntentParams{LegalEntity: seen.LegalEntity, IdempotencyKey: place.key},
			client.ApproveRequest{PlanHash: seen.PlanHash, Comment: comment}, s.keep())
		return s.decided(out, err)
	})
}

// endIntentCommand builds reject, for an approver, and withdraw, for the requester.
func endIntentCommand(
	verb, short, example string, end func(*session, context.Context, string, intentPlace, client.RejectRequest) (client.IntentOutcome, error),
) *cobra.Command {
	var place intentPlace
	var reason string
	cmd := &cobra.Command{
		Use:     verb + " ID",
		Short:   short,
		Example: "  backbone intents " + verb + " 01JQ8E6Z6G3V5T8C9N2M4K7R1P --reason \"" + example + "\"",
		Args:    cobra.ExactArgs(1),
	}
	place.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why; no personal data (required)")
	required(cmd, "reason")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		return s.decided(end(s, ctx, args[0], place, client.RejectRequest{Reason: reason}))
	})
}

// decided prints what a decision led to.
func (s *session) decided(out client.IntentOutcome, err error) error {
	if err != nil {
		return err
	}
	return s.print(func(p *page) {
		p.line("Intent %s is %s", out.IntentID, out.Status)
		for _, e := range out.Events {
			p.row("  event", fmt.Sprintf("%s %s, %s, sequence %s", e.Type, e.ID, e.Stream, e.Sequence))
		}
		for _, n := range out.Needs {
			p.row("  waits for", fmt.Sprintf("%s: %s", rolesOf([]client.ApprovalNeed{n}), n.Reason))
		}
	})
}

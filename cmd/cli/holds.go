package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
)

func holdsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "holds",
		Short: "Keep the personal data of a person from being erased",
	}
	cmd.AddCommand(placeHoldCommand(), releaseHoldCommand(), listHoldsCommand())
	return cmd
}

func placeHoldCommand() *cobra.Command {
	var body client.NewLegalHold
	var key string
	cmd := &cobra.Command{
		Use:   "place SUBJECT",
		Short: "Place a legal hold",
		Example: "  backbone holds place employee:E-1 --reason \"Proceedings 4711\"\n" +
			"  backbone holds place employee:E-1 --reason \"Audit 2025\" --legal-entity DEMF --until 2027-12-31",
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&body.Reason, "reason", "", "why; no personal data (required)")
	f.StringSliceVar(&body.LegalEntities, "legal-entity", nil, "only in these legal entities (default: all of the tenant)")
	f.StringVar(&body.Until, "until", "", "last day, as 2026-03-31 (default: until it is released)")
	f.StringVar(&key, "idempotency-key", "", "makes the same call twice one hold")
	required(cmd, "reason")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		body.Subject = args[0]
		return s.holds(s.PlaceLegalHold(ctx, client.PlaceLegalHoldParams{IdempotencyKey: key}, body))
	})
}

func releaseHoldCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "release ID",
		Short:   "End a legal hold",
		Example: "  backbone holds release 01JQ8E6Z6G3V5T8C9N2M4K7R1P",
		Args:    cobra.ExactArgs(1),
	}
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		h, err := s.ReleaseLegalHold(ctx, args[0])
		return s.holds(client.LegalHoldList{LegalHolds: []client.LegalHold{h}}, err)
	})
}

func listHoldsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list SUBJECT",
		Short:   "List the legal holds in force on a person",
		Example: "  backbone holds list employee:E-1 --json",
		Args:    cobra.ExactArgs(1),
	}
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		return s.holds(s.ListLegalHolds(ctx, client.ListLegalHoldsParams{Subject: args[0]}))
	})
}

func (s *session) holds(list client.LegalHoldList, err error) error {
	if err != nil {
		return err
	}
	return s.show(list, func(p *page) {
		if len(list.LegalHolds) == 0 {
			p.line("There is no legal hold in force.")
			return
		}
		p.row("ID", "SUBJECT", "LEGAL ENTITY", "UNTIL", "PLACED BY", "RELEASED BY", "REASON")
		for _, h := range list.LegalHolds {
			p.row(h.ID, h.Subject, cmp.Or(h.LegalEntity, "all"), cmp.Or(h.Until, "until released"), h.PlacedBy, cmp.Or(h.ReleasedBy, "-"), h.Reason)
		}
	})
}

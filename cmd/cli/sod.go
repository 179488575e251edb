package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
)

func sodCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sod",
		Short: "Segregation of duties",
	}
	cmd.AddCommand(sodReportCommand())
	return cmd
}

func sodReportCommand() *cobra.Command {
	var q client.ReportSegregationParams
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Count refused attempts, and list what a person did by document",
		Long: "Attempts are submissions, and decisions on waiting intents. RULE is that of segregation of\n" +
			"duties; other refusals have none. With --person the person's steps follow.",
		Example: "  backbone sod report --from 2026-03-01 --to 2026-03-31\n" +
			"  backbone sod report --person p-approver --legal-entity DEMF --json",
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	legalEntityFlag(cmd, &q.LegalEntity, allLegalEntities)
	f.StringVar(&q.Person, "person", "", "only this person or service")
	f.StringVar(&q.From, "from", "", "recorded then or later: a date or an RFC 3339 time")
	f.StringVar(&q.To, "to", "", "recorded then or earlier: a date or an RFC 3339 time")
	return serverCommand(cmd, func(ctx context.Context, s *session, _ []string) error {
		report, err := s.ReportSegregation(ctx, q, s.keep())
		if err != nil {
			return err
		}
		return s.print(func(p *page) {
			if len(report.Refusals) == 0 {
				p.line("Nothing was refused.")
			} else {
				p.row("PERSON", "TRIED TO", "INTENT TYPE", "LEGAL ENTITY", "CODE", "RULE", "TIMES", "LAST", "INTENT")
			}
			for _, r := range report.Refusals {
				p.row(withName(r.ActorID, report.Names), r.Attempt, r.IntentType, r.LegalEntity, r.Code, cmp.Or(r.Rule, "-"), r.Times, r.LastAt.UTC().Format(minuteLayout), r.LastIntent)
			}
			for _, d := range report.Steps {
				p.line("\n%s in %s", d.Document, d.LegalEntity)
				for _, step := range d.Steps {
					p.row("  "+step.RecordedAt.UTC().Format(minuteLayout), step.Type, cmp.Or(step.IntentID, "-"))
				}
			}
		})
	})
}

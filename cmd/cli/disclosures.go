package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
)

func accessLogCommand() *cobra.Command {
	var query client.ListAccessesParams
	cmd := &cobra.Command{
		Use:   "access-log",
		Short: "List who read personal data, exported events or verified the log",
		Long: "The newest accesses come first. One line counts the values of one person and class that one\n" +
			"answer opened. For auditors and compliance officers of the whole tenant.",
		Example: "  backbone access-log --subject vendor:V-000003\n" +
			"  backbone access-log --person p-0002 --kind export --from 2026-03-01 --to 2026-03-31 --json",
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&query.Person, "person", "", "only what this person or service read")
	f.StringVar(&query.Subject, "subject", "", "only reads about this person, as type:id")
	f.StringVar(&query.Class, "class", "", "only values of this class, such as contact")
	f.StringVar(&query.Kind, "kind", "", "personal_data, export, verification, report or search")
	f.StringVar(&query.From, "from", "", "read then or later, a date or RFC 3339 time")
	f.StringVar(&query.To, "to", "", "read then or earlier, a date or RFC 3339 time")
	f.IntVar(&query.Limit, "limit", 100, "at most so many")
	f.StringVar(&query.Cursor, "cursor", "", "continue after an earlier page")
	return serverCommand(cmd, func(ctx context.Context, s *session, _ []string) error {
		list, err := s.ListAccesses(ctx, query, s.keep())
		if err != nil {
			return err
		}
		return s.print(func(p *page) {
			if len(list.Accesses) == 0 {
				p.line("No accesses.")
				return
			}
			p.row("TIME", "PERSON", "KIND", "OPERATION", "LEGAL ENTITY", "SUBJECT", "CLASS", "VALUES", "REASON")
			for _, a := range list.Accesses {
				p.row(a.At.UTC().Format(minuteLayout), a.PersonID, a.Kind, a.Operation, cmp.Or(a.LegalEntity, "-"), cmp.Or(a.Subject, "-"), cmp.Or(a.Class, "-"), a.Values, cmp.Or(a.Reason, "-"))
			}
			p.next(list.NextCursor)
		})
	})
}

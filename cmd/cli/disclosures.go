package cli

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

func accessLogCommand() *cobra.Command {
	var query client.ListAccessesParams
	cmd := &cobra.Command{
		Use:   "access-log",
		Short: "List who read or searched personal data, or exported events",
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
	f.StringVar(&query.Kind, "kind", "", "personal_data, export, report or personal_search")
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

func disclosuresCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disclosures",
		Short: "Let auditors read personal data for a time",
		Long: "A compliance officer grants an auditor classes of personal data until a time. The auditor gives a\n" +
			"reason with each read (BACKBONE_ACCESS_REASON), and each read is in the access log.",
	}
	cmd.AddCommand(grantDisclosureCommand(), endDisclosureCommand(), listDisclosuresCommand())
	return cmd
}

func grantDisclosureCommand() *cobra.Command {
	var body client.NewDisclosure
	var until, key string
	cmd := &cobra.Command{
		Use:     "grant PERSON",
		Short:   "Let an auditor read classes of personal data until a time",
		Example: "  backbone disclosures grant p-0007 --class contact --class bank --until 2026-04-30T00:00:00Z --reason \"Audit of the vendor master\"",
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringSliceVar(&body.Classes, "class", nil, "contact, identity, bank, tax, health or free_text; may be repeated (required)")
	f.StringVar(&until, "until", "", "RFC 3339 time at which it ends (required)")
	f.StringVar(&body.Reason, "reason", "", "why; no personal data (required)")
	f.StringVar(&key, "idempotency-key", "", "makes the same call twice one grant")
	required(cmd, "class", "until", "reason")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		at, err := time.Parse(time.RFC3339, until)
		if err != nil {
			return fault.New(fault.Invalid, "disclosure.until_invalid", "this is no RFC 3339 time such as 2026-04-30T00:00:00Z; correct it").WithField("--until")
		}
		body.PersonID, body.Until = args[0], at
		made, err := s.GrantDisclosure(ctx, client.GrantDisclosureParams{IdempotencyKey: key}, body)
		return s.disclosures([]client.Disclosure{made}, made, err)
	})
}

func endDisclosureCommand() *cobra.Command {
	var body client.RejectRequest
	cmd := &cobra.Command{
		Use:     "end ID",
		Short:   "End a grant before its time",
		Example: "  backbone disclosures end 01JQ8E6Z6G3V5T8C9N2M4K7R1P --reason \"The audit is over\"",
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&body.Reason, "reason", "", "why; no personal data (required)")
	required(cmd, "reason")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		ended, err := s.EndDisclosure(ctx, args[0], body)
		return s.disclosures([]client.Disclosure{ended}, ended, err)
	})
}

func listDisclosuresCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use:     "list",
		Short:   "List the grants, newest first",
		Example: "  backbone disclosures list --json",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, s *session, _ []string) error {
		var all client.DisclosureList
		for q := (client.ListDisclosuresParams{Limit: wholePage}); ; {
			list, err := s.ListDisclosures(ctx, q)
			all.Disclosures = append(all.Disclosures, list.Disclosures...)
			if q.Cursor = list.NextCursor; err != nil || q.Cursor == "" {
				return s.disclosures(all.Disclosures, all, err)
			}
		}
	})
}

func (s *session) disclosures(all []client.Disclosure, answer any, err error) error {
	if err != nil {
		return err
	}
	return s.show(answer, func(p *page) {
		if len(all) == 0 {
			p.line("No grants.")
			return
		}
		p.row("ID", "AUDITOR", "CLASSES", "UNTIL", "ACTIVE", "GRANTED BY", "ENDED BY", "REASON")
		for _, d := range all {
			p.row(d.ID, d.PersonID, strings.Join(d.Classes, ", "), d.Until.UTC().Format(minuteLayout), d.Active, d.GrantedBy, cmp.Or(d.EndedBy, "-"), d.Reason)
		}
	})
}

func personalDataCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "personal-data",
		Short: "Find persons, and report what is stored about them",
	}
	cmd.AddCommand(reportPersonalDataCommand(), searchPersonalDataCommand())
	return cmd
}

func searchPersonalDataCommand() *cobra.Command {
	var body client.PersonalSearch
	var reason string
	cmd := &cobra.Command{
		Use:   "search",
		Short: "Find the ids of persons by name, e-mail address or telephone number",
		Long: "Prints in whose events the text stands, and where; no values. All words of a name must stand in\n" +
			"records of the person. For compliance officers and those who approve erasures. Each search is in\n" +
			"the access log, without the text.",
		Example: "  backbone personal-data search --name \"Anna Meyer\" --reason \"Request of the person, ticket 4711\"\n" +
			"  backbone personal-data search --email anna@example.org --reason \"ticket 4711\" --json",
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&body.Name, "name", "", "words of a name")
	f.StringVar(&body.Email, "email", "", "a whole e-mail address")
	f.StringVar(&body.Phone, "phone", "", "a telephone number, with the code of its country")
	f.StringVar(&body.LegalEntity, "legal-entity", "", "only records of this legal entity (default: all that you may see)")
	f.StringVar(&reason, "reason", "", "why, for the access log; no personal data (required)")
	f.IntVar(&body.Limit, "limit", 100, "at most so many persons")
	f.StringVar(&body.Cursor, "cursor", "", "continue after an earlier page")
	cmd.MarkFlagsOneRequired("name", "email", "phone")
	cmd.MarkFlagsMutuallyExclusive("name", "email", "phone")
	required(cmd, "reason")
	return serverCommand(cmd, func(ctx context.Context, s *session, _ []string) error {
		found, err := s.SearchPersonalData(ctx, client.SearchPersonalDataParams{AccessReason: reason}, body, s.keep())
		if err != nil {
			return err
		}
		return s.print(func(p *page) {
			if len(found.Persons) == 0 {
				p.line("No persons.")
			} else {
				p.row("SUBJECT", "LEGAL ENTITY", "TYPE", "MEMBER", "CLASS")
			}
			for _, person := range found.Persons {
				for _, at := range person.Places {
					p.row(person.Subject, at.LegalEntity, at.Type, at.Path, at.Class)
				}
			}
			if len(found.Behind) > 0 {
				p.line("Not searched to the end yet: %s. Search again in a moment.", strings.Join(found.Behind, ", "))
			}
			p.next(found.NextCursor)
		})
	})
}

func reportPersonalDataCommand() *cobra.Command {
	var server, token, legalEntity, reason string
	cmd := &cobra.Command{
		Use:   "report SUBJECT",
		Short: "Print everything that is stored about a person, as JSON Lines",
		Long: "For the answer to a person who asks what is stored about them (GDPR Art. 15): events and intents with\n" +
			"the person's values, read models, purposes and retention, holds, erasures, and who read the data.\n" +
			"Values of other persons are masked. For compliance officers; the report is in the access log.\n" +
			"It ends with status 0 only when everything is there.",
		Example: "  backbone personal-data report vendor:V-000003 --reason \"Request of the person, ticket 4711\" > report.jsonl",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := connect(cmd, server, token, "client.token_missing", true)
			if err != nil {
				return err
			}
			return s.PersonalReport(cmd.Context(), args[0], legalEntity, reason, s.out)
		},
	}
	f := cmd.Flags()
	serverFlags(cmd, &server, &token)
	f.StringVar(&legalEntity, "legal-entity", "", "only records of this legal entity (default: all that you may see)")
	f.StringVar(&reason, "reason", "", "why, for the access log; no personal data (required)")
	required(cmd, "reason")
	return cmd
}

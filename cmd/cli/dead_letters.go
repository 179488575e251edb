package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

func deadLettersCommand() *cobra.Command {
	var filter client.ListDeadLettersParams
	var statuses []string
	cmd := &cobra.Command{
		Use: "deadletters", Short: "List the events that could not be processed", Args: cobra.NoArgs,
		Long: "An entry says what is wrong and where in the event, and no value of it. Those of projections\n" +
			"are decided with `backbone projections fix`, `skip` or `reset`.",
		Example: "  backbone deadletters\n  backbone deadletters --name gl.ledger --status waiting --json",
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.Kind, "kind", "", "only those of readers of this kind, such as projection")
	flags.StringVar(&filter.Name, "name", "", "only those of this reader")
	flags.StringSliceVar(&statuses, "status", nil, "only those that are waiting, passed, skipped, resolved or discarded")
	flags.IntVar(&filter.Limit, "limit", 100, "at most so many")
	flags.StringVar(&filter.Cursor, "cursor", "", "continue after an earlier page")
	return serverCommand(cmd, func(ctx context.Context, s *session, _ []string) error {
		filter.Status = strings.Join(statuses, ",")
		list, err := s.ListDeadLetters(ctx, filter)
		if err != nil {
			return err
		}
		parked, err := s.subscriptionDeadLetters(ctx, filter, statuses)
		if err != nil {
			return err
		}
		all := append(list.DeadLetters, parked...)
		return s.show(map[string]any{"dead_letters": all, "next_cursor": list.NextCursor}, func(p *page) {
			if len(all) == 0 {
				p.line("No dead letters.")
				return
			}
			p.row("READER", "LEGAL ENTITY", "SEQUENCE", "EVENT", "STATE", "CODE", "WHERE", "ATTEMPTS", "LAST FAILED")
			for _, d := range all {
				p.row(d.Kind+" "+d.Name, d.LegalEntity, d.Sequence, d.EventID, d.Status, d.Code, cmp.Or(d.Detail, "-"), d.Attempts, d.LastFailedAt.UTC().Format(minuteLayout))
			}
			p.next(list.NextCursor)
		})
	})
}

// subscriptionDeadLetters lists the dead letters of subscriptions in the form of those of
// projections: on the first page only, at most limit for each subscription. A caller who may not
// read subscriptions gets none.
func (s *session) subscriptionDeadLetters(ctx context.Context, f client.ListDeadLettersParams, statuses []string) ([]client.DeadLetter, error) {
	const kind, waiting = "subscription", "waiting"
	if f.Cursor != "" || f.Kind != "" && f.Kind != kind || len(statuses) > 0 && !slices.Contains(statuses, waiting) {
		return nil, nil
	}
	all, err := s.ListSubscriptions(ctx)
	if fault.KindOf(err) == fault.Forbidden {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []client.DeadLetter
	for _, v := range all.Subscriptions {
		if f.Name != "" && f.Name != v.ID {
			continue
		}
		parked, err := s.ListParkedMessages(ctx, v.ID, client.ListParkedMessagesParams{Limit: f.Limit})
		if err != nil && fault.KindOf(err) != fault.NotFound { // the subscription was deleted after it was listed
			return nil, err
		}
		for _, m := range parked.Messages {
			out = append(out, client.DeadLetter{
				Kind: kind, Name: v.ID, LegalEntity: m.LegalEntity, Sequence: m.Sequence, EventID: m.EventID, Code: m.Code, Detail: m.Detail,
				Attempts: m.Attempts, FirstFailedAt: m.ParkedAt, LastFailedAt: m.ParkedAt, Status: waiting,
			})
		}
	}
	return out, nil
}

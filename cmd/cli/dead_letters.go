package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

func deadLettersCommand() *cobra.Command {
	var f DeadLetterFilter
	cmd := &cobra.Command{
		Use: "deadletters", Short: "List the events that could not be digested", Args: cobra.NoArgs,
		Long: "An entry says what is wrong and where in the event, and no value of it. Those of projections\n" +
			"are settled with `backbone projections fix`, `skip` or `reset`.",
		Example: "  backbone deadletters\n  backbone deadletters --name gl.ledger --status waiting --json",
	}
	options := clientFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.Kind, "kind", "", "only those of readers of this kind, such as projection")
	flags.StringVar(&f.Name, "name", "", "only those of this reader")
	flags.StringSliceVar(&f.Statuses, "status", nil, "only those that are waiting, passed, skipped, resolved or discarded")
	flags.IntVar(&f.Limit, "limit", 100, "at most so many")
	flags.StringVar(&f.Cursor, "cursor", "", "go on after an earlier page")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return ListDeadLetters(cmd.Context(), options(), f) }
	return cmd
}

// DeadLetterFilter says which dead letters `backbone deadletters` lists.
type DeadLetterFilter = httpclient.DeadLetterFilter

// ListDeadLetters prints dead letters, at most limit of them.
func ListDeadLetters(ctx context.Context, o ClientOptions, f DeadLetterFilter) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	page, next, err := client.DeadLetters(ctx, f)
	if err != nil {
		return err
	}
	parked, err := subscriptionDeadLetters(ctx, client, f)
	if err != nil {
		return err
	}
	page = append(page, parked...)
	if o.JSON {
		return o.json(map[string]any{"dead_letters": page, "next_cursor": next})
	}
	if len(page) == 0 {
		_, err := fmt.Fprintln(o.Out, "No dead letters.")
		return err
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "READER\tLEGAL ENTITY\tSEQUENCE\tEVENT\tSTATE\tCODE\tWHERE\tATTEMPTS\tLAST FAILED")
	for _, d := range page {
		fmt.Fprintf(table, "%s %s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", d.Kind, d.Name, d.LegalEntity, d.Sequence, d.EventID, d.Status, d.Code,
			cmp.Or(d.Detail, "-"), d.Attempts, d.LastFailedAt.UTC().Format(minute))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintln(o.Out, "There are more; go on with --cursor", next)
	}
	return nil
}

// subscriptionDeadLetters are the dead letters of subscriptions as those of other
// readers are listed: on the first page, up to the limit for each. Who may not look
// after subscriptions sees none.
func subscriptionDeadLetters(ctx context.Context, c *httpclient.Client, f httpclient.DeadLetterFilter) ([]httpclient.DeadLetter, error) {
	const kind, waiting = "subscription", "waiting"
	if f.Cursor != "" || f.Kind != "" && f.Kind != kind || len(f.Statuses) > 0 && !slices.Contains(f.Statuses, waiting) {
		return nil, nil
	}
	all, err := c.Subscriptions(ctx)
	if fault.KindOf(err) == fault.Forbidden {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []httpclient.DeadLetter
	for _, s := range all {
		if f.Name != "" && f.Name != s.ID {
			continue
		}
		parked, _, err := c.Parked(ctx, s.ID, "", "", f.Limit)
		if err != nil && fault.KindOf(err) != fault.NotFound { // deleted meanwhile
			return nil, err
		}
		for _, m := range parked {
			out = append(out, httpclient.DeadLetter{
				Kind: kind, Name: s.ID, LegalEntity: m.LegalEntity, Sequence: m.Sequence, EventID: m.EventID, Code: m.Code, Detail: m.Detail,
				Attempts: m.Attempts, FirstFailedAt: m.ParkedAt, LastFailedAt: m.ParkedAt, Status: waiting,
			})
		}
	}
	return out, nil
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
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
	var h NewHold
	cmd := &cobra.Command{
		Use:   "place SUBJECT",
		Short: "Place a legal hold",
		Example: "  backbone holds place employee:E-1 --reason \"Proceedings 4711\"\n" +
			"  backbone holds place employee:E-1 --reason \"Audit 2025\" --legal-entity DEMF --until 2027-12-31",
		Args: cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&h.Reason, "reason", "", "why; no personal data (required)")
	f.StringSliceVar(&h.LegalEntities, "legal-entity", nil, "only in these legal entities (default: all of the tenant)")
	f.StringVar(&h.Until, "until", "", "last day, as 2026-03-31 (default: until it is released)")
	_ = cmd.MarkFlagRequired("reason") // the flag exists
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h.Subject = args[0]
		return PlaceHold(cmd.Context(), options(), h)
	}
	return cmd
}

func releaseHoldCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "release ID",
		Short:   "End a legal hold",
		Example: "  backbone holds release 01JQ8E6Z6G3V5T8C9N2M4K7R1P",
		Args:    cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ReleaseHold(cmd.Context(), options(), args[0])
	}
	return cmd
}

func listHoldsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list SUBJECT",
		Short:   "List the legal holds in force on a person",
		Example: "  backbone holds list employee:E-1 --json",
		Args:    cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ListHolds(cmd.Context(), options(), args[0])
	}
	return cmd
}

// NewHold is what `backbone holds place` asks for.
type NewHold = httpclient.NewHold

// PlaceHold places legal holds and prints them.
func PlaceHold(ctx context.Context, o ClientOptions, h NewHold) error {
	return showHolds(o, func(c *httpclient.Client) ([]httpclient.Hold, error) { return c.PlaceHold(ctx, h) })
}

// ReleaseHold ends a legal hold and prints it.
func ReleaseHold(ctx context.Context, o ClientOptions, id string) error {
	return showHolds(o, func(c *httpclient.Client) ([]httpclient.Hold, error) {
		h, err := c.ReleaseHold(ctx, id)
		return []httpclient.Hold{h}, err
	})
}

// ListHolds prints the legal holds in force on a person.
func ListHolds(ctx context.Context, o ClientOptions, subject string) error {
	return showHolds(o, func(c *httpclient.Client) ([]httpclient.Hold, error) { return c.Holds(ctx, subject) })
}

func showHolds(o ClientOptions, do func(*httpclient.Client) ([]httpclient.Hold, error)) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	all, err := do(client)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"legal_holds": all})
	}
	if len(all) == 0 {
		fmt.Fprintln(o.Out, "There is no legal hold in force.")
		return nil
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tSUBJECT\tLEGAL ENTITY\tUNTIL\tPLACED BY\tRELEASED BY\tREASON")
	for _, h := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.ID, h.Subject, cmp.Or(h.LegalEntity, "all"), cmp.Or(h.Until, "until released"), h.PlacedBy, cmp.Or(h.ReleasedBy, "-"), h.Reason)
	}
	return table.Flush()
}

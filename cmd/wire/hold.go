package wire

import (
	"cmp"
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/erpbackbone/backbone/adapters/httpclient"
)

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

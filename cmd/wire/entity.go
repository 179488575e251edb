package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

// EntityQuery names an entity and what is to be read of it.
type EntityQuery = httpclient.EntityQuery

// ShowEntity prints the state of an entity and how far it goes with the log.
func ShowEntity(ctx context.Context, o ClientOptions, q EntityQuery) error {
	if q.LegalEntity == "" {
		return fault.New(fault.Invalid, "entity.legal_entity_missing", "no legal entity; set BACKBONE_LEGAL_ENTITY or --legal-entity")
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	e, err := client.Entity(ctx, q)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(e)
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "entity\t%s %s of %s\n", e.Entity.Type, e.Entity.ID, e.LegalEntity)
	fmt.Fprintf(table, "version\t%s, as of sequence %s\n", e.Version, e.AsOfSequence)
	if e.HeadVersion != e.Version {
		fmt.Fprintf(table, "newest event\t%s\n", e.HeadVersion)
	}
	fmt.Fprintf(table, "consistency\t%s\n", e.Consistency)
	if e.AsOf != "" {
		fmt.Fprintf(table, "as of\t%s\n", e.AsOf)
	}
	if e.KnownAt != "" {
		fmt.Fprintf(table, "known at\t%s\n", e.KnownAt)
	}
	from := "from the first one"
	if e.Snapshot != nil {
		from = "after the snapshot of sequence " + e.Snapshot.AsOfSequence
	}
	fmt.Fprintf(table, "events\t%d, %d folded now, %s\n", e.EventCount, e.EventsFolded, from)
	if err := table.Flush(); err != nil {
		return err
	}
	var state bytes.Buffer
	if err := json.Indent(&state, e.State, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.Out, state.String())
	return err
}

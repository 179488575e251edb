package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

func entityCommand() *cobra.Command {
	var q EntityQuery
	cmd := &cobra.Command{
		Use:   "entity TYPE ID",
		Short: "Show the state of an entity, now or as of a day as known at a moment",
		Long: "entity folds all events of a legal entity that refer to the entity. With --as-of only those\n" +
			"count that take effect on that day or before, with --known-at only those that were recorded\n" +
			"then. --consistency verified or eventual answer from a snapshot.",
		Example: "  backbone entity vendor V-000001 --legal-entity DEMF\n" +
			"  backbone entity invoice 01JQ8E6Z6G3V5T8C9N2M4K7R1P --legal-entity DEMF --known-at seq:1000 --json",
		Args: cobra.ExactArgs(2),
	}
	options := clientFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&q.LegalEntity, "legal-entity", os.Getenv("BACKBONE_LEGAL_ENTITY"), "legal entity of the events (environment BACKBONE_LEGAL_ENTITY)")
	f.Lookup("legal-entity").DefValue = ""
	f.StringVar(&q.AsOf, "as-of", "", "only events that take effect on this day or before, such as 2026-03-31")
	f.StringVar(&q.KnownAt, "known-at", "", "only events recorded then: an RFC 3339 time or seq:<n>")
	f.StringVar(&q.Consistency, "consistency", "", "strong, verified or eventual (default: strong)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q.Type, q.ID = args[0], args[1]
		return ShowEntity(cmd.Context(), options(), q)
	}
	return cmd
}

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

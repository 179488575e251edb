package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

func entityCommand() *cobra.Command {
	var q wire.EntityQuery
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
		return wire.ShowEntity(cmd.Context(), options(), q)
	}
	return cmd
}

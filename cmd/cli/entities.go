package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

func entityCommand() *cobra.Command {
	var query client.GetEntityParams
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
	f := cmd.Flags()
	legalEntityFlag(cmd, &query.LegalEntity, "legal entity of the events (required; environment BACKBONE_LEGAL_ENTITY)")
	f.StringVar(&query.AsOf, "as-of", "", "only events that take effect on this day or before, such as 2026-03-31")
	f.StringVar(&query.KnownAt, "known-at", "", "only events recorded then: an RFC 3339 time or seq:<n>")
	f.StringVar(&query.AccessReason, "reason", "", "why personal data is read, for the access log (environment BACKBONE_ACCESS_REASON)")
	f.StringVar(&query.Consistency, "consistency", "", "strong, verified or eventual (default: strong)")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		if query.LegalEntity == "" {
			return fault.New(fault.Invalid, "entity.legal_entity_missing", "no legal entity; set BACKBONE_LEGAL_ENTITY or --legal-entity")
		}
		e, err := s.GetEntity(ctx, args[0], args[1], query, s.keep())
		if err != nil {
			return err
		}
		var state bytes.Buffer
		if err := json.Indent(&state, e.State, "", "  "); err != nil {
			return err
		}
		return s.print(func(p *page) {
			p.row("entity", fmt.Sprintf("%s %s of %s", e.Entity.Type, e.Entity.ID, e.LegalEntity))
			p.row("version", fmt.Sprintf("%s, as of sequence %s", e.Version, e.AsOfSequence))
			if e.HeadVersion != e.Version {
				p.row("newest event", e.HeadVersion)
			}
			p.row("consistency", e.Consistency)
			if e.AsOf != "" {
				p.row("as of", e.AsOf)
			}
			if e.KnownAt != "" {
				p.row("known at", e.KnownAt)
			}
			from := "from the first one"
			if e.Snapshot != nil {
				from = "after the snapshot of sequence " + e.Snapshot.AsOfSequence
			}
			p.row("events", fmt.Sprintf("%d, %d folded now, %s", e.EventCount, e.EventsFolded, from))
			p.line("%s", state.String())
		})
	})
}

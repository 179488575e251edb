package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/domain/fault"
)

func fanoutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fanout",
		Short: "Operate the fan-out of events to NATS JetStream",
		Long: "Servers with nats.urls in their configuration publish every event to a JetStream stream,\n" +
			"in order within each legal entity. `backbone dev --nats` does so to a server of its own.",
	}
	cmd.AddCommand(fanoutStatusCommand())
	return cmd
}

func fanoutStatusCommand() *cobra.Command {
	var o databaseOptions
	return databaseCommand(&cobra.Command{
		Use:   "status",
		Short: "Show how far every legal entity is published",
		Long: "status shows, for every legal entity, how much is not published yet and how old the oldest\n" +
			"of it is, which node publishes it, and after failures the last one and when it is tried\n" +
			"again at the latest. Nodes share the legal entities evenly.",
		Example: "  backbone fanout status\n" +
			"  backbone fanout status --config /etc/backbone.yaml --json",
	}, &o, func(ctx context.Context) error { return printFanoutStatus(ctx, o) })
}

// printFanoutStatus prints how far every legal entity is published.
func printFanoutStatus(ctx context.Context, o databaseOptions) error {
	if o.Config.Database.DSN == "" {
		return fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN, or name the folder of a running \"backbone dev\" with --data-dir")
	}
	lines, err := wire.FanoutStatus(ctx, o.Config.Database.DSN.Reveal())
	if err != nil {
		return err
	}
	return o.show(map[string]any{"partitions": lines}, func(p *page) {
		p.row("TENANT", "LEGAL ENTITY", "PUBLISHED", "HEAD", "LAG", "OLDEST", "NODE", "LAST ERROR", "NEXT ATTEMPT")
		held := map[string]int{} // legal entities by node
		for i := range lines {
			l := &lines[i]
			oldest, problem, node, next := "-", "-", "-", "-"
			if l.LagEvents > 0 {
				oldest = time.Duration(l.LagSeconds * float64(time.Second)).Round(time.Second).String()
			}
			if l.LastError != "" {
				problem = fmt.Sprintf("%s (%d in a row)", l.LastError, l.Failures)
			}
			if l.Holder != "" {
				node, _, _ = strings.Cut(l.Holder, "/")
				held[node]++
			}
			if l.NextAttemptAt != nil {
				next = "now"
				if wait := time.Until(*l.NextAttemptAt); wait > 0 {
					next = "in " + wait.Round(time.Second).String()
				}
			}
			p.row(l.TenantID, l.LegalEntity, l.PublishedThrough, l.Head, l.LagEvents, oldest, node, problem, next)
		}
		for _, node := range slices.Sorted(maps.Keys(held)) {
			p.line("%s publishes %d of %d legal entities.", node, held[node], len(lines))
		}
	})
}

package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
)

func projectionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "projections",
		Short: "Operate the projections, which write the read models",
		Long: "A projection follows the log of every legal entity. An event that it cannot process blocks\n" +
			"it in that legal entity alone, unless its settings say otherwise, and becomes a dead letter.",
	}
	cmd.AddCommand(createProjectionCommand(), reviseProjectionCommand(), projectionDefinitionCommand(), deleteProjectionCommand(), projectionRowsCommand(), listProjectionsCommand(), showProjectionCommand(), configureProjectionCommand())
	cmd.AddCommand(rebuildCommands()...)
	for _, c := range []struct{ action, short, long string }{
		{"start", "Start a projection that was created or stopped", ""},
		{"pause", "Pause a projection", ""},
		{"resume", "Resume a paused projection", ""},
		{"stop", "Stop a projection until it is started again", ""},
		{"reset", "Forget what a projection wrote and read again from the beginning", "Until it has caught up, readers see the rows that were read so far."},
		{"fix", "Retry the event that blocks a projection", "Correct the cause first. Without --legal-entity it retries in all legal entities."},
		{"skip", "Skip the event that blocks a projection", "The read model lacks that event from then on. It needs --legal-entity."},
	} {
		cmd.AddCommand(changeProjectionCommand(c.action, c.short, c.long))
	}
	return cmd
}

func listProjectionsCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use: "list", Short: "List the projections and how far they are behind", Args: cobra.NoArgs,
		Example: "  backbone projections list\n  backbone projections list --json",
	}, func(ctx context.Context, s *session, _ []string) error {
		all, err := s.ListProjections(ctx, s.keep())
		if err != nil {
			return err
		}
		return s.print(func(p *page) {
			p.row("PROJECTION", "VERSION", "STATE", "LAG", "SECONDS", "PROCESSED", "SKIPPED", "FAILED", "BLOCKED")
			for _, v := range all.Projections {
				state, blocked := v.Status, "-"
				if !v.Current {
					state += " (" + v.Role
					if v.LegalEntity != "" {
						state += " for " + v.LegalEntity
					}
					state += ")"
				}
				if v.Faulted > 0 {
					blocked = fmt.Sprintf("in %d", v.Faulted)
				}
				p.row(v.Name, v.Version, state, v.LagEvents, fmt.Sprintf("%.0f", v.LagSeconds), v.Processed, v.Skipped, v.Failed, blocked)
			}
		})
	})
}

func showProjectionCommand() *cobra.Command {
	return serverCommand(&cobra.Command{
		Use: "show PROJECTION", Short: "Show the state of a projection in each legal entity", Args: cobra.ExactArgs(1),
		Example: "  backbone projections show gl.ledger",
	}, func(ctx context.Context, s *session, args []string) error {
		return s.projection(s.GetProjection(ctx, args[0], s.keep()))
	})
}

// projection prints a projection by legal entity.
func (s *session) projection(v client.Projection, err error) error {
	if err != nil {
		return err
	}
	return s.print(func(p *page) {
		p.line("%s, version %d: %s since %s, by %s", v.Name, v.Version, v.Status, v.ChangedAt.UTC().Format(minuteLayout), v.ChangedBy)
		p.row("LEGAL ENTITY", "STATE", "SEQUENCE", "HEAD", "LAG", "SECONDS", "ATTEMPTS", "CODE", "NODE")
		for _, e := range v.LegalEntities {
			p.row(e.LegalEntity, e.Status, e.Sequence, e.Head, e.LagEvents, fmt.Sprintf("%.0f", e.LagSeconds), e.Attempts, cmp.Or(e.Code, "-"), cmp.Or(e.Node, "-"))
		}
	})
}

func changeProjectionCommand(action, short, long string) *cobra.Command {
	var body client.ProjectionCommand
	example := "  backbone projections " + action + " gl.ledger"
	partial := action == "fix" || action == "skip" || action == "reset"
	if partial {
		example += " --legal-entity USMF --reason \"ticket 4711\""
	}
	cmd := &cobra.Command{Use: action + " PROJECTION", Short: short, Long: long, Example: example, Args: cobra.ExactArgs(1)}
	cmd.Flags().IntVar(&body.Version, "version", 0, "of the projection (default: the one that readers are shown)")
	if partial {
		cmd.Flags().StringVar(&body.LegalEntity, "legal-entity", "", "only there (default: all that you may change)")
		cmd.Flags().StringVar(&body.Reason, "reason", "", "why; kept with the dead letter, no personal data")
	}
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		return s.projection(s.OperateProjection(ctx, args[0], action, body, s.keep()))
	})
}

func configureProjectionCommand() *cobra.Command {
	var settings client.ProjectionSettings
	cmd := &cobra.Command{
		Use: "configure PROJECTION", Short: "Replace the settings of a projection", Args: cobra.ExactArgs(1),
		Long:    "What is left out becomes the default.",
		Example: "  backbone projections configure gl.ledger --max-attempts 10\n  backbone projections configure gl.ledger --checkpoint batched --checkpoint-events 200 --checkpoint-wait 500",
	}
	f := cmd.Flags()
	f.IntVar(&settings.BatchSize, "batch-size", 0, "events of one transaction (default: the node's configuration)")
	f.StringVar(&settings.Checkpoint.Mode, "checkpoint", "synchronous", "synchronous, or batched: wait for more events before a transaction")
	f.IntVar(&settings.Checkpoint.Events, "checkpoint-events", 0, "batched: so many events are enough")
	f.IntVar(&settings.Checkpoint.WaitMs, "checkpoint-wait", 0, "batched: an event waits so many milliseconds at most")
	f.IntVar(&settings.MaxAttempts, "max-attempts", 5, "at an event before it goes to the dead letters")
	f.IntVar(&settings.RetryMs, "retry", 1000, "milliseconds before the second attempt; they double from there")
	f.IntVar(&settings.RetryMaxMs, "retry-max", 60_000, "milliseconds at most between two attempts")
	f.StringVar(&settings.OnPoison, "on-poison", "stop_partition", "at an event that cannot be processed: stop_partition, stop_projection or skip")
	f.BoolVar(&settings.SingleInstance, "single-instance", false, "one node works all legal entities")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		v, err := s.ConfigureProjection(ctx, args[0], settings, s.keep())
		if err != nil {
			return err
		}
		return s.print(func(p *page) { p.line("%s: %s", v.Name, settingsText(v.Settings)) })
	})
}

// settingsText renders all settings.
func settingsText(s client.ProjectionSettings) string {
	checkpoints := s.Checkpoint.Mode
	if s.Checkpoint.Events > 0 {
		checkpoints = fmt.Sprintf("%s, each %d events or %d ms", s.Checkpoint.Mode, s.Checkpoint.Events, s.Checkpoint.WaitMs)
	}
	batch := "the node's batch size"
	if s.BatchSize > 0 {
		batch = fmt.Sprintf("batches of %d events", s.BatchSize)
	}
	nodes := "shared by all nodes"
	if s.SingleInstance {
		nodes = "on one node at a time"
	}
	return fmt.Sprintf("at most %d attempts, then %s; pauses of %d to %d ms; %s; checkpoints %s; %s",
		s.MaxAttempts, s.OnPoison, s.RetryMs, s.RetryMaxMs, batch, checkpoints, nodes)
}

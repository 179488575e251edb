package main

import (
	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

func projectionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "projections",
		Short: "Look after the projections, which write the read models",
		Long: "A projection follows the log of every legal entity and stands still at an event that it\n" +
			"cannot digest, in that legal entity alone unless its settings say otherwise. The event is\n" +
			"in the dead letters then.",
	}
	cmd.AddCommand(createProjectionCommand(), reviseProjectionCommand(), projectionDefinitionCommand(), deleteProjectionCommand(), projectionRowsCommand(), listProjectionsCommand(), showProjectionCommand(), configureProjectionCommand())
	cmd.AddCommand(rebuildCommands()...)
	for _, c := range []struct{ action, short, long string }{
		{"start", "Start a projection that was created or stopped", ""},
		{"pause", "Let a projection stand still for a while", ""},
		{"resume", "Let a paused projection go on", ""},
		{"stop", "Let a projection stand still for good", ""},
		{"reset", "Forget what a projection wrote and read again from the beginning", "Readers see what there is so far meanwhile."},
		{"fix", "Try again what a projection stands still at", "Correct the cause first. Without --legal-entity it tries again wherever it stands still."},
		{"skip", "Pass over the event that a projection stands still at", "The read model lacks that event from then on. It needs --legal-entity."},
	} {
		cmd.AddCommand(changeProjectionCommand(c.action, c.short, c.long))
	}
	return cmd
}

func listProjectionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the projections and how far they are behind", Args: cobra.NoArgs,
		Example: "  backbone projections list\n  backbone projections list --json",
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return wire.ListProjections(cmd.Context(), options()) }
	return cmd
}

func showProjectionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show PROJECTION", Short: "Show how a projection fares in each legal entity", Args: cobra.ExactArgs(1),
		Example: "  backbone projections show gl.ledger",
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.ShowProjection(cmd.Context(), options(), args[0])
	}
	return cmd
}

func changeProjectionCommand(action, short, long string) *cobra.Command {
	c := wire.ProjectionChange{Action: action}
	example := "  backbone projections " + action + " gl.ledger"
	partial := action == "fix" || action == "skip" || action == "reset"
	if partial {
		example += " --legal-entity USMF --reason \"ticket 4711\""
	}
	cmd := &cobra.Command{Use: action + " PROJECTION", Short: short, Long: long, Example: example, Args: cobra.ExactArgs(1)}
	options := clientFlags(cmd)
	cmd.Flags().IntVar(&c.Version, "version", 0, "of the projection (default: the one that readers are shown)")
	if partial {
		cmd.Flags().StringVar(&c.LegalEntity, "legal-entity", "", "only there (default: wherever you may)")
		cmd.Flags().StringVar(&c.Reason, "reason", "", "why; kept with the dead letter, no personal data")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.Name = args[0]
		return wire.ChangeProjection(cmd.Context(), options(), c)
	}
	return cmd
}

func configureProjectionCommand() *cobra.Command {
	var s wire.ProjectionSettings
	cmd := &cobra.Command{
		Use: "configure PROJECTION", Short: "Replace the settings of a projection", Args: cobra.ExactArgs(1),
		Long:    "What is left out becomes the default.",
		Example: "  backbone projections configure gl.ledger --max-attempts 10\n  backbone projections configure gl.ledger --checkpoint batched --checkpoint-events 200 --checkpoint-wait 500",
	}
	options := clientFlags(cmd)
	f := cmd.Flags()
	f.IntVar(&s.BatchSize, "batch-size", 0, "events of one transaction (default: the node's configuration)")
	f.StringVar(&s.Checkpoint.Mode, "checkpoint", "synchronous", "synchronous, or batched: wait for more events before a transaction")
	f.IntVar(&s.Checkpoint.Events, "checkpoint-events", 0, "batched: so many events are enough")
	f.IntVar(&s.Checkpoint.WaitMS, "checkpoint-wait", 0, "batched: an event waits so many milliseconds at most")
	f.IntVar(&s.MaxAttempts, "max-attempts", 5, "at an event before it goes to the dead letters")
	f.IntVar(&s.RetryMS, "retry", 1000, "milliseconds before the second attempt; they double from there")
	f.IntVar(&s.RetryMaxMS, "retry-max", 60_000, "milliseconds at most between two attempts")
	f.StringVar(&s.OnPoison, "on-poison", "stop_partition", "at an event that cannot be digested: stop_partition, stop_projection or skip")
	f.BoolVar(&s.SingleInstance, "single-instance", false, "one node works all legal entities")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.ConfigureProjection(cmd.Context(), options(), args[0], s)
	}
	return cmd
}

func deadLettersCommand() *cobra.Command {
	var f wire.DeadLetterFilter
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
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return wire.ListDeadLetters(cmd.Context(), options(), f) }
	return cmd
}

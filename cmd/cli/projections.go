package cli

import (
	"cmp"
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
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
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return ListProjections(cmd.Context(), options()) }
	return cmd
}

func showProjectionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show PROJECTION", Short: "Show how a projection fares in each legal entity", Args: cobra.ExactArgs(1),
		Example: "  backbone projections show gl.ledger",
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ShowProjection(cmd.Context(), options(), args[0])
	}
	return cmd
}

func changeProjectionCommand(action, short, long string) *cobra.Command {
	c := ProjectionChange{Action: action}
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
		return ChangeProjection(cmd.Context(), options(), c)
	}
	return cmd
}

func configureProjectionCommand() *cobra.Command {
	var s ProjectionSettings
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
		return ConfigureProjection(cmd.Context(), options(), args[0], s)
	}
	return cmd
}

// ProjectionSettings are the settings that `backbone projections configure` takes.
type ProjectionSettings = httpclient.ProjectionSettings

// ListProjections prints all projections.
func ListProjections(ctx context.Context, o ClientOptions) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	all, err := client.Projections(ctx)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(map[string]any{"projections": all})
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROJECTION\tVERSION\tSTATE\tLAG\tSECONDS\tPROCESSED\tSKIPPED\tFAILED\tSTANDS STILL")
	for _, p := range all {
		state := p.Status
		if !p.Current {
			state += " (" + p.Role
			if p.LegalEntity != "" {
				state += " for " + p.LegalEntity
			}
			state += ")"
		}
		still := "-"
		if p.Faulted > 0 {
			still = fmt.Sprintf("in %d", p.Faulted)
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%.0f\t%s\t%s\t%s\t%s\n", p.Name, p.Version, state, p.LagEvents, p.LagSeconds, p.Processed, p.Skipped, p.Failed, still)
	}
	return table.Flush()
}

// ShowProjection prints one projection by legal entity.
func ShowProjection(ctx context.Context, o ClientOptions, name string) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	p, err := client.Projection(ctx, name)
	if err != nil {
		return err
	}
	return o.projection(p)
}

// projection prints a projection by legal entity.
func (o ClientOptions) projection(p httpclient.Projection) error {
	if o.JSON {
		return o.json(p)
	}
	fmt.Fprintf(o.Out, "%s, version %d: %s since %s, by %s\n", p.Name, p.Version, p.Status, p.ChangedAt.UTC().Format(minute), p.ChangedBy)
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LEGAL ENTITY\tSTATE\tSEQUENCE\tHEAD\tLAG\tSECONDS\tATTEMPTS\tCODE\tNODE")
	for _, e := range p.LegalEntities {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%.0f\t%d\t%s\t%s\n", e.LegalEntity, e.Status, e.Sequence, e.Head, e.LagEvents, e.LagSeconds,
			e.Attempts, cmp.Or(e.Code, "-"), cmp.Or(e.Node, "-"))
	}
	return table.Flush()
}

// ProjectionChange is what `backbone projections start|pause|...` asks for.
type ProjectionChange struct {
	Name        string
	Action      string
	Version     int // 0: the one that readers are shown
	LegalEntity string
	Reason      string
}

// ChangeProjection does it and prints the projection afterwards.
func ChangeProjection(ctx context.Context, o ClientOptions, c ProjectionChange) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	p, err := client.OperateProjection(ctx, c.Name, c.Action, httpclient.ProjectionCommand{Version: c.Version, LegalEntity: c.LegalEntity, Reason: c.Reason})
	if err != nil {
		return err
	}
	return o.projection(p)
}

// ConfigureProjection replaces the settings and prints them.
func ConfigureProjection(ctx context.Context, o ClientOptions, name string, s ProjectionSettings) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	p, err := client.ConfigureProjection(ctx, name, s)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(p)
	}
	_, err = fmt.Fprintf(o.Out, "%s: %s\n", p.Name, settingsText(p.Settings))
	return err
}

// settingsText says all settings in words.
func settingsText(s ProjectionSettings) string {
	checkpoints := s.Checkpoint.Mode
	if s.Checkpoint.Events > 0 {
		checkpoints = fmt.Sprintf("%s, each %d events or %d ms", s.Checkpoint.Mode, s.Checkpoint.Events, s.Checkpoint.WaitMS)
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
		s.MaxAttempts, s.OnPoison, s.RetryMS, s.RetryMaxMS, batch, checkpoints, nodes)
}

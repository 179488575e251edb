package main

import (
	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

// rebuildCommands are those of `backbone projections` that are about versions.
func rebuildCommands() []*cobra.Command {
	return []*cobra.Command{
		rebuildCommand(), versionsCommand(), compareCommand(),
		switchCommand("switch", false, "Show readers the version that was built", "The version before is kept and follows the log, to go back to, until it is dropped."),
		switchCommand("rollback", true, "Show readers the version before again", "The version that was shown is kept in turn."),
		removeCommand("cancel", false, "End a rebuild and remove what it wrote"),
		removeCommand("drop", true, "Remove the version that is kept to go back to"),
	}
}

func rebuildCommand() *cobra.Command {
	var r wire.ProjectionRebuild
	cmd := &cobra.Command{
		Use: "rebuild PROJECTION", Short: "Build a projection anew beside the version that is shown", Args: cobra.ExactArgs(1),
		Long: "Readers are shown the version that there is until they are switched to the new one. With --switch\n" +
			"that is done once it has caught up; with --compare --switch only if no row differs. Ending this\n" +
			"command does not end the rebuild; `backbone projections cancel` does.",
		Example: "  backbone projections rebuild gl.ledger --wait --compare\n  backbone projections rebuild gl.ledger --compare --switch\n  backbone projections rebuild ap.vendors --switch",
	}
	options := clientFlags(cmd)
	cmd.Flags().BoolVar(&r.Wait, "wait", false, "wait until it has caught up and show the progress")
	cmd.Flags().BoolVar(&r.Compare, "compare", false, "wait, then compare it row by row with the version that is shown")
	cmd.Flags().BoolVar(&r.Switch, "switch", false, "switch readers to it once it has caught up")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Name = args[0]
		return wire.RebuildProjection(cmd.Context(), options(), r)
	}
	return cmd
}

func versionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "versions PROJECTION", Short: "Show the versions of a projection and how far a rebuild has come", Args: cobra.ExactArgs(1),
		Example: "  backbone projections versions gl.ledger\n  backbone projections versions gl.ledger --json",
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.ShowRebuild(cmd.Context(), options(), args[0])
	}
	return cmd
}

func compareCommand() *cobra.Command {
	var examples int
	cmd := &cobra.Command{
		Use: "compare PROJECTION", Short: "Compare the version that is shown with the one that is built", Args: cobra.ExactArgs(1),
		Long:    "Each legal entity is compared at one event. Rows are named by their key; no values are shown.",
		Example: "  backbone projections compare gl.ledger\n  backbone projections compare gl.ledger --examples 100 --json",
	}
	options := clientFlags(cmd)
	cmd.Flags().IntVar(&examples, "examples", 10, "name so many rows of each table and legal entity that differ")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.CompareProjection(cmd.Context(), options(), args[0], examples)
	}
	return cmd
}

func switchCommand(name string, back bool, short, long string) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: name + " PROJECTION", Short: short, Long: long, Args: cobra.ExactArgs(1),
		Example: "  backbone projections " + name + " gl.ledger",
	}
	options := clientFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "whatever that version lacks; readers may go back in time")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.SwitchProjection(cmd.Context(), options(), args[0], back, force)
	}
	return cmd
}

func removeCommand(name string, retained bool, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use: name + " PROJECTION", Short: short, Args: cobra.ExactArgs(1), Long: "Its rows are removed little by little.",
		Example: "  backbone projections " + name + " gl.ledger",
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.RemoveProjectionVersion(cmd.Context(), options(), args[0], retained)
	}
	return cmd
}

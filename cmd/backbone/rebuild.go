package main

import (
	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/domain/fault"
)

// rebuildCommands are those of `backbone projections` that are about versions.
func rebuildCommands() []*cobra.Command {
	return []*cobra.Command{
		rebuildCommand(), snapshotCommand(), versionsCommand(), compareCommand(),
		switchCommand("switch", false, "Show readers the version that was built", "The version before is kept and follows the log, to go back to, until it is dropped."),
		switchCommand("rollback", true, "Show readers the version before again", "The version that was shown is kept in turn."),
		removeCommand("cancel", false, "End a rebuild and remove what it wrote"),
		removeCommand("drop", true, "Remove the version that is kept to go back to, or a snapshot"),
	}
}

func rebuildCommand() *cobra.Command {
	var r wire.ProjectionRebuild
	var rows wire.ProjectionRows
	cmd := &cobra.Command{
		Use: "rebuild PROJECTION", Short: "Build a projection anew beside the version that is shown", Args: cobra.ExactArgs(1),
		Long: "Readers are shown the version that there is until they are switched to the new one. With --switch\n" +
			"that is done once it has caught up; with --compare --switch only if no row differs. Ending this\n" +
			"command does not end the rebuild; `backbone projections cancel` does.\n\n" +
			"With --legal-entity only the rows of that one are built anew; switching with the same flag shows them\n" +
			"there and keeps those before. With --from-snapshot the new version begins with a copy of a snapshot\n" +
			"and reads only what came after it.\n\n" +
			"With --entity or --subject only the rows of that entity, or of the entities that events about that\n" +
			"person belong to, are folded anew from the log, in place and at once, in every version.",
		Example: "  backbone projections rebuild gl.ledger --wait --compare\n  backbone projections rebuild gl.ledger --compare --switch\n  backbone projections rebuild ap.vendors --switch\n" +
			"  backbone projections rebuild gl.ledger --legal-entity USMF --compare\n  backbone projections rebuild gl.ledger --from-snapshot latest --wait\n" +
			"  backbone projections rebuild ap.vendors --entity ap.vendor/V-1042 --legal-entity USMF --dry-run\n  backbone projections rebuild ap.vendors --subject contact:C-17",
	}
	options := clientFlags(cmd)
	cmd.Flags().BoolVar(&r.Wait, "wait", false, "wait until it has caught up and show the progress")
	cmd.Flags().BoolVar(&r.Compare, "compare", false, "wait, then compare it row by row with the version that is shown")
	cmd.Flags().BoolVar(&r.Switch, "switch", false, "switch readers to it once it has caught up")
	cmd.Flags().StringVar(&rows.Entity, "entity", "", "only the rows of this entity: type/id of its stream; with --legal-entity")
	cmd.Flags().StringVar(&rows.Subject, "subject", "", "only the rows of the entities that events about this person belong to: type:id")
	cmd.Flags().StringVar(&rows.LegalEntity, "legal-entity", "", "only this one; of the entity with --entity (default: all, with --subject wherever you may)")
	cmd.Flags().StringVar(&r.FromSnapshot, "from-snapshot", "", "begin with a copy of this snapshot: its version, or latest")
	cmd.Flags().IntVar(&rows.Version, "version", 0, "with --entity or --subject: only in this version (default: in all)")
	cmd.Flags().BoolVar(&rows.DryRun, "dry-run", false, "with --entity or --subject: tell what would change and change nothing")
	cmd.MarkFlagsMutuallyExclusive("entity", "subject")
	for _, whole := range []string{"wait", "compare", "switch", "from-snapshot"} {
		cmd.MarkFlagsMutuallyExclusive("entity", whole)
		cmd.MarkFlagsMutuallyExclusive("subject", whole)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Name = args[0]
		if rows.Chosen() {
			return wire.RebuildProjectionRows(cmd.Context(), options(), r.Name, rows)
		}
		r.LegalEntity, rows.LegalEntity = rows.LegalEntity, ""
		if rows != (wire.ProjectionRows{}) {
			return fault.New(fault.Invalid, "projection.target_invalid", "--version and --dry-run go with --entity or --subject; name one")
		}
		return wire.RebuildProjection(cmd.Context(), options(), r)
	}
	return cmd
}

func snapshotCommand() *cobra.Command {
	var legalEntity string
	var wait bool
	cmd := &cobra.Command{
		Use: "snapshot PROJECTION", Short: "Take a snapshot that a rebuild may begin with", Args: cobra.ExactArgs(1),
		Long: "The rows that readers are shown are copied as they are, each legal entity at one event, while readers\n" +
			"and the projection go on. The newest three are kept. What was redacted or erased since is never copied\n" +
			"back, and no snapshot of another release's handler is.",
		Example: "  backbone projections snapshot gl.ledger --wait\n  backbone projections rebuild gl.ledger --from-snapshot latest --compare",
	}
	options := clientFlags(cmd)
	cmd.Flags().StringVar(&legalEntity, "legal-entity", "", "only this one (default: all)")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is complete")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.SnapshotProjection(cmd.Context(), options(), args[0], legalEntity, wait)
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
	var legalEntity string
	cmd := &cobra.Command{
		Use: "compare PROJECTION", Short: "Compare the version that is shown with the one that is built", Args: cobra.ExactArgs(1),
		Long:    "Each legal entity is compared at one event. Rows are named by their key; no values are shown.",
		Example: "  backbone projections compare gl.ledger\n  backbone projections compare gl.ledger --examples 100 --json",
	}
	options := clientFlags(cmd)
	cmd.Flags().StringVar(&legalEntity, "legal-entity", "", "compare what was built for this one alone")
	cmd.Flags().IntVar(&examples, "examples", 10, "name so many rows of each table and legal entity that differ")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.CompareProjection(cmd.Context(), options(), args[0], legalEntity, examples)
	}
	return cmd
}

func switchCommand(name string, back bool, short, long string) *cobra.Command {
	var force bool
	var legalEntity string
	cmd := &cobra.Command{
		Use: name + " PROJECTION", Short: short, Long: long, Args: cobra.ExactArgs(1),
		Example: "  backbone projections " + name + " gl.ledger\n  backbone projections " + name + " gl.ledger --legal-entity USMF",
	}
	options := clientFlags(cmd)
	cmd.Flags().StringVar(&legalEntity, "legal-entity", "", "only this one, of which a version of its own was built")
	cmd.Flags().BoolVar(&force, "force", false, "whatever that version lacks; readers may go back in time")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.SwitchProjection(cmd.Context(), options(), args[0], legalEntity, back, force)
	}
	return cmd
}

func removeCommand(name string, retained bool, short string) *cobra.Command {
	var legalEntity string
	snapshot := 0
	cmd := &cobra.Command{
		Use: name + " PROJECTION", Short: short, Args: cobra.ExactArgs(1), Long: "Its rows are removed little by little.",
		Example: "  backbone projections " + name + " gl.ledger",
	}
	options := clientFlags(cmd)
	cmd.Flags().StringVar(&legalEntity, "legal-entity", "", "the version, or the snapshot, of this one alone")
	if retained {
		cmd.Example += "\n  backbone projections " + name + " gl.ledger --snapshot 4"
		cmd.Flags().IntVar(&snapshot, "snapshot", 0, "remove this snapshot instead")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if snapshot != 0 {
			return wire.DropProjectionSnapshot(cmd.Context(), options(), args[0], legalEntity, snapshot)
		}
		return wire.RemoveProjectionVersion(cmd.Context(), options(), args[0], legalEntity, retained)
	}
	return cmd
}

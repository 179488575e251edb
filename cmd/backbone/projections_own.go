package main

import (
	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

func createProjectionCommand() *cobra.Command {
	var dryRun, untried bool
	cmd := &cobra.Command{
		Use: "create FILE", Short: "Create a projection out of a filter, a key and a fold", Args: cobra.ExactArgs(1),
		Long: "FILE is in YAML or JSON. key and fold are programs in jq: the key makes a text of an event, the\n" +
			"fold the new state of that key out of {state, event}; null leaves the event or the row out.\n" +
			"It takes the role admin. With expected_version 0, or without it, there must be no projection of that name.\n\n" +
			"  name: machines-serviced\n" +
			"  filter: {types: [equipment.machine.serviced]}\n" +
			"  key: .stream.id\n" +
			"  fold: '{count: ((.state.count // 0) + 1), last: .event.occurred_at}'",
		Example: "  backbone projections create machines.yaml --dry-run\n  backbone projections create machines.yaml",
	}
	options := clientFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "try it on events that are there, and do not create it")
	cmd.Flags().BoolVar(&untried, "untried", false, "create it without a trial")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.CreateProjection(cmd.Context(), options(), args[0], dryRun, untried)
	}
	return cmd
}

func reviseProjectionCommand() *cobra.Command {
	var r wire.ProjectionRevision
	cmd := &cobra.Command{
		Use: "change FILE", Short: "Build a projection that was created by another definition", Args: cobra.ExactArgs(1),
		Long: "FILE is as for create, and names the projection. The definition is tried, and a version is built with\n" +
			"it beside the one that readers are shown; versions, compare, switch, rollback, cancel and drop look after\n" +
			"it as after any rebuild. With --switch readers are switched to it once it has caught up. A file that definition\n" +
			"has printed says which version readers were shown (expected_version): the change is refused once somebody\n" +
			"else has shown them another one. Without that member any version is changed; 0 stands for none, and so changes\n" +
			"nothing. It takes the role admin.",
		Example: "  backbone projections change machines.yaml --dry-run\n  backbone projections change machines.yaml --compare\n  backbone projections change machines.yaml --switch",
	}
	options := clientFlags(cmd)
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "try it on events that are there, and do not build it")
	cmd.Flags().BoolVar(&r.Untried, "untried", false, "build it without a trial")
	cmd.Flags().BoolVar(&r.Wait, "wait", false, "wait until it has caught up and show the progress")
	cmd.Flags().BoolVar(&r.Compare, "compare", false, "wait, then show in what it differs from the version that is shown")
	cmd.Flags().BoolVar(&r.Switch, "switch", false, "switch readers to it once it has caught up")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Path = args[0]
		return wire.ReviseProjection(cmd.Context(), options(), r)
	}
	return cmd
}

func projectionDefinitionCommand() *cobra.Command {
	var version int
	cmd := &cobra.Command{
		Use: "definition PROJECTION", Short: "Print the definition of a projection that was created", Args: cobra.ExactArgs(1),
		Long:    "It is printed as a file for `backbone projections change`, with the version that readers are shown.",
		Example: "  backbone projections definition machines-serviced > machines.yaml\n  backbone projections definition machines-serviced --version 2 --json",
	}
	options := clientFlags(cmd)
	cmd.Flags().IntVar(&version, "version", 0, "of the projection (default: the one that readers are shown)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.ShowProjectionDefinition(cmd.Context(), options(), args[0], version)
	}
	return cmd
}

func deleteProjectionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete PROJECTION", Short: "Delete a projection that was created, and its rows", Args: cobra.ExactArgs(1),
		Example: "  backbone projections delete machines-serviced",
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.DeleteProjection(cmd.Context(), options(), args[0])
	}
	return cmd
}

func projectionRowsCommand() *cobra.Command {
	var q wire.ProjectionRowsQuery
	cmd := &cobra.Command{
		Use: "rows PROJECTION", Short: "List the rows of a projection that was created", Args: cobra.ExactArgs(1),
		Example: "  backbone projections rows machines-serviced --legal-entity USMF\n  backbone projections rows machines-serviced --legal-entity USMF --prefix M- --json",
	}
	options := clientFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&q.LegalEntity, "legal-entity", "", "in this legal entity")
	f.StringVar(&q.Key, "key", "", "only this row")
	f.StringVar(&q.Prefix, "prefix", "", "only rows whose keys begin so")
	f.StringVar(&q.MinSequence, "min-sequence", "", "wait until the projection has got there")
	f.IntVar(&q.Limit, "limit", 100, "at most so many")
	f.StringVar(&q.Cursor, "cursor", "", "go on after an earlier page")
	_ = cmd.MarkFlagRequired("legal-entity")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.ListProjectionRows(cmd.Context(), options(), args[0], q)
	}
	return cmd
}

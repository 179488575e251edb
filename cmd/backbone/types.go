package main

import (
	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

func typesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "types",
		Short: "Keep event types in files, check and register them",
		Long: "A version of an event type lives in a file, <type>.v<version>.json: the body of its\n" +
			"registration. Registered versions never change and are never deleted; a type that is\n" +
			"not wanted any more is deprecated.",
	}
	cmd.AddCommand(checkTypesCommand(), pushTypesCommand(), pullTypesCommand(), changeTypeCommand(false), changeTypeCommand(true), typeHistoryCommand())
	return cmd
}

func checkTypesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Find what registering would find, and register nothing",
		Long: "Each file is compared with the version before it: the registered one, or that of another\n" +
			"FILE. Exit code 1 when one would be refused.",
		Example: "  backbone types check types/equipment.machine.serviced.v2.json\n" +
			"  backbone types check types/*.json --json",
		Args: cobra.MinimumNArgs(1),
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return wire.CheckTypes(cmd.Context(), options(), args) }
	return cmd
}

func pushTypesCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "push DIR",
		Short: "Register the files of a directory that the server does not have",
		Long: "The plan is printed first. If a file would be refused, nothing is registered and the exit\n" +
			"code is 1. Pushing again changes nothing.",
		Example: "  backbone types push types --dry-run\n" +
			"  backbone types push types --server https://backbone.example",
		Args: cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the plan only")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.PushTypes(cmd.Context(), options(), args[0], dryRun)
	}
	return cmd
}

func pullTypesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pull DIR",
		Short: "Write all registered versions into a directory",
		Long: "Types of built-in modules are left out, they come with the program. Files are written\n" +
			"the same way every time; those that the server has nothing for stay.",
		Example: "  backbone types pull types",
		Args:    cobra.ExactArgs(1),
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.PullTypes(cmd.Context(), options(), args[0])
	}
	return cmd
}

// changeTypeCommand is deprecate, or reactivate.
func changeTypeCommand(reactivate bool) *cobra.Command {
	c := wire.TypeChange{Reactivate: reactivate}
	cmd := &cobra.Command{
		Use:   "deprecate TYPE",
		Short: "Take no more events of a type, or of one version",
		Long:  "Its events stay as they are and readable. Types of built-in modules cannot be deprecated.",
		Example: "  backbone types deprecate equipment.machine.serviced --reason \"replaced by equipment.service.done\"\n" +
			"  backbone types deprecate equipment.machine.serviced --schema-version 1",
		Args: cobra.ExactArgs(1),
	}
	if reactivate {
		cmd.Use, cmd.Short, cmd.Long = "reactivate TYPE", "Take events of a type, or of one version, again", ""
		cmd.Example = "  backbone types reactivate equipment.machine.serviced"
	}
	options := clientFlags(cmd)
	cmd.Flags().Uint32Var(&c.SchemaVersion, "schema-version", 0, "only this version (default: all)")
	cmd.Flags().StringVar(&c.Reason, "reason", "", "why; no personal data")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.Type = args[0]
		return wire.ChangeType(cmd.Context(), options(), c)
	}
	return cmd
}

func typeHistoryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "history [TYPE]",
		Short:   "Show who registered, deprecated and reactivated what of a type, or of all",
		Example: "  backbone types history equipment.machine.serviced\n  backbone types history --json",
		Args:    cobra.MaximumNArgs(1),
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := "" // of all
		if len(args) > 0 {
			name = args[0]
		}
		return wire.TypeHistory(cmd.Context(), options(), name)
	}
	return cmd
}

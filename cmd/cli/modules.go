package cli

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/scaffold"
)

func newCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "new", Short: "Begin a module"}
	cmd.AddCommand(newModuleCommand())
	return cmd
}

func newModuleCommand() *cobra.Command {
	var o scaffold.Options
	cmd := &cobra.Command{
		Use:   "module NAME",
		Short: "Write a working business module into a repository of its own",
		Long: "module writes a Go module with one kind of item: event types, intents, roles, a policy,\n" +
			"a read model on PostgreSQL, tests, and a main function that runs Backbone with it and\n" +
			"the built-in modules. Rename and change it from there; docs/write-a-module.md explains it.",
		Example: "  backbone new module asset\n" +
			"  backbone new module asset --path github.com/acme/asset --checkout ../backbone",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			o.Dir, o.Path = cmp.Or(o.Dir, o.Name), cmp.Or(o.Path, "example.com/"+o.Name)
			if o.Checkout != "" {
				absolute, err := filepath.Abs(o.Checkout)
				if err != nil {
					return err
				}
				o.Checkout = absolute
			}
			written, err := scaffold.Write(o)
			if err != nil {
				return err
			}
			for _, path := range written {
				fmt.Fprintln(cmd.OutOrStdout(), path)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "\nNext:\n  cd %s\n  go mod tidy\n  go test ./...\n  go run ./cmd/backbone dev\n", o.Dir)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", "", "folder to write, new or empty (default: NAME)")
	f.StringVar(&o.Path, "path", "", "import path of the new repository (default: example.com/NAME)")
	f.StringVar(&o.Checkout, "checkout", "", "folder of a checkout of Backbone to build with (default: the newest release)")
	return cmd
}

package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
)

// localKeys adds the flags of commands that reach the keys themselves, without a
// server, and makes what runs them.
func localKeys(cmd *cobra.Command, o *wire.KeysOptions, run func(context.Context, wire.KeysOptions) error) *cobra.Command {
	var path, dataDir string
	f := cmd.Flags()
	f.StringVar(&path, "config", "", configHelp)
	f.StringVar(&dataDir, "data-dir", defaultDataDir, "data folder of a running \"backbone dev\", when no database is configured")
	f.BoolVar(&o.JSON, "json", false, "print the answer as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := configs.Load(path)
		if err != nil {
			return err
		}
		if config.Database.DSN == "" {
			if file, err := wire.ReadDevFile(dataDir); err == nil {
				config = wire.DevConfig(file)
			}
		}
		o.Config, o.Out, o.Err, o.Terminal = config, cmd.OutOrStdout(), cmd.ErrOrStderr(), wire.IsTerminal(os.Stderr)
		return run(cmd.Context(), *o)
	}
	cmd.Args = cobra.NoArgs
	return cmd
}

func keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Look after the keys that wrap the keys of persons",
		Long: "Every tenant has a key in the key service that wraps the keys of its persons. Replacing\n" +
			"it makes backups from before an erasure useless to whoever wants to undo the erasure.\n" +
			"These commands need the configuration of a server, with the eraser's address.",
	}
	cmd.AddCommand(listKeysCommand(), rotateKeysCommand(), exportKeysCommand(), restoreKeysCommand())
	return cmd
}

const tenantHelp = "only this tenant"

func listKeysCommand() *cobra.Command {
	var o wire.KeysOptions
	cmd := localKeys(&cobra.Command{
		Use:   "list",
		Short: "Show the epochs, and how many keys each wraps",
		Example: "  backbone keys list\n" +
			"  backbone keys list --config /etc/backbone.yaml --tenant acme --json",
	}, &o, wire.ListKeys)
	cmd.Flags().StringVar(&o.Tenant, "tenant", "", tenantHelp)
	return cmd
}

func rotateKeysCommand() *cobra.Command {
	var o wire.KeysOptions
	cmd := localKeys(&cobra.Command{
		Use:   "rotate",
		Short: "Begin a new epoch and end the old one",
		Long: "rotate makes a new key in the key service, wraps the keys of all persons with it, proves\n" +
			"that they open and that an export of the key store restores, and schedules the old key's\n" +
			"destruction. The old key opens nothing from that moment on; the export in\n" +
			"erasure.export_directory is then the only way to make an older backup readable, without\n" +
			"the erased. It may be interrupted and run again at any time; servers go on meanwhile.",
		Example: "  backbone keys rotate\n" +
			"  backbone keys rotate --config /etc/backbone.yaml --tenant acme",
	}, &o, wire.RotateKeys)
	cmd.Flags().StringVar(&o.Tenant, "tenant", "", tenantHelp+" (default: every tenant)")
	return cmd
}

func exportKeysCommand() *cobra.Command {
	var o wire.KeysOptions
	return localKeys(&cobra.Command{
		Use:   "export",
		Short: "Write the key store to the folder of exports",
		Long: "export writes all tables of the key store to erasure.export_directory and reads them\n" +
			"back. The keys in it are wrapped: without the key service they open nothing. Rotations\n" +
			"export by themselves.",
		Example: "  backbone keys export\n" +
			"  backbone keys export --config /etc/backbone.yaml --json",
	}, &o, wire.ExportKeys)
}

func restoreKeysCommand() *cobra.Command {
	var o wire.KeysOptions
	cmd := localKeys(&cobra.Command{
		Use:   "restore",
		Short: "Bring keys back after the database was restored from a backup",
		Long: "After a database was restored, its keys may be wrapped with keys that the key service has\n" +
			"destroyed since. restore replaces those from the newest export, and adds keys that the\n" +
			"backup does not know, and says whether erasures were forgotten: run\n" +
			"`backbone erasure replay` then. A database that lacks nothing stays as it is.",
		Example: "  backbone keys restore --config /etc/backbone.yaml\n" +
			"  backbone keys restore --export 12",
	}, &o, wire.RestoreKeys)
	cmd.Flags().Uint64Var(&o.Export, "export", 0, "number of the export (default: the newest)")
	return cmd
}

func replayCommand() *cobra.Command {
	var o wire.KeysOptions
	cmd := localKeys(&cobra.Command{
		Use:   "replay",
		Short: "Erase again what a restored database has forgotten to be erased",
		Long: "replay goes through the signed receipts in erasure.export_directory and fences and\n" +
			"destroys again whatever this database still knows of the persons they name. It may be\n" +
			"run at any time. Until it has run, servers on a restored database withhold personal data.",
		Example: "  backbone erasure replay\n" +
			"  backbone erasure replay --config /etc/backbone.yaml --vkey \"$(cat receipts.vkey)\"",
	}, &o, wire.ReplayErasures)
	cmd.Flags().StringSliceVar(&o.Verifier, "vkey", nil, "accept receipts signed with these keys only (default: those in the folder of exports)")
	return cmd
}

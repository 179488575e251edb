package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
)

func serveCommand(modules []plugin.Module) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API on a migrated and bootstrapped database",
		Long: "serve needs a key service for personal data (kms.endpoint of a `backbone kmsd`, or\n" +
			"kms.region for AWS KMS), the address of the role that erases (database.eraser_dsn) and\n" +
			"a folder for receipts (erasure.export_directory) outside the database's backups.",
		Example: "  backbone serve --config /etc/backbone.yaml\n" +
			"  BACKBONE_DATABASE_DSN=postgres://backbone_app@db/backbone backbone serve --config /etc/backbone.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := configs.Load(path)
			if err != nil {
				return err
			}
			return wire.Serve(cmd.Context(), config, modules)
		},
	}
	cmd.Flags().StringVar(&path, "config", "", configHelp)
	return cmd
}

func migrateCommand(modules []plugin.Module) *cobra.Command {
	var path, dsn string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to this version's schema",
		Long: "migrate runs as the owner (role backbone_owner), or as a superuser the first time and where\n" +
			"an upgrade changes roles or the key store. It only goes forward and may be run again at any\n" +
			"time. A key store with a database of its own is migrated too when keystore.owner_dsn is set.",
		Example: "  backbone migrate --dsn postgres://postgres@db/backbone\n" +
			"  BACKBONE_DATABASE_OWNER_DSN=postgres://backbone_owner@db/backbone backbone migrate",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := configs.Load(path)
			if err != nil {
				return err
			}
			if dsn == "" {
				dsn = config.Database.OwnerDSN.Reveal()
			}
			if dsn == "" {
				return fmt.Errorf("no owner DSN; give --dsn or set BACKBONE_DATABASE_OWNER_DSN")
			}
			show := func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) }
			if err := wire.Migrate(cmd.Context(), dsn, show, modules...); err != nil || config.KeyStore.OwnerDSN == "" {
				return err
			}
			return migrate.KeyStore(cmd.Context(), config.KeyStore.OwnerDSN.Reveal(), show)
		},
	}
	cmd.Flags().StringVar(&path, "config", "", configHelp)
	cmd.Flags().StringVar(&dsn, "dsn", "", "the owner's DSN (default: database.owner_dsn)")
	return cmd
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
)

const configHelp = "configuration file (YAML); the environment (BACKBONE_…) wins over it"

func serveCommand() *cobra.Command {
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
			return wire.Serve(cmd.Context(), config)
		},
	}
	cmd.Flags().StringVar(&path, "config", "", configHelp)
	return cmd
}

func migrateCommand() *cobra.Command {
	var path, dsn string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to this version's schema",
		Long: "migrate runs as the owner (role backbone_owner, or a superuser the first time,\n" +
			"since it makes the roles). It only goes forward and may be run again at any time. A key\n" +
			"store with a database of its own is migrated too when keystore.owner_dsn is set.",
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
			if err := wire.Migrate(cmd.Context(), dsn, show); err != nil || config.KeyStore.OwnerDSN == "" {
				return err
			}
			return wire.MigrateKeyStore(cmd.Context(), config.KeyStore.OwnerDSN.Reveal(), show)
		},
	}
	cmd.Flags().StringVar(&path, "config", "", configHelp)
	cmd.Flags().StringVar(&dsn, "dsn", "", "the owner's DSN (default: database.owner_dsn)")
	return cmd
}

func bootstrapCommand() *cobra.Command {
	var path string
	var o wire.BootstrapOptions
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Make the first tenant and its first administrator",
		Long: "bootstrap fixes the log's name, which enters every checksum and can never change,\n" +
			"and prints the first administrator's access token once. Only its hash is kept.",
		Example: "  backbone bootstrap --log-name ledger.example.org --tenant acme --admin p-0001",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := configs.Load(path)
			if err != nil {
				return err
			}
			token, err := wire.Bootstrap(cmd.Context(), config, o)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Log %s, tenant %s. The administrator's token, shown once:\n", o.LogName, o.Tenant)
			fmt.Fprintln(cmd.OutOrStdout(), token)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", configHelp)
	f.StringVar(&o.LogName, "log-name", "", "name of the log, like a host name (required)")
	f.Uint16Var(&o.Deployment, "deployment", 0, "number of this deployment, 0 to 4095; it is part of every partition id")
	f.StringVar(&o.Tenant, "tenant", "", "id of the first tenant (required)")
	f.StringVar(&o.Admin, "admin", "", "pseudonymous id of the first administrator's person, such as p-0001 (required)")
	for _, name := range []string{"log-name", "tenant", "admin"} {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
	return cmd
}

func enrollCommand() *cobra.Command {
	var path string
	var o wire.EnrollOptions
	cmd := &cobra.Command{
		Use:   "enroll",
		Short: "Let a further person or service in",
		Long: "enroll stores a principal and prints its access token once. Roles: module, importer,\n" +
			"ap_clerk, approver, vendor_admin, treasurer, gl_accountant, controller, cfo, auditor,\n" +
			"compliance, compliance_approver, admin, operator.\n\n" +
			"Access lasts a year. Whoever's has expired is enrolled again the same way, with the roles\n" +
			"that are given now; --renew replaces a token that is still good, such as a lost one, and\n" +
			"without --role leaves the rights as they are. The token before is good no longer.\n\n" +
			"Somebody new may see all legal entities unless --legal-entity names some. Whoever was let\n" +
			"into some only stays there until others are named, or --all-legal-entities is given. A\n" +
			"person never becomes a service, nor a service a person.",
		Example: "  backbone enroll --tenant acme --person p-0002 --role ap_clerk --legal-entity USMF\n" +
			"  backbone enroll --tenant acme --person s-invoices --role importer --service\n" +
			"  backbone enroll --tenant acme --person p-0002 --renew\n" +
			"  backbone enroll --tenant acme --person p-0002 --renew --role controller --all-legal-entities",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := configs.Load(path)
			if err != nil {
				return err
			}
			token, renewed, err := wire.Enroll(cmd.Context(), config, o)
			if err != nil {
				return err
			}
			again := ""
			if renewed {
				again = "again "
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s of tenant %s may %scome in for a year with this token, shown once:\n", o.Person, o.Tenant, again)
			fmt.Fprintln(cmd.OutOrStdout(), token)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", configHelp)
	f.StringVar(&o.Tenant, "tenant", "", "id of the tenant (required)")
	f.StringVar(&o.Person, "person", "", "pseudonymous id of the person or service (required)")
	f.StringSliceVar(&o.Roles, "role", nil, "role; may be given several times (required but for --renew)")
	f.StringSliceVar(&o.LegalEntities, "legal-entity", nil, "only these legal entities (default: all of the tenant, or as before)")
	f.BoolVar(&o.Everywhere, "all-legal-entities", false, "all legal entities of the tenant, also for whoever was let into some only")
	f.BoolVar(&o.Service, "service", false, "a service identity, not a person; it never approves")
	f.BoolVar(&o.Renew, "renew", false, "replace a token that is still good")
	cmd.MarkFlagsMutuallyExclusive("legal-entity", "all-legal-entities")
	for _, name := range []string{"tenant", "person"} {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
	return cmd
}

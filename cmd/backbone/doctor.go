package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
)

func doctorCommand() *cobra.Command {
	var path, dataDir string
	var o wire.DoctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the databases: settings, contention, storage, delivery, throughput",
		Long: "doctor says what is wrong with the databases and what to do about it: findings first\n" +
			"(OK, WARN, FAIL), then what they were taken from. It changes nothing, asks only\n" +
			"questions whose cost is bounded, and shows neither persons nor payloads. It connects as\n" +
			"the application's role (database.dsn, and keystore.dsn where the key store has a database\n" +
			"of its own); open erasures are asked for only if an eraser's DSN is configured. Sessions\n" +
			"of other roles are hidden from it unless that role has pg_read_all_stats.\n\n" +
			"Exit codes: 0 nothing failed, 1 a finding is FAIL.",
		Example: "  backbone doctor                             the \"backbone dev\" of ./dev-data\n" +
			"  backbone doctor --section contention\n" +
			"  backbone doctor --section throughput --legal-entity USMF\n" +
			"  BACKBONE_DATABASE_DSN=postgres://backbone_app@db/backbone backbone doctor --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := configs.Load(path)
			if err != nil {
				return err
			}
			o.PhysicalPartitions = config.Database.PhysicalPartitions
			if o.DSN == "" { // else only the named database
				o.DSN, o.KeyStoreDSN, o.EraserDSN = config.Database.DSN.Reveal(), config.KeyStore.DSN.Reveal(), config.KeyStore.EraserDSN.Reveal()
				if o.EraserDSN == "" && o.KeyStoreDSN == "" {
					o.EraserDSN = config.Database.EraserDSN.Reveal()
				}
			}
			if o.DSN == "" {
				file, err := wire.ReadDevFile(dataDir)
				if err != nil {
					return fault.New(fault.Invalid, "config.dsn_missing", "no database; give --dsn, set BACKBONE_DATABASE_DSN, or name the folder of a running \"backbone dev\" with --data-dir")
				}
				o.DSN, o.EraserDSN = file.DSN, file.EraserDSN
			}
			o.Out = cmd.OutOrStdout()
			sound, err := wire.Doctor(cmd.Context(), o)
			if err != nil {
				return err
			}
			if !sound {
				return exit{code: 1}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&path, "config", "", configHelp)
	cmd.Flags().StringVar(&dataDir, "data-dir", defaultDataDir, "data folder of a running \"backbone dev\"")
	cmd.Flags().StringVar(&o.DSN, "dsn", "", "the application's DSN (default: database.dsn, then --data-dir)")
	cmd.Flags().StringVar(&o.Section, "section", "", "only one of: "+strings.Join(wire.DoctorSections(), ", "))
	cmd.Flags().StringVar(&o.LegalEntity, "legal-entity", "", "throughput of this legal entity only")
	cmd.Flags().StringVar(&o.TenantID, "tenant", "", "throughput of this tenant only")
	cmd.Flags().BoolVar(&o.JSON, "json", false, "print JSON")
	return cmd
}

package main

import (
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
		Short: "Check the settings of PostgreSQL that promises depend on",
		Long: "doctor reads the settings that durability and the privacy of the server's log depend\n" +
			"on. It changes nothing.\n\n" +
			"Exit codes: 0 all is well, 1 a setting is wrong.",
		Example: "  backbone doctor                             the \"backbone dev\" of ./dev-data\n" +
			"  BACKBONE_DATABASE_DSN=postgres://backbone_app@db/backbone backbone doctor --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.DSN == "" {
				config, err := configs.Load(path)
				if err != nil {
					return err
				}
				o.DSN = config.Database.DSN.Reveal()
			}
			if o.DSN == "" {
				file, err := wire.ReadDevFile(dataDir)
				if err != nil {
					return fault.New(fault.Invalid, "config.dsn_missing", "no database; give --dsn, set BACKBONE_DATABASE_DSN, or name the folder of a running \"backbone dev\" with --data-dir")
				}
				o.DSN = file.DSN
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
	cmd.Flags().BoolVar(&o.JSON, "json", false, "print JSON")
	return cmd
}

package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const configHelp = "configuration file (YAML); the environment (BACKBONE_…) wins over it"

// databaseOptions are the configuration and the output of a command that works on the databases
// of an installation itself.
type databaseOptions struct {
	Config configs.Config
	output
}

// databaseCommand completes a command that works on the databases itself, without a server: it
// adds --config, --data-dir and --json, and runs it with the options set.
func databaseCommand(cmd *cobra.Command, o *databaseOptions, run func(context.Context) error) *cobra.Command {
	var path, dataDir string
	f := cmd.Flags()
	f.StringVar(&path, "config", "", configHelp)
	f.StringVar(&dataDir, "data-dir", defaultDataDir, "data folder of a running \"backbone dev\", when no database is configured")
	f.BoolVar(&o.json, "json", false, "print the answer as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := configs.Load(path)
		if err != nil {
			return err
		}
		if config.Database.DSN == "" {
			if file, err := readDevFile(dataDir); err == nil {
				config = devConfig(file)
			}
		}
		o.Config, o.output = config, newOutput(cmd, o.json)
		return run(cmd.Context())
	}
	cmd.Args = cobra.NoArgs
	return cmd
}

// devConfig returns the configuration with which tools connect to a running `backbone dev`.
func devConfig(f devFile) configs.Config {
	c := configs.Default()
	c.Database.DSN, c.Database.EraserDSN = configs.DSN(f.DSN), configs.DSN(f.EraserDSN)
	c.KMS.Endpoint, c.KMS.CredentialsFile = f.KMS.Endpoint, f.KMS.Credentials
	c.Erasure.ExportDirectory, c.Archive.Directory = f.Exports, f.Archive
	return c
}

// readerFlags adds the flags that identify the database to read.
func readerFlags(cmd *cobra.Command, dsn, dataDir *string) {
	f := cmd.Flags()
	f.StringVar(dsn, "dsn", "", "database to read; the roles backbone_app and backbone_reader may (default: BACKBONE_DATABASE_DSN, then --data-dir)")
	f.StringVar(dataDir, "data-dir", defaultDataDir, "data folder of a running \"backbone dev\"")
}

const archiveHelp = "folder of archived payloads (default: archive of the configuration)"

// readerAddresses are the addresses of the database and of the archive to read. archiveDir wins over what is configured.
func readerAddresses(dsn, dataDir, archiveDir string) (string, configs.Archive, error) {
	config, err := readerConfig("", dsn, dataDir)
	config.Archive.Directory = cmp.Or(archiveDir, config.Archive.Directory)
	return config.Database.DSN.Reveal(), config.Archive, err
}

// readerConfig returns the configuration of the database to read: of the DSN alone if it is
// given, else of the file and the environment, else of a running `backbone dev`.
func readerConfig(path, dsn, dataDir string) (configs.Config, error) {
	if dsn != "" && path == "" {
		return configs.Config{Database: configs.Database{DSN: configs.DSN(dsn)}}, nil
	}
	config, err := configs.Load(path)
	if err != nil {
		return configs.Config{}, err
	}
	if dsn != "" {
		config.Database.DSN = configs.DSN(dsn)
	}
	if config.Database.DSN != "" {
		return config, nil
	}
	file, err := readDevFile(dataDir)
	if err != nil {
		return configs.Config{}, fmt.Errorf("no database: give --dsn, set BACKBONE_DATABASE_DSN, or name the folder of a running \"backbone dev\" with --data-dir")
	}
	return devConfig(file), nil
}

// findLegalEntity finds the legal entity, or the administrative log, of a code. Tenant "" is any.
// Faults: legal_entity.not_found, legal_entity.ambiguous.
func findLegalEntity(ctx context.Context, directory interface {
	Partitions(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
}, tenant, code string,
) (found ports.LegalEntity, err error) {
	all, err := directory.Partitions(ctx, tenant)
	if err != nil {
		return found, err
	}
	n := 0
	for _, le := range all {
		if le.Code == code {
			found = le
			n++
		}
	}
	switch n {
	case 1:
		return found, nil
	case 0:
		return found, fault.New(fault.NotFound, "legal_entity.not_found", "there is no legal entity of this code in the database; check --legal-entity and --tenant")
	default:
		return found, fault.New(fault.Invalid, "legal_entity.ambiguous", "%d tenants have a legal entity of this code; name one with --tenant", n)
	}
}

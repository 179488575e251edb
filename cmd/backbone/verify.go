package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
)

func verifyCommand() *cobra.Command {
	var o wire.VerifyOptions
	var dsn, dataDir string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that nobody rewrote history",
		Long: "verify computes every payload hash and the whole chain of checksums again, and lists\n" +
			"authorised redactions and erasures. With a head that was exported earlier it also finds a\n" +
			"tail that was cut off and a chain that was computed again. With --dump it needs neither\n" +
			"database nor network.\n" +
			"Exit code 0: sound. 1: tampered, and where. 2: it could not finish, since something that it\n" +
			"was asked to read is missing or unreadable.",
		Example: "  backbone verify                             the \"backbone dev\" of ./dev-data\n" +
			"  backbone verify --legal-entity DEMF --json\n" +
			"  backbone verify --dsn postgres://backbone_reader@db/backbone\n" +
			"  backbone verify --export-head heads-2026-03.json      write the heads of a sound log\n" +
			"  backbone verify --head heads-2026-03.json             hold the log against them later\n" +
			"  backbone verify --dump DEMF.jsonl --head heads-2026-03.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return exit{2, err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if len(o.Dumps) == 0 {
				if o.DSN, err = readerDSN(dsn, dataDir); err != nil {
					return exit{2, err}
				}
			} else if dsn != "" || o.Tenant != "" || len(o.LegalEntities) > 0 {
				return exit{2, fmt.Errorf("an export file is verified as a whole: leave out --dsn, --tenant and --legal-entity")}
			}
			o.Out, o.Err, o.Terminal = cmd.OutOrStdout(), cmd.ErrOrStderr(), wire.IsTerminal(os.Stderr)
			sound, err := wire.Verify(cmd.Context(), o)
			if fault.KindOf(err) == fault.Unavailable {
				err = fmt.Errorf("%s; a `backbone dev` must be running to be verified", describe(err))
			}
			switch {
			case !sound: // also if something else ended the run: what was found stays found
				return exit{1, err}
			case err != nil:
				return exit{2, err}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit{2, err} })
	f := cmd.Flags()
	readerFlags(cmd, &dsn, &dataDir)
	f.StringVar(&o.Tenant, "tenant", "", "only this tenant")
	f.StringSliceVar(&o.LegalEntities, "legal-entity", nil, "only these legal entities")
	f.StringArrayVar(&o.Dumps, "dump", nil, "verify this file of \"backbone export-log\" instead of a database; may be repeated")
	f.StringVar(&o.Head, "head", "", "file of heads that were exported earlier, which the log must contain")
	f.StringVar(&o.ExportHead, "export-head", "", "write the heads to this file if the log is sound")
	f.BoolVar(&o.JSON, "json", false, "print the verdict as JSON")
	return cmd
}

// readerFlags adds the flags that say which database is read.
func readerFlags(cmd *cobra.Command, dsn, dataDir *string) {
	f := cmd.Flags()
	f.StringVar(dsn, "dsn", "", "database to read; the roles backbone_app and backbone_reader may (default: BACKBONE_DATABASE_DSN, then --data-dir)")
	f.StringVar(dataDir, "data-dir", defaultDataDir, "data folder of a running \"backbone dev\"")
}

func readerDSN(dsn, dataDir string) (string, error) {
	if dsn != "" {
		return dsn, nil
	}
	config, err := configs.Load("")
	if err != nil {
		return "", err
	}
	if dsn = config.Database.DSN.Reveal(); dsn != "" {
		return dsn, nil
	}
	file, err := wire.ReadDevFile(dataDir)
	if err != nil {
		return "", fmt.Errorf("no database: give --dsn, set BACKBONE_DATABASE_DSN, or name the folder of a running \"backbone dev\" with --data-dir")
	}
	return file.DSN, nil
}

func exportLogCommand() *cobra.Command {
	var o wire.ExportOptions
	var dsn, dataDir string
	cmd := &cobra.Command{
		Use:   "export-log FILE",
		Short: "Write a legal entity's log to a file that can be verified offline",
		Long: "export-log writes the events of a legal entity, up to its head, as JSON Lines with all that\n" +
			"\"backbone verify --dump\" needs. Sealed personal values stay sealed. FILE - is standard output.\n\n" +
			"It reads the database. To get the events of a query from a server, as a person may read them,\n" +
			"use \"backbone export\".",
		Example: "  backbone export-log --legal-entity DEMF DEMF.jsonl\n" +
			"  backbone export-log --legal-entity DEMF - | gzip > DEMF.jsonl.gz",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.DSN, err = readerDSN(dsn, dataDir); err != nil {
				return err
			}
			o.File, o.Out, o.Err, o.Terminal = args[0], cmd.OutOrStdout(), cmd.ErrOrStderr(), wire.IsTerminal(os.Stderr)
			return wire.ExportLog(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	readerFlags(cmd, &dsn, &dataDir)
	f.StringVar(&o.Tenant, "tenant", "", "id of the tenant, where several have the legal entity")
	f.StringVar(&o.LegalEntity, "legal-entity", "", "code of the legal entity (required)")
	required(cmd, "legal-entity")
	return cmd
}

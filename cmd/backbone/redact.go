package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
)

func redactCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redact",
		Short: "Redact personal data that stands in clear in old events",
		Long: "redact is for what was never sealed: migrated events, fields that escaped the manifest.\n" +
			"(Sealed values go by `backbone erasure`.) One person requests, another approves, then it\n" +
			"runs: the values become [REDACTED], the chain stays valid, and an event in the log\n" +
			"vouches for the new payload. It works on the database itself, as the eraser's role.",
	}
	cmd.AddCommand(
		redactSubcommand("request", "Request the redaction of values of an event",
			"  backbone redact request --legal-entity DEMF --event 01JQ8E6Z6G3V5T8C9N2M4K7R1P \\\n"+
				"    --pointer /data/remark --reason \"Free text with an address\" --person p-0001",
			wire.RedactRequest, func(cmd *cobra.Command, o *wire.RedactOptions) {
				f := cmd.Flags()
				f.StringVar(&o.EventID, "event", "", "id of the event (required)")
				f.StringArrayVar(&o.Pointers, "pointer", nil, "RFC 6901 pointer into the stored payload, below /data; may be repeated (required)")
				f.StringVar(&o.Reason, "reason", "", "why, for colleagues and auditors; no personal data (required)")
				f.StringVar(&o.Person, "person", "", "pseudonymous id of the person who requests (required)")
				required(cmd, "event", "pointer", "reason", "person")
			}),
		redactSubcommand("approve ID", "Approve a redaction as another person",
			"  backbone redact approve 01JQ8E6Z6G3V5T8C9N2M4K7R1P --legal-entity DEMF --person p-0002",
			wire.RedactApprove, func(cmd *cobra.Command, o *wire.RedactOptions) {
				cmd.Flags().StringVar(&o.Person, "person", "", "pseudonymous id of the person who approves (required)")
				required(cmd, "person")
			}),
		redactSubcommand("run [ID]", "Carry an approved redaction out, or complete interrupted ones",
			"  backbone redact run 01JQ8E6Z6G3V5T8C9N2M4K7R1P --legal-entity DEMF\n"+
				"  backbone redact run --legal-entity DEMF",
			wire.RedactRun, func(cmd *cobra.Command, o *wire.RedactOptions) {
				cmd.Flags().StringVar(&o.DSN, "app-dsn", "", "the application's DSN, to append the event (default: database.dsn, then --data-dir)")
			}),
		redactSubcommand("list", "List redactions and how far they are",
			"  backbone redact list --legal-entity DEMF --json", wire.RedactList, func(*cobra.Command, *wire.RedactOptions) {}),
	)
	return cmd
}

func required(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
}

// redactSubcommand adds the flags that all of them have.
func redactSubcommand(use, short, example string, do func(context.Context, wire.RedactOptions) error, flags func(*cobra.Command, *wire.RedactOptions)) *cobra.Command {
	var o wire.RedactOptions
	var path, dataDir string
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := configs.Load(path)
			if err != nil {
				return err
			}
			o.Limits, o.Out = config.Limits, cmd.OutOrStdout()
			if len(args) > 0 {
				o.ID = args[0]
			}
			if o.EraserDSN == "" {
				o.EraserDSN = config.Database.EraserDSN.Reveal()
			}
			if o.DSN == "" {
				o.DSN = config.Database.DSN.Reveal()
			}
			if o.EraserDSN == "" || o.DSN == "" {
				if file, err := wire.ReadDevFile(dataDir); err == nil {
					if o.EraserDSN == "" {
						o.EraserDSN = file.EraserDSN
					}
					if o.DSN == "" {
						o.DSN = file.DSN
					}
				}
			}
			if o.EraserDSN == "" {
				return fmt.Errorf("no eraser DSN: give --dsn, set BACKBONE_DATABASE_ERASER_DSN, or name the folder of a running \"backbone dev\" with --data-dir")
			}
			return do(cmd.Context(), o)
		},
	}
	switch use {
	case "approve ID":
		cmd.Args = cobra.ExactArgs(1)
	case "run [ID]":
		cmd.Args = cobra.MaximumNArgs(1)
	default:
		cmd.Args = cobra.NoArgs
	}
	f := cmd.Flags()
	f.StringVar(&path, "config", "", configHelp)
	f.StringVar(&o.EraserDSN, "dsn", "", "the eraser's DSN (default: database.eraser_dsn, then --data-dir)")
	f.StringVar(&dataDir, "data-dir", defaultDataDir, "data folder of a running \"backbone dev\"")
	f.StringVar(&o.Tenant, "tenant", "", "id of the tenant, where several have the legal entity")
	f.StringVar(&o.LegalEntity, "legal-entity", "", "code of the legal entity (required)")
	f.BoolVar(&o.JSON, "json", false, "print JSON")
	required(cmd, "legal-entity")
	flags(cmd, &o)
	return cmd
}

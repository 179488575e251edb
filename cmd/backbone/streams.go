package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/cmd/wire"
)

func streamsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "streams",
		Short: "Look at streams, limit what is read of them, delete them",
		Long: "A stream is named TYPE/ID, such as machine/M-17. Whatever is done to a stream is an event\n" +
			"of the stream, and no event ever leaves the log: deletions and limits concern reads of the\n" +
			"stream alone.",
	}
	cmd.AddCommand(showStreamCommand(), deleteStreamCommand(), tombstoneStreamCommand(), streamMetadataCommand())
	return cmd
}

// streamFlags are the flags of all commands, and of those that change something.
func streamFlags(cmd *cobra.Command, changes bool) (func() wire.ClientOptions, *wire.StreamOptions) {
	var s wire.StreamOptions
	options := clientFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&s.LegalEntity, "legal-entity", os.Getenv("BACKBONE_LEGAL_ENTITY"), "legal entity of the stream (environment BACKBONE_LEGAL_ENTITY)")
	f.Lookup("legal-entity").DefValue = ""
	if changes {
		f.StringVar(&s.ExpectedVersion, "expected-version", "", "only if the stream has this version (default: any)")
		f.StringVar(&s.Reason, "reason", "", "why, kept in the event; no personal data")
		f.StringVar(&s.IdempotencyKey, "idempotency-key", "", "makes the same call twice one change")
	}
	return options, &s
}

func showStreamCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show STREAM",
		Short:   "Show a stream's state, version and metadata",
		Example: "  backbone streams show machine/M-17 --legal-entity USMF",
		Args:    cobra.ExactArgs(1),
	}
	options, s := streamFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.ShowStream(cmd.Context(), options(), *s, args[0])
	}
	return cmd
}

func deleteStreamCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete STREAM",
		Short: "Delete a stream; the next append begins it anew",
		Long: "Reads of the stream answer that it is deleted. The next append recreates it, its versions go\n" +
			"on, and what was deleted is not read with it any more.",
		Example: "  backbone streams delete machine/M-17 --legal-entity USMF --reason \"Machine was sold\"\n" +
			"  backbone streams delete machine/M-17 --legal-entity USMF --expected-version 12 --json",
		Args: cobra.ExactArgs(1),
	}
	options, s := streamFlags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.DeleteStream(cmd.Context(), options(), *s, args[0])
	}
	return cmd
}

func tombstoneStreamCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "tombstone STREAM",
		Short: "End a stream for good",
		Long: "The stream is never read and takes no events any more. This cannot be undone, so without\n" +
			"--yes it is only said what would be done, with exit code 1.",
		Example: "  backbone streams tombstone machine/M-17 --legal-entity USMF\n" +
			"  backbone streams tombstone machine/M-17 --legal-entity USMF --expected-version 12 --reason \"Registered twice\" --yes",
		Args: cobra.ExactArgs(1),
	}
	options, s := streamFlags(cmd, true)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.TombstoneStream(cmd.Context(), options(), *s, args[0], yes)
	}
	return cmd
}

func streamMetadataCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "metadata STREAM",
		Short: "Print a stream's metadata, or replace them",
		Long: "The document has the members max_age_seconds, max_count, cache_control, acl (lists of roles\n" +
			"read, write, delete, metadata) and custom. What it leaves out is not limited. FILE - is\n" +
			"standard input.",
		Example: "  backbone streams metadata machine/M-17 --legal-entity USMF > metadata.json\n" +
			"  backbone streams metadata machine/M-17 --legal-entity USMF --set metadata.json --reason \"Readings of a month suffice\"\n" +
			"  echo '{\"max_count\": 1000}' | backbone streams metadata machine/M-17 --legal-entity USMF --set -",
		Args: cobra.ExactArgs(1),
	}
	options, s := streamFlags(cmd, true)
	cmd.Flags().StringVar(&file, "set", "", "replace the metadata by the document in this `FILE`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return wire.StreamMetadata(cmd.Context(), options(), *s, args[0], file, cmd.InOrStdin())
	}
	return cmd
}

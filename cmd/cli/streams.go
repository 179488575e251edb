package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
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
func streamFlags(cmd *cobra.Command, changes bool) (func() ClientOptions, *StreamOptions) {
	var s StreamOptions
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
		return ShowStream(cmd.Context(), options(), *s, args[0])
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
		return DeleteStream(cmd.Context(), options(), *s, args[0])
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
		return TombstoneStream(cmd.Context(), options(), *s, args[0], yes)
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
		return StreamMetadata(cmd.Context(), options(), *s, args[0], file, cmd.InOrStdin())
	}
	return cmd
}

// StreamOptions are the flags that the commands of `backbone streams` share.
type StreamOptions struct {
	LegalEntity string
	httpclient.StreamOptions
}

func (o StreamOptions) stream(name string) (httpclient.StreamRef, error) {
	id, err := event.ParseStreamID(name)
	if err != nil {
		return httpclient.StreamRef{}, fault.New(fault.Invalid, "streams.name_invalid", "a stream is named by type and id, such as machine/M-17; correct it")
	}
	if o.LegalEntity == "" {
		return httpclient.StreamRef{}, fault.New(fault.Invalid, "streams.legal_entity_missing", "no legal entity; set BACKBONE_LEGAL_ENTITY or --legal-entity")
	}
	return httpclient.StreamRef{LegalEntity: o.LegalEntity, Type: id.Type, ID: id.ID}, nil
}

// ShowStream prints how a stream stands.
func ShowStream(ctx context.Context, o ClientOptions, s StreamOptions, name string) error {
	_, status, err := streamStatus(ctx, o, s, name)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(status)
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "stream\t%s/%s\n", status.Stream.Type, status.Stream.ID)
	fmt.Fprintf(table, "state\t%s\n", status.State)
	fmt.Fprintf(table, "version\t%d\n", status.Stream.Version)
	if status.ReadableFrom > 0 {
		fmt.Fprintf(table, "read from\tversion %d, when it was recreated\n", status.ReadableFrom)
	}
	if status.MetadataVersion > 0 {
		fmt.Fprintf(table, "metadata\tset at version %d\n", status.MetadataVersion)
	} else {
		fmt.Fprintf(table, "metadata\tnone\n")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(status.Metadata, &members); err != nil {
		return err
	}
	for _, name := range []string{"max_age_seconds", "max_count", "cache_control", "acl", "custom"} {
		if value, ok := members[name]; ok {
			fmt.Fprintf(table, "  %s\t%s\n", name, value)
		}
	}
	return table.Flush()
}

func streamStatus(ctx context.Context, o ClientOptions, s StreamOptions, name string) (httpclient.StreamRef, httpclient.StreamStatus, error) {
	ref, err := s.stream(name)
	if err != nil {
		return ref, httpclient.StreamStatus{}, err
	}
	client, err := o.connect()
	if err != nil {
		return ref, httpclient.StreamStatus{}, err
	}
	status, err := client.StreamStatus(ctx, ref)
	return ref, status, err
}

// DeleteStream deletes a stream and prints what became of it.
func DeleteStream(ctx context.Context, o ClientOptions, s StreamOptions, name string) error {
	ref, err := s.stream(name)
	if err != nil {
		return err
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	change, err := client.DeleteStream(ctx, ref, false, s.StreamOptions)
	if err != nil {
		return err
	}
	return o.showChange(change, "The next append to it begins it anew.")
}

// TombstoneStream ends a stream for good, once that is confirmed. Fault
// streams.not_confirmed.
func TombstoneStream(ctx context.Context, o ClientOptions, s StreamOptions, name string, confirmed bool) error {
	if !confirmed {
		_, status, err := streamStatus(ctx, o, s, name)
		if err != nil {
			return err
		}
		return fault.New(fault.FailedPrecondition, "streams.not_confirmed",
			"this ends stream %s of %s, which is %s at version %d, for good: it can never be read or written again; say --yes to do it",
			name, s.LegalEntity, status.State, status.Stream.Version)
	}
	ref, err := s.stream(name)
	if err != nil {
		return err
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	change, err := client.DeleteStream(ctx, ref, true, s.StreamOptions)
	if err != nil {
		return err
	}
	return o.showChange(change, "Its events stay in the log.")
}

// StreamMetadata prints a stream's metadata document, or replaces it by that of a
// file; "-" is standard input.
func StreamMetadata(ctx context.Context, o ClientOptions, s StreamOptions, name, file string, in io.Reader) error {
	if file == "" {
		_, status, err := streamStatus(ctx, o, s, name)
		if err != nil {
			return err
		}
		return o.json(status.Metadata)
	}
	var raw []byte
	var err error
	if file == "-" {
		raw, err = io.ReadAll(in)
	} else {
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return err
	}
	if raw = bytes.TrimSpace(raw); !json.Valid(raw) {
		return fault.New(fault.Invalid, "streams.metadata_malformed", "%s holds no JSON document; correct it", file)
	}
	ref, err := s.stream(name)
	if err != nil {
		return err
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	change, err := client.SetStreamMetadata(ctx, ref, raw, s.StreamOptions)
	if err != nil {
		return err
	}
	return o.showChange(change, "Its metadata are replaced.")
}

func (o ClientOptions) showChange(c httpclient.StreamChange, consequence string) error {
	if o.JSON {
		return o.json(c)
	}
	fmt.Fprintf(o.Out, "Stream %s/%s is %s at version %d (event %s). %s\n", c.Stream.Type, c.Stream.ID, c.State, c.Stream.Version, c.Event.ID, consequence)
	return nil
}

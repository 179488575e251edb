package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

func streamsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "streams",
		Short: "Show streams, limit what is read of them, delete them",
		Long: "A stream is named TYPE/ID, such as machine/M-17. Whatever is done to a stream is an event\n" +
			"of the stream, and no event ever leaves the log: deletions and limits concern reads of the\n" +
			"stream alone.",
	}
	cmd.AddCommand(showStreamCommand(), deleteStreamCommand(), tombstoneStreamCommand(), streamMetadataCommand())
	return cmd
}

// streamOptions are the flags that the commands of `backbone streams` share.
type streamOptions struct {
	legalEntity     string
	expectedVersion string // "": any
	reason          string
	idempotencyKey  string
}

// streamFlags adds the flags that identify a stream; with changes also those of commands that
// change it.
func streamFlags(cmd *cobra.Command, changes bool) *streamOptions {
	var o streamOptions
	f := cmd.Flags()
	legalEntityFlag(cmd, &o.legalEntity, "legal entity of the stream (required; environment BACKBONE_LEGAL_ENTITY)")
	if changes {
		f.StringVar(&o.expectedVersion, "expected-version", "", "only if the stream has this version (default: any)")
		f.StringVar(&o.reason, "reason", "", "why, kept in the event; no personal data")
		f.StringVar(&o.idempotencyKey, "idempotency-key", "", "makes the same call twice one change")
	}
	return &o
}

// stream checks the name of a stream, and that its legal entity is named.
func (o *streamOptions) stream(name string) (event.StreamID, error) {
	id, err := event.ParseStreamID(name)
	if err != nil {
		return id, fault.New(fault.Invalid, "streams.name_invalid", "a stream is named by type and id, such as machine/M-17; correct it")
	}
	if o.legalEntity == "" {
		return id, fault.New(fault.Invalid, "streams.legal_entity_missing", "no legal entity; set BACKBONE_LEGAL_ENTITY or --legal-entity")
	}
	return id, nil
}

func (s *session) streamStatus(ctx context.Context, o *streamOptions, name string) (client.StreamStatus, error) {
	id, err := o.stream(name)
	if err != nil {
		return client.StreamStatus{}, err
	}
	return s.GetStreamMetadata(ctx, id.Type, id.ID, client.GetStreamMetadataParams{LegalEntity: o.legalEntity}, s.keep())
}

func showStreamCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show STREAM",
		Short:   "Show a stream's state, version and metadata",
		Example: "  backbone streams show machine/M-17 --legal-entity USMF",
		Args:    cobra.ExactArgs(1),
	}
	o := streamFlags(cmd, false)
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		status, err := s.streamStatus(ctx, o, args[0])
		if err != nil {
			return err
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(status.Metadata, &members); err != nil {
			return err
		}
		return s.print(func(p *page) {
			p.row("stream", status.Stream.Type+"/"+status.Stream.ID)
			p.row("state", status.State)
			p.row("version", status.Stream.Version)
			if status.ReadableFrom > 0 {
				p.row("read from", fmt.Sprintf("version %d, when it was recreated", status.ReadableFrom))
			}
			if status.MetadataVersion > 0 {
				p.row("metadata", fmt.Sprintf("set at version %d", status.MetadataVersion))
			} else {
				p.row("metadata", "none")
			}
			for _, name := range []string{"max_age_seconds", "max_count", "cache_control", "acl", "custom"} {
				if value, ok := members[name]; ok {
					p.row("  "+name, string(value))
				}
			}
		})
	})
}

func deleteStreamCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete STREAM",
		Short: "Delete a stream; the next append recreates it",
		Long: "Reads of the stream answer that it is deleted. The next append recreates it, its versions go\n" +
			"on, and what was deleted is not read with it any more.",
		Example: "  backbone streams delete machine/M-17 --legal-entity USMF --reason \"Machine was sold\"\n" +
			"  backbone streams delete machine/M-17 --legal-entity USMF --expected-version 12 --json",
		Args: cobra.ExactArgs(1),
	}
	o := streamFlags(cmd, true)
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		return s.deleteStream(ctx, o, args[0], false, "The next append to it recreates it.")
	})
}

func tombstoneStreamCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "tombstone STREAM",
		Short: "End a stream for good",
		Long: "The stream is never read and takes no events any more. This cannot be undone, so without\n" +
			"--yes the command only prints what it would do, with exit code 1.",
		Example: "  backbone streams tombstone machine/M-17 --legal-entity USMF\n" +
			"  backbone streams tombstone machine/M-17 --legal-entity USMF --expected-version 12 --reason \"Registered twice\" --yes",
		Args: cobra.ExactArgs(1),
	}
	o := streamFlags(cmd, true)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		if yes {
			return s.deleteStream(ctx, o, args[0], true, "Its events stay in the log.")
		}
		status, err := s.streamStatus(ctx, o, args[0])
		if err != nil {
			return err
		}
		return fault.New(fault.FailedPrecondition, "streams.not_confirmed",
			"this ends stream %s of %s, which is %s at version %d, for good: it can never be read or written again; say --yes to do it",
			args[0], o.legalEntity, status.State, status.Stream.Version)
	})
}

func (s *session) deleteStream(ctx context.Context, o *streamOptions, name string, forGood bool, consequence string) error {
	id, err := o.stream(name)
	if err != nil {
		return err
	}
	change, err := s.DeleteStream(ctx, id.Type, id.ID, client.DeleteStreamParams{
		LegalEntity: o.legalEntity, Hard: forGood, Reason: o.reason, ExpectedVersion: o.expectedVersion, IdempotencyKey: o.idempotencyKey,
	}, s.keep())
	return s.streamChange(change, err, consequence)
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
	o := streamFlags(cmd, true)
	cmd.Flags().StringVar(&file, "set", "", "replace the metadata by the document in this `FILE`")
	return serverCommand(cmd, func(ctx context.Context, s *session, args []string) error {
		if file == "" {
			status, err := s.streamStatus(ctx, o, args[0])
			if err != nil {
				return err
			}
			return printJSON(s.out, status.Metadata)
		}
		document, err := readAll(file, cmd.InOrStdin())
		if err != nil {
			return err
		}
		if document = bytes.TrimSpace(document); !json.Valid(document) {
			return fault.New(fault.Invalid, "streams.metadata_malformed", "%s holds no JSON document; correct it", file)
		}
		id, err := o.stream(args[0])
		if err != nil {
			return err
		}
		change, err := s.SetStreamMetadata(ctx, id.Type, id.ID, client.SetStreamMetadataParams{
			LegalEntity: o.legalEntity, Reason: o.reason, ExpectedVersion: o.expectedVersion, IdempotencyKey: o.idempotencyKey,
		}, document, s.keep())
		return s.streamChange(change, err, "Its metadata are replaced.")
	})
}

func (s *session) streamChange(c client.StreamChange, err error, consequence string) error {
	if err != nil {
		return err
	}
	return s.print(func(p *page) {
		p.line("Stream %s/%s is %s at version %d (event %s). %s", c.Stream.Type, c.Stream.ID, c.State, c.Stream.Version, c.Event.ID, consequence)
	})
}

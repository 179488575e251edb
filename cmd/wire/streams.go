package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

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

package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/erpbackbone/backbone/application/snapshots"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// Bounds of a client snapshot's attributes, in bytes.
const (
	maxStateType = 255
	maxMetadata  = 16 << 10
)

// SnapshotService stores the snapshots of clients.
type SnapshotService struct {
	snapshots *snapshots.Streams
	streams   ports.StreamReader
	clock     ports.Clock
	ids       ports.IDSource
}

// NewSnapshotService makes a SnapshotService.
func NewSnapshotService(stored *snapshots.Streams, streams ports.StreamReader, clock ports.Clock, ids ports.IDSource) *SnapshotService {
	return &SnapshotService{snapshots: stored, streams: streams, clock: clock, ids: ids}
}

// NewSnapshot is a snapshot to store, whose JSON the API has checked.
type NewSnapshot struct {
	Stream        event.StreamID
	Version       event.Version
	StateType     string
	SchemaVersion int
	State         json.RawMessage
	Metadata      json.RawMessage // JSON object; nil is none
}

func invalidSnapshot(field, detail string, args ...any) error {
	return fault.New(fault.Invalid, "snapshot.invalid", detail, args...).WithField(field)
}

func (n *NewSnapshot) check() error {
	switch {
	case n.Version < 1:
		return invalidSnapshot("/version", "the version of the stream that the state is of is 1 or more; send the version of the last event in it")
	case n.StateType == "" || len(n.StateType) > maxStateType:
		return invalidSnapshot("/state_type", "state_type names what the state is of, with 1 to %d bytes; correct it", maxStateType)
	case n.SchemaVersion < 1 || n.SchemaVersion > 1<<30:
		return invalidSnapshot("/schema_version", "schema_version is the version of the state's form, from 1; correct it")
	case len(n.State) == 0 || string(n.State) == "null":
		return invalidSnapshot("/state", "there is no state; send it as JSON")
	case len(n.State) > snapshot.MaxBytes:
		return fault.New(fault.TooLarge, "snapshot.too_large", "a state has at most %d bytes; store less of it", snapshot.MaxBytes).WithField("/state")
	case len(n.Metadata) > maxMetadata:
		return fault.New(fault.TooLarge, "snapshot.too_large", "metadata have at most %d bytes; store less of them", maxMetadata).WithField("/metadata")
	case n.Metadata != nil && n.Metadata[0] != '{':
		return invalidSnapshot("/metadata", "metadata are a JSON object; correct them or leave them out")
	case shredding.CheckReserved(n.State) != nil || shredding.CheckReserved(n.Metadata) != nil:
		return fault.New(fault.Invalid, "snapshot.personal_data",
			"a snapshot holds no personal data, sealed or not: an erasure would not reach it; leave it out and read it from the events").WithField("/state")
	}
	return nil
}

// Save stores the state of a stream at a version. If the same content is stored already, it is
// returned and created is false. The caller's roles are checked against the stream's access
// list. Faults: snapshot.invalid, snapshot.too_large, snapshot.personal_data,
// snapshot.version_unknown (FailedPrecondition: not among the stream's versions),
// stream.not_found, stream.deleted, stream.tombstoned, stream.access_denied,
// snapshot.exists, snapshot.superseded, pii.keys_missing, and those of the key service.
func (s *SnapshotService) Save(ctx context.Context, le ports.LegalEntity, roles []string, n NewSnapshot) (stored ports.StreamSnapshot, created bool, err error) {
	n.StateType = strings.TrimSpace(n.StateType)
	n.State, n.Metadata = compactJSON(n.State), compactJSON(n.Metadata)
	if err := n.check(); err != nil {
		return stored, false, err
	}
	status, err := s.checkAccess(ctx, le, n.Stream, stream.Write, roles)
	if err != nil {
		return stored, false, err
	}
	if n.Version > status.Version || n.Version < status.ReadableFrom {
		return stored, false, fault.New(fault.FailedPrecondition, "snapshot.version_unknown", "the stream has no such version; send the version of the last event in the state").
			WithField("/version").WithNumbers(uint64(n.Version), uint64(status.Version))
	}
	_, epoch, err := s.snapshots.Read(ctx, le, n.Stream, false, n.Version)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return stored, false, err
	}
	now := s.clock.Now()
	return s.snapshots.Save(ctx, le.TenantID, ports.StreamSnapshot{
		ID: s.ids.NewID(now), Partition: le.Partition, Stream: n.Stream, Version: n.Version, StateType: n.StateType, SchemaVersion: n.SchemaVersion,
		State: n.State, Metadata: n.Metadata, CreatedAt: event.Micros(now),
	}, epoch)
}

// Get reads the snapshot at a version, the newest for 0. Faults: snapshot.not_found,
// stream.not_found, stream.deleted, stream.tombstoned, stream.access_denied.
func (s *SnapshotService) Get(ctx context.Context, le ports.LegalEntity, roles []string, id event.StreamID, v event.Version) (ports.StreamSnapshot, error) {
	status, err := s.checkAccess(ctx, le, id, stream.Read, roles)
	if err != nil {
		return ports.StreamSnapshot{}, err
	}
	found, _, err := s.snapshots.Read(ctx, le, id, false, v)
	if err == nil && found.Version < status.ReadableFrom {
		return ports.StreamSnapshot{}, snapshot.NotFound() // taken before the stream was deleted
	}
	return found, err
}

// checkAccess checks that the stream belongs to the modules of a service, the caller's roles
// against the stream's access list, and its state.
func (s *SnapshotService) checkAccess(ctx context.Context, le ports.LegalEntity, id event.StreamID, right stream.Right, roles []string) (ports.StreamStatus, error) {
	if _, err := requireOwned(ctx, s.streams, le, id); err != nil {
		return ports.StreamStatus{}, err
	}
	status, err := s.streams.StreamStatus(ctx, le.Partition, id)
	if err != nil {
		return status, err
	}
	metadata, err := stream.ParseSettings(status.Settings)
	if err != nil {
		return status, err
	}
	if err := metadata.ACL.Check(right, roles); err != nil {
		return status, err
	}
	switch status.State {
	case event.StreamActive:
		return status, nil
	case event.StreamAbsent:
		return status, fault.New(fault.NotFound, concurrency.CodeStreamNotFound, "this legal entity has no such stream; check type, id and legal entity")
	case event.StreamDeleted:
		return status, fault.New(fault.NotFound, concurrency.CodeStreamDeleted, "the stream was deleted and its snapshots with it; append to it to recreate it")
	default:
		return status, concurrency.StreamTombstoned(id)
	}
}

// compactJSON removes blanks, so that equal content has equal bytes.
func compactJSON(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	var out bytes.Buffer
	if json.Compact(&out, b) != nil {
		return b // invalid JSON, which the API has refused
	}
	return out.Bytes()
}

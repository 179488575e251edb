package streams

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// EventWriter appends the event of a change; append.Service implements it.
type EventWriter interface {
	// Write appends one event; replayed is true if its idempotency key was used before.
	Write(ctx context.Context, w EventWrite) (receipt ports.AppendedEvent, replayed bool, err error)
}

// EventWrite is the event of a change, with its caller.
type EventWrite struct {
	LegalEntity    ports.LegalEntity
	Actor          event.Actor
	PersonID       string
	Roles          []string
	Draft          event.Draft
	Expected       []concurrency.StreamExpectation
	IdempotencyKey string
	Fingerprint    event.Hash
}

// Catalog finds the module that owns a stream type; module.Catalog implements it.
type Catalog interface {
	StreamOwner(streamType string) string
}

// Config is what a Service needs.
type Config struct {
	Writer  EventWriter
	Reader  ports.StreamReader
	Catalog Catalog
	Roles   []string // that access lists may name; empty: any
}

// Service changes streams.
type Service struct{ config Config }

// New makes a Service.
func New(c Config) *Service { return &Service{config: c} }

// Change is the part of a request that all changes share.
type Change struct {
	LegalEntity    ports.LegalEntity
	Stream         event.StreamID
	Actor          event.Actor
	PersonID       string
	Roles          []string
	Expected       concurrency.Expected
	Reason         string // no personal data; "" if none was given
	IdempotencyKey string
	Fingerprint    event.Hash
}

// Outcome is the result of a change.
type Outcome struct {
	State    event.StreamState
	Event    ports.AppendedEvent
	Replayed bool
}

// Status is the state and the metadata of a stream.
type Status struct {
	ports.StreamStatus
	Metadata stream.Metadata
}

// claimTries bounds how often a change finds that another service has begun an unclaimed stream.
const claimTries = 5

// maxReasonRunes bounds reasons, in characters.
const maxReasonRunes = 1000

// Delete deletes a stream so that the next append recreates it, or tombstones it for good.
// Faults: stream.owned_by_module, stream.not_found, stream.deleted, stream.tombstoned,
// stream.access_denied, stream.reason_too_long, pii.in_text, those of ports.EventAppender.
func (s *Service) Delete(ctx context.Context, c Change, tombstone bool) (Outcome, error) {
	unclaimed, err := s.RequireOwned(ctx, c.LegalEntity, c.Stream)
	if err != nil {
		return Outcome{}, err
	}
	if err := s.checkOwner(c.Stream); err != nil {
		return Outcome{}, err
	}
	eventType := stream.Deleted
	if tombstone {
		eventType = stream.Tombstoned
	}
	return s.appendChange(ctx, c, unclaimed, eventType, changeData{Reason: c.Reason}, event.StreamChange{})
}

// checkOwner refuses streams of modules. Their metadata would limit what the module's own readers
// see, and their end would end its documents.
func (s *Service) checkOwner(id event.StreamID) error {
	owner := s.config.Catalog.StreamOwner(id.Type)
	if owner == "" {
		return nil
	}
	return fault.New(fault.FailedPrecondition, "stream.owned_by_module",
		"streams of this type belong to the built-in module %s and are changed by its intents only; end what the stream stands for by an intent of the module, and keep notes of your own in a stream of your own", owner).
		WithField("type")
}

// SetMetadata replaces the stream's metadata. Of a module's stream it takes the empty document
// alone, and that only while the stream has limits: they were set before modules' streams were
// closed to it. Faults: those of Delete; stream.role_unknown.
func (s *Service) SetMetadata(ctx context.Context, c Change, m stream.Metadata) (Outcome, error) {
	unclaimed, err := s.RequireOwned(ctx, c.LegalEntity, c.Stream)
	if err != nil {
		return Outcome{}, err
	}
	if err := s.checkRoles(m.ACL); err != nil {
		return Outcome{}, err
	}
	settings, access, err := m.Settings()
	if err != nil {
		return Outcome{}, err
	}
	if err := s.checkOwner(c.Stream); err != nil {
		status, readErr := s.config.Reader.StreamStatus(ctx, c.LegalEntity.Partition, c.Stream)
		if readErr != nil {
			return Outcome{}, readErr
		}
		if settings != nil || m.Custom != nil || len(status.Settings) == 0 {
			return Outcome{}, err
		}
	}
	return s.appendChange(ctx, c, unclaimed, stream.MetadataChanged, changeData{Metadata: &m, Reason: c.Reason}, event.StreamChange{Settings: settings, Access: access})
}

// RequireOwned refuses a stream that does not belong to the modules of a service that asks
// (module.SightOf), as if there were none: stream.not_found. An unclaimed one belongs to the service
// that writes it first (module.Sight.OwnStream).
func (s *Service) RequireOwned(ctx context.Context, le ports.LegalEntity, id event.StreamID) (unclaimed bool, err error) {
	return requireOwned(ctx, s.config.Reader, le, id)
}

func requireOwned(ctx context.Context, streams ports.StreamReader, le ports.LegalEntity, id event.StreamID) (unclaimed bool, err error) {
	sight, err := module.SightOf(ctx)
	if err != nil {
		return false, err
	}
	owned, unclaimed, err := sight.OwnStream(ctx, streams, le.Partition, id)
	if err == nil && !owned {
		err = concurrency.ActionRefused(id, event.StreamAbsent, event.DeleteStream)
	}
	return unclaimed, err
}

func (s *Service) checkRoles(a *stream.ACL) error {
	if len(s.config.Roles) == 0 {
		return nil
	}
	for pointer, roles := range a.Roles() {
		for _, r := range roles {
			if !slices.Contains(s.config.Roles, r) {
				return fault.New(fault.Invalid, "stream.role_unknown", "the access list names a role that does not exist, so it would grant nothing; correct it").WithField(pointer)
			}
		}
	}
	return nil
}

// appendChange appends the event of a change. That of an unclaimed stream expects the version at which
// it was found unclaimed, since another service may write the first event in between.
func (s *Service) appendChange(ctx context.Context, c Change, unclaimed bool, eventType string, data changeData, change event.StreamChange) (Outcome, error) {
	if utf8.RuneCountInString(c.Reason) > maxReasonRunes {
		return Outcome{}, fault.New(fault.Invalid, "stream.reason_too_long", "a reason has at most %d characters; shorten it", maxReasonRunes).WithField("reason")
	}
	if err := shredding.CheckText("reason", c.Reason); err != nil {
		return Outcome{}, err
	}
	change.Action = stream.ActionOf(eventType)
	encoded, err := json.Marshal(data)
	if err != nil {
		return Outcome{}, err
	}
	write := EventWrite{
		LegalEntity: c.LegalEntity, Actor: c.Actor, PersonID: c.PersonID, Roles: append([]string{}, c.Roles...),
		Draft:          event.Draft{Type: eventType, SchemaVersion: 1, Stream: c.Stream, Data: json.RawMessage(encoded), Change: &change},
		IdempotencyKey: c.IdempotencyKey, Fingerprint: c.Fingerprint,
	}
	for try := 1; ; try++ {
		expected := c.Expected
		if unclaimed {
			if expected, err = s.claim(ctx, c); err != nil {
				return Outcome{}, err
			}
		}
		if write.Expected = nil; !expected.IsAny() {
			write.Expected = []concurrency.StreamExpectation{{Stream: c.Stream, Expected: expected}}
		}
		receipt, replayed, err := s.config.Writer.Write(ctx, write)
		if err == nil {
			return Outcome{State: stateAfter[change.Action], Event: receipt, Replayed: replayed}, nil
		}
		if expected == c.Expected || try == claimTries || fault.CodeOf(err) != concurrency.CodeWrongExpectedVersion {
			return Outcome{}, dropBatchPointer(err)
		}
	}
}

// claim returns what a change expects of a stream that was found unclaimed: if its caller expects
// nothing and it is unclaimed still, the version that was read before.
func (s *Service) claim(ctx context.Context, c Change) (concurrency.Expected, error) {
	if !c.Expected.IsAny() {
		return c.Expected, nil
	}
	status, err := s.config.Reader.StreamStatus(ctx, c.LegalEntity.Partition, c.Stream)
	if err != nil {
		return c.Expected, err
	}
	unclaimed, err := s.RequireOwned(ctx, c.LegalEntity, c.Stream)
	if err != nil || !unclaimed {
		return c.Expected, err
	}
	return concurrency.Exactly(status.Version), nil
}

// dropBatchPointer makes a fault's pointer relative to the request: the caller sent no batch.
func dropBatchPointer(err error) error {
	f, ok := fault.As(err)
	if !ok || !strings.HasPrefix(f.Field, "/events/") {
		return err
	}
	switch {
	case strings.HasSuffix(f.Field, "/stream/type"):
		return f.WithField("type")
	case strings.HasSuffix(f.Field, "/stream/id"):
		return f.WithField("id")
	default:
		return f.WithField("")
	}
}

// stateAfter is the state of a stream after each change.
var stateAfter = map[event.StreamAction]event.StreamState{
	event.DescribeStream: event.StreamActive, event.DeleteStream: event.StreamDeleted, event.TombstoneStream: event.StreamTombstoned,
}

// Status reads the state and the metadata of a stream. Faults: stream.not_found,
// stream.access_denied.
func (s *Service) Status(ctx context.Context, le ports.LegalEntity, id event.StreamID, roles []string) (Status, error) {
	if _, err := s.RequireOwned(ctx, le, id); err != nil {
		return Status{}, err
	}
	stored, err := s.config.Reader.StreamStatus(ctx, le.Partition, id)
	if err != nil {
		return Status{}, err
	}
	if stored.State == event.StreamAbsent {
		return Status{}, concurrency.ActionRefused(id, stored.State, event.DeleteStream)
	}
	settings, err := stream.ParseSettings(stored.Settings)
	if err != nil {
		return Status{}, err
	}
	if err := settings.ACL.Check(stream.ChangeMetadata, append([]string{}, roles...)); err != nil {
		return Status{}, err
	}
	out := Status{StreamStatus: stored, Metadata: settings}
	if stored.MetadataVersion == 0 {
		return out, nil
	}
	// Custom metadata is stored in the event only, in clear and for ever (docs/redact.md).
	set, _, err := s.config.Reader.ReadStream(ctx, ports.StreamQuery{Partition: le.Partition, Stream: id, From: stored.MetadataVersion, Limit: 1})
	if err != nil {
		return Status{}, err
	}
	var payload struct {
		Data changeData `json:"data"`
	}
	if len(set) == 1 && json.Unmarshal(set[0].Payload, &payload) == nil && payload.Data.Metadata != nil {
		out.Metadata.Custom = payload.Data.Metadata.Custom
	}
	return out, nil
}

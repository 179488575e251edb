package redaction

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// EventType is the type of the event of a redaction, StreamType the type of its stream,
// whose id is the redaction's.
const (
	EventType  = "pii.payload.redacted"
	StreamType = "pii.redaction"
)

// Events reads the log. ports.EventReader has it.
type Events interface {
	EventByID(ctx context.Context, p event.PartitionID, id event.ID) (event.Recorded, error)
	Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error)
	EventsOfStream(ctx context.Context, p event.PartitionID, s event.StreamID, from event.Version, limit int) ([]event.Recorded, error)
}

// Announcer appends the event of a redaction.
type Announcer interface {
	// Announce appends the draft as a system actor, if the stream is as expected. With a
	// key that it knows it does nothing.
	Announce(ctx context.Context, a Announcement) error
}

// Announcement is the event of one redaction.
type Announcement struct {
	LegalEntity    ports.LegalEntity
	Draft          event.Draft
	Stream         concurrency.StreamExpectation
	IdempotencyKey string
	Fingerprint    event.Hash
}

// Config is what a Service needs. Events and Announcer are not needed to request,
// approve and list.
type Config struct {
	Redactions ports.Redactions
	Events     Events
	Announcer  Announcer
	Clock      ports.Clock
	IDs        ports.IDSource
}

// Service stores, approves and executes requests for redaction. The store requires that another
// person approves than requested.
type Service struct{ config Config }

// New makes a Service.
func New(c Config) *Service { return &Service{c} }

// Request asks to redact the values at the pointers of an event. It makes all checks that
// could refuse the request later. Faults: those of ports.Redactions, and
// redaction.pointer_personal for a pointer through a member named like a person's
// datum: pointers are kept for ever.
func (s *Service) Request(ctx context.Context, le ports.LegalEntity, id event.ID, pointers []string, reason, person string) (ports.RedactionRequest, error) {
	e, err := s.config.Events.EventByID(ctx, le.Partition, id)
	if err != nil {
		return ports.RedactionRequest{}, err
	}
	if _, err := redact(e.Payload, pointers); err != nil {
		return ports.RedactionRequest{}, err
	}
	for _, p := range pointers {
		for token := range strings.SplitSeq(p, "/") {
			if kind := shredding.PersonalPattern(jsondoc.UnescapeToken(token)); kind != "" {
				return ports.RedactionRequest{}, fault.New(fault.Invalid, "redaction.pointer_personal",
					"the name of a member on a pointer looks like personal data itself (%s), and pointers are kept for ever; redact the whole object around it", kind)
			}
		}
	}
	if shredding.CheckText("", reason) != nil {
		return ports.RedactionRequest{}, fault.New(fault.Invalid, "redaction.invalid", "the reason holds what looks like personal data itself and is kept for ever; word it without")
	}
	return s.config.Redactions.RequestRedaction(ctx, ports.RedactionRequest{
		ID: s.config.IDs.NewID(s.config.Clock.Now()), Partition: le.Partition, Sequence: e.Sequence, Pointers: pointers, Reason: reason, RequestedBy: person,
	})
}

// Approve stores the approval of a second person.
func (s *Service) Approve(ctx context.Context, le ports.LegalEntity, id event.ID, person string) (ports.RedactionRequest, error) {
	return s.config.Redactions.ApproveRedaction(ctx, le.Partition, id, person)
}

// Run executes an approved request and appends its event. It may be repeated: it executes a
// redaction once, and appends an event that is missing after a crash.
func (s *Service) Run(ctx context.Context, le ports.LegalEntity, id event.ID) (ports.Redaction, error) {
	requests, err := s.config.Redactions.RedactionRequests(ctx, le.Partition)
	if err != nil {
		return ports.Redaction{}, err
	}
	for _, r := range requests {
		if r.ID == id {
			return s.run(ctx, le, r)
		}
	}
	return ports.Redaction{}, fault.New(fault.NotFound, "redaction.not_found", "there is no such redaction request in this legal entity; list them")
}

func (s *Service) run(ctx context.Context, le ports.LegalEntity, r ports.RedactionRequest) (ports.Redaction, error) {
	done, err := s.config.Redactions.Redactions(ctx, le.Partition)
	if err != nil {
		return ports.Redaction{}, err
	}
	for _, x := range done {
		if x.ID == r.ID {
			return x, s.announce(ctx, le, x)
		}
	}
	e, err := s.event(ctx, le.Partition, r.Sequence)
	if err != nil {
		return ports.Redaction{}, err
	}
	to := ports.RedactedPayload{OldHash: event.HashPayload(e.Salt, e.Payload), Salt: s.config.IDs.NewSalt()}
	if to.Payload, err = redact(e.Payload, r.Pointers); err != nil {
		return ports.Redaction{}, err
	}
	to.NewHash = event.HashPayload(to.Salt, to.Payload)
	x, err := s.config.Redactions.RedactPayload(ctx, r, to)
	if err != nil {
		return ports.Redaction{}, err
	}
	return x, s.announce(ctx, le, x)
}

// Repair appends the missing events of redactions that a crash interrupted, and returns
// how many.
func (s *Service) Repair(ctx context.Context, le ports.LegalEntity) (repaired int, err error) {
	done, err := s.config.Redactions.Redactions(ctx, le.Partition)
	if err != nil {
		return 0, err
	}
	for _, x := range done {
		announced, err := s.isAnnounced(ctx, x)
		if err != nil {
			return repaired, err
		}
		if announced {
			continue
		}
		if err := s.announce(ctx, le, x); err != nil {
			return repaired, err
		}
		repaired++
	}
	return repaired, nil
}

// State is a request with its redaction.
type State struct {
	Request   ports.RedactionRequest
	Redaction *ports.Redaction // nil: not executed
	Announced bool             // its event is in the log
}

// List returns the state of every request of a legal entity, oldest first.
func (s *Service) List(ctx context.Context, le ports.LegalEntity) ([]State, error) {
	requests, err := s.config.Redactions.RedactionRequests(ctx, le.Partition)
	if err != nil {
		return nil, err
	}
	done, err := s.config.Redactions.Redactions(ctx, le.Partition)
	if err != nil {
		return nil, err
	}
	byID := make(map[event.ID]*ports.Redaction, len(done))
	for i := range done {
		byID[done[i].ID] = &done[i]
	}
	out := make([]State, len(requests))
	for i, r := range requests {
		out[i] = State{Request: r, Redaction: byID[r.ID]}
		if out[i].Redaction != nil {
			if out[i].Announced, err = s.isAnnounced(ctx, *out[i].Redaction); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// redact returns the payload with "[REDACTED]" at the pointers and every other byte
// unchanged.
func redact(payload []byte, pointers []string) ([]byte, error) {
	out := payload
	for _, p := range pointers {
		start, end, found, err := jsondoc.Locate(out, p)
		if err != nil || !found {
			return nil, fault.New(fault.Invalid, "redaction.pointer_invalid", "a pointer leads to no value below /data of the event; read the event and correct it").WithField(p)
		}
		if shredding.HasSealed(out[start:end]) {
			return nil, fault.New(fault.FailedPrecondition, "redaction.sealed", "a value at the pointers is sealed; request the erasure of the person instead").WithField(p)
		}
		if string(out[start:end]) == shredding.Redacted {
			return nil, fault.New(fault.FailedPrecondition, "redaction.repeated", "a value at the pointers is redacted already; leave the pointer out").WithField(p)
		}
		if out, err = jsondoc.Splice(nil, out, p, []byte(shredding.Redacted)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// event reads the event that a request names.
func (s *Service) event(ctx context.Context, p event.PartitionID, n event.Sequence) (event.Recorded, error) {
	events, err := s.config.Events.Events(ctx, ports.EventQuery{Partition: p, After: n - 1, Until: n, Limit: 1})
	if err != nil {
		return event.Recorded{}, err
	}
	if len(events) == 0 || events[0].Sequence != n || events[0].Payload == nil {
		return event.Recorded{}, fault.New(fault.NotFound, "redaction.event_not_found", "there is no such event with a payload in plain JSON; check legal entity and sequence")
	}
	return events[0], nil
}

func (s *Service) isAnnounced(ctx context.Context, x ports.Redaction) (bool, error) {
	events, err := s.config.Events.EventsOfStream(ctx, x.Partition, streamOf(x), 1, 1)
	return len(events) > 0, err
}

func streamOf(x ports.Redaction) event.StreamID {
	return event.StreamID{Type: StreamType, ID: x.ID.String()}
}

// redacted is the data of EventType.
type redacted struct {
	ID          event.ID       `json:"redaction_id"`
	EventID     event.ID       `json:"event_id"`
	Sequence    event.Sequence `json:"sequence"`
	Pointers    []string       `json:"pointers"`
	Reason      string         `json:"reason"`
	Old         string         `json:"old_payload_hash"`
	New         string         `json:"new_payload_hash"`
	RequestedBy string         `json:"requested_by"`
	ApprovedBy  string         `json:"approved_by"`
}

// announce appends the event unless the log has it. Its stream must not exist, so the log
// never has it twice, even after the idempotency key has expired.
func (s *Service) announce(ctx context.Context, le ports.LegalEntity, x ports.Redaction) error {
	if done, err := s.isAnnounced(ctx, x); err != nil || done {
		return err
	}
	data, err := json.Marshal(redacted{
		x.ID, x.EventID, x.Sequence, x.Pointers, x.Reason, hex.EncodeToString(x.OldPayloadHash[:]), hex.EncodeToString(x.NewPayloadHash[:]),
		x.RequestedBy, x.ApprovedBy,
	})
	if err != nil {
		return err
	}
	err = s.config.Announcer.Announce(ctx, Announcement{
		LegalEntity: le,
		Draft: event.Draft{
			Type: EventType, SchemaVersion: 1, OccurredAt: event.Micros(x.RedactedAt), EffectiveDate: le.Today(x.RedactedAt), Stream: streamOf(x),
			CorrelationID: x.ID.String(), CausedBy: x.EventID, Data: json.RawMessage(data), Source: event.Source{System: "backbone", Channel: "redaction"},
		},
		Stream:         concurrency.StreamExpectation{Stream: streamOf(x), Expected: concurrency.NoStream()},
		IdempotencyKey: "redaction:" + x.ID.String(),
		Fingerprint:    event.HashPayload(event.Salt(x.ID), data),
	})
	if fault.CodeOf(err) == "append.wrong_expected_version" {
		return nil // another process has appended it
	}
	return err
}

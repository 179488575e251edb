package httpapi

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	streams "github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/stream"
)

const (
	actionDeleteStream    = "streams.delete"
	actionTombstoneStream = "streams.tombstone"
	actionDescribeStream  = "streams.describe"
	actionReadStatus      = "streams.read"
)

// DeleteStream answers DELETE /api/streams/{type}/{id}.
func (s *Server) DeleteStream(ctx context.Context, r api.DeleteStreamRequestObject) (api.DeleteStreamResponseObject, error) {
	action, forGood := actionDeleteStream, false
	switch r.Params.Hard {
	case "", "false":
	case "true":
		action, forGood = actionTombstoneStream, true
	default:
		return nil, badParameter("hard", "true or false")
	}
	c, err := s.streamChange(ctx, action, changeParams{
		legalEntity: r.Params.LegalEntity, stream: event.StreamID{Type: r.Type, ID: r.ID}, expected: r.Params.ExpectedVersion,
		key: r.Params.IdempotencyKey, reason: r.Params.Reason,
	})
	if err != nil {
		return nil, err
	}
	out, err := s.config.Streams.Delete(ctx, c, forGood)
	if err != nil {
		return nil, err
	}
	return changeAnswer(c.Stream, out)
}

// SetStreamMetadata answers PUT /api/streams/{type}/{id}/metadata.
func (s *Server) SetStreamMetadata(ctx context.Context, r api.SetStreamMetadataRequestObject) (api.SetStreamMetadataResponseObject, error) {
	c, err := s.streamChange(ctx, actionDescribeStream, changeParams{
		legalEntity: r.Params.LegalEntity, stream: event.StreamID{Type: r.Type, ID: r.ID}, expected: r.Params.ExpectedVersion,
		key: r.Params.IdempotencyKey, reason: r.Params.Reason,
	})
	if err != nil {
		return nil, err
	}
	metadata, err := stream.ParseMetadata(*r.Body)
	if err != nil {
		return nil, err
	}
	out, err := s.config.Streams.Describe(ctx, c, metadata)
	if err != nil {
		return nil, err
	}
	return changeAnswer(c.Stream, out)
}

// changeParams is what the operations that change a stream are told beside a body.
type changeParams struct {
	legalEntity, expected, key, reason string
	stream                             event.StreamID
}

func (s *Server) streamChange(ctx context.Context, action string, p changeParams) (streams.Change, error) {
	le, err := s.enter(ctx, action, p.legalEntity)
	if err != nil {
		return streams.Change{}, err
	}
	principal := callOf(ctx).principal
	c := streams.Change{
		LegalEntity: le, Stream: p.stream, Actor: tenancy.Actor(principal), PersonID: principal.PersonID, Roles: principal.Roles,
		Reason: p.reason, IdempotencyKey: p.key,
	}
	if c.Expected, err = expectedHeader(p.expected); err != nil {
		return c, err
	}
	if p.key != "" {
		place, err := json.Marshal([]string{action, p.legalEntity, p.stream.Type, p.stream.ID, p.reason})
		if err != nil {
			return c, err
		}
		c.Fingerprint = fingerprint(callOf(ctx).body, p.expected+string(place))
	}
	return c, nil
}

// expectedHeader reads the header Expected-Version; "" expects nothing.
func expectedHeader(header string) (concurrency.Expected, error) {
	if expected, ok := concurrency.ParseExpected(header); ok {
		return expected, nil
	}
	expected, ok := parseExpected(json.RawMessage(header))
	if !ok {
		return expected, badExpectation("Expected-Version")
	}
	return expected, nil
}

func changeAnswer(id event.StreamID, out streams.Outcome) (answer, error) {
	a, err := reply(http.StatusOK, api.StreamChange{
		Stream: api.EventStream{Type: id.Type, ID: id.ID, Version: int64(out.Event.StreamVersion)}, State: out.State.String(),
		Event: api.AppendedEvent{
			ID: out.Event.ID.String(), Sequence: sequenceText(out.Event.Sequence), StreamVersion: int64(out.Event.StreamVersion),
			RecordedAt: timeText(out.Event.RecordedAt), Checksum: hex.EncodeToString(out.Event.Checksum[:]),
		},
	})
	a.replayed = out.Replayed
	return a, err
}

// GetStreamMetadata answers GET /api/streams/{type}/{id}/metadata.
func (s *Server) GetStreamMetadata(ctx context.Context, r api.GetStreamMetadataRequestObject) (api.GetStreamMetadataResponseObject, error) {
	le, err := s.enter(ctx, actionReadStatus, r.Params.LegalEntity)
	if err != nil {
		return nil, err
	}
	status, err := s.config.Streams.Status(ctx, le, event.StreamID{Type: r.Type, ID: r.ID}, callOf(ctx).principal.Roles)
	if err != nil {
		return nil, err
	}
	metadata, err := encode(status.Metadata)
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.StreamStatus{
		Stream: api.EventStream{Type: r.Type, ID: r.ID, Version: int64(status.Version)}, State: status.State.String(),
		Metadata: metadata, MetadataVersion: int64(status.MetadataVersion), ReadableFrom: int64(status.ReadableFrom),
	})
}

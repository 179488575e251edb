package httpapi

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// Streams deletes streams and keeps their metadata: streams.Service.
type Streams interface {
	Delete(ctx context.Context, c streams.Change, forGood bool) (streams.Outcome, error)
	SetMetadata(ctx context.Context, c streams.Change, m stream.Metadata) (streams.Outcome, error)
	Status(ctx context.Context, le ports.LegalEntity, id event.StreamID, roles []string) (streams.Status, error)
}

var streamHandlers = handlers{
	"readStream":        (*Server).readStream,
	"readAllEvents":     (*Server).readAllEvents,
	"appendToStream":    withBody((*Server).appendToStream),
	"deleteStream":      (*Server).deleteStream,
	"setStreamMetadata": withBody((*Server).setStreamMetadata),
	"getStreamMetadata": (*Server).getStreamMetadata,
}

// readStream answers GET /api/streams/{type}/{id}.
func (s *Server) readStream(ctx context.Context, r request) (response, error) {
	le, err := s.authorizeIn(ctx, actionReadEvents, r.query("legal_entity"))
	if err != nil {
		return nil, err
	}
	// Not nil, which would be the server itself.
	roles := append([]string{}, callOf(ctx).principal.Roles...)
	q := query.StreamQuery{Entity: le, Stream: event.StreamID{Type: r.path("type"), ID: r.path("id")}, Roles: roles}
	if q.Direction, err = parseDirection(r.query("direction")); err != nil {
		return nil, err
	}
	if q.WithoutData, err = parseIncludeData(r.query("include_data")); err != nil {
		return nil, err
	}
	if q.Count, err = parsePageCount("count", r.query("count")); err != nil {
		return nil, err
	}
	if r.query("from") != "" {
		n, err := strconv.ParseUint(r.query("from"), 10, 63)
		if err != nil || n == 0 && q.Direction == ports.Backward {
			return nil, invalidParameter("from", "a version such as 4; leave it out to begin at the end")
		}
		q.From = event.Version(n)
	}
	if q.AsOf, err = parseEffectiveDate(r.query("as_of")); err != nil {
		return nil, err
	}
	q.KnownAt = r.query("known_at")
	page, err := s.config.Events.Stream(ctx, q)
	if err != nil {
		return nil, err
	}
	w, shown, err := s.render(ctx, page.Events)
	if err != nil {
		return nil, err
	}
	w.withoutData = q.WithoutData
	w.raw(`{"stream":{"type":`)
	w.text(r.path("type"))
	w.member("id", r.path("id"))
	w.raw(`,"version":`)
	w.b = strconv.AppendUint(w.b, uint64(page.Version), 10)
	w.raw(`},"events":`)
	if err := w.events(shown); err != nil {
		return nil, err
	}
	w.raw(`,"has_more":`)
	w.b = strconv.AppendBool(w.b, page.HasMore)
	if page.HasMore {
		w.raw(`,"next_from":`)
		w.b = strconv.AppendUint(w.b, uint64(page.Next), 10)
	}
	if page.Until != nil {
		w.member("as_of_sequence", numberText(*page.Until))
	}
	w.raw("}")
	return answer{status: http.StatusOK, body: w.b, cacheControl: cacheControlOf(page)}, nil
}

// cacheControlOf returns the Cache-Control of a page. Pages with personal data are not
// cached, because an erasure would not reach the caches.
func cacheControlOf(page query.StreamPage) string {
	for i := range page.Events {
		if len(page.Events[i].PII) > 0 {
			return ""
		}
	}
	return page.CacheControl
}

// readAllEvents answers GET /api/streams/$all.
func (s *Server) readAllEvents(ctx context.Context, r request) (response, error) {
	p := callOf(ctx).principal
	q := query.FeedQuery{TenantID: p.TenantID, Readable: p.LegalEntities, Cursor: r.query("from")}
	var err error
	if q.WithoutData, err = parseIncludeData(r.query("include_data")); err != nil {
		return nil, err
	}
	if q.Count, err = parsePageCount("count", r.query("count")); err != nil {
		return nil, err
	}
	page, err := s.config.Events.Feed(ctx, q)
	if err != nil {
		return nil, err
	}
	w, shown, err := s.render(ctx, page.Events)
	if err != nil {
		return nil, err
	}
	w.withoutData = q.WithoutData
	w.raw(`{"events":`)
	if err := w.events(shown); err != nil {
		return nil, err
	}
	w.raw(`,"has_more":`)
	w.b = strconv.AppendBool(w.b, page.HasMore)
	w.member("next_cursor", page.NextCursor)
	w.raw("}")
	return answer{status: http.StatusOK, body: w.b}, nil
}

// appendToStream answers POST /api/streams/{type}/{id}/events: a batch whose events
// all belong to one stream.
func (s *Server) appendToStream(ctx context.Context, r request, body *api.StreamAppendRequest) (response, error) {
	batch := api.AppendRequest{AppendCondition: body.AppendCondition, Events: make([]api.NewEvent, len(body.Events))}
	for i := range body.Events {
		e := &body.Events[i]
		batch.Events[i] = api.NewEvent{
			Type: e.Type, SchemaVersion: e.SchemaVersion, OccurredAt: e.OccurredAt, EffectiveDate: e.EffectiveDate,
			Scope:           api.NewScope{LegalEntity: r.query("legal_entity"), Division: e.Scope.Division, Region: e.Scope.Region, Site: e.Scope.Site, Custom: e.Scope.Custom},
			Stream:          api.Stream{Type: r.path("type"), ID: r.path("id")},
			ExpectedVersion: body.ExpectedVersion, ExpectedEntities: e.ExpectedEntities,
			CausedBy: e.CausedBy, CausedByLegalEntity: e.CausedByLegalEntity, CorrelationID: e.CorrelationID,
			Data: e.Data, Dimensions: e.Dimensions, Entities: e.Entities, Tags: e.Tags, Source: e.Source,
		}
	}
	place, err := json.Marshal([]string{r.query("legal_entity"), r.path("type"), r.path("id")})
	if err != nil {
		return nil, err
	}
	a, err := s.appendBatch(ctx, batch, r.header("Idempotency-Key"), r.header("Expected-Version"), string(place))
	if f, ok := fault.As(err); ok && strings.HasPrefix(f.Field, "/events/") {
		for suffix, field := range map[string]string{
			"/scope/legal_entity": "legal_entity", "/stream/type": "type", "/stream/id": "id", "/stream": "id", "/expected_version": "/expected_version",
		} {
			if strings.HasSuffix(f.Field, suffix) {
				return nil, f.WithField(field)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

const (
	actionDeleteStream    = "streams.delete"
	actionTombstoneStream = "streams.tombstone"
	actionDescribeStream  = "streams.describe"
	actionReadStatus      = "streams.read"
)

// deleteStream answers DELETE /api/streams/{type}/{id}.
func (s *Server) deleteStream(ctx context.Context, r request) (response, error) {
	action, forGood := actionDeleteStream, false
	switch r.query("hard") {
	case "", "false":
	case "true":
		action, forGood = actionTombstoneStream, true
	default:
		return nil, invalidParameter("hard", "true or false")
	}
	c, err := s.streamChange(ctx, action, changeParams{
		legalEntity: r.query("legal_entity"), stream: event.StreamID{Type: r.path("type"), ID: r.path("id")}, expected: r.header("Expected-Version"),
		key: r.header("Idempotency-Key"), reason: r.query("reason"),
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

// setStreamMetadata answers PUT /api/streams/{type}/{id}/metadata.
func (s *Server) setStreamMetadata(ctx context.Context, r request, body *api.StreamMetadata) (response, error) {
	c, err := s.streamChange(ctx, actionDescribeStream, changeParams{
		legalEntity: r.query("legal_entity"), stream: event.StreamID{Type: r.path("type"), ID: r.path("id")}, expected: r.header("Expected-Version"),
		key: r.header("Idempotency-Key"), reason: r.query("reason"),
	})
	if err != nil {
		return nil, err
	}
	metadata, err := stream.ParseMetadata(*body)
	if err != nil {
		return nil, err
	}
	out, err := s.config.Streams.SetMetadata(ctx, c, metadata)
	if err != nil {
		return nil, err
	}
	return changeAnswer(c.Stream, out)
}

// changeParams are the parameters of the operations that change a stream.
type changeParams struct {
	legalEntity, expected, key, reason string
	stream                             event.StreamID
}

func (s *Server) streamChange(ctx context.Context, action string, p changeParams) (streams.Change, error) {
	le, err := s.authorizeIn(ctx, action, p.legalEntity)
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

// expectedHeader reads the header Expected-Version; "" expects any version.
func expectedHeader(header string) (concurrency.Expected, error) {
	if expected, ok := concurrency.ParseExpected(header); ok {
		return expected, nil
	}
	expected, ok := parseExpected(json.RawMessage(header))
	if !ok {
		return expected, invalidExpectation("Expected-Version")
	}
	return expected, nil
}

func changeAnswer(id event.StreamID, out streams.Outcome) (answer, error) {
	a, err := reply(http.StatusOK, api.StreamChange{
		Stream: api.EventStream{Type: id.Type, ID: id.ID, Version: int64(out.Event.StreamVersion)}, State: out.State.String(),
		Event: api.AppendedEvent{
			ID: out.Event.ID.String(), Sequence: numberText(out.Event.Sequence), StreamVersion: int64(out.Event.StreamVersion),
			RecordedAt: timeText(out.Event.RecordedAt), Checksum: hex.EncodeToString(out.Event.Checksum[:]),
		},
	})
	a.replayed = out.Replayed
	return a, err
}

// getStreamMetadata answers GET /api/streams/{type}/{id}/metadata.
func (s *Server) getStreamMetadata(ctx context.Context, r request) (response, error) {
	le, err := s.authorizeIn(ctx, actionReadStatus, r.query("legal_entity"))
	if err != nil {
		return nil, err
	}
	status, err := s.config.Streams.Status(ctx, le, event.StreamID{Type: r.path("type"), ID: r.path("id")}, callOf(ctx).principal.Roles)
	if err != nil {
		return nil, err
	}
	metadata, err := encode(status.Metadata)
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.StreamStatus{
		Stream: api.EventStream{Type: r.path("type"), ID: r.path("id"), Version: int64(status.Version)}, State: status.State.String(),
		Metadata: metadata, MetadataVersion: int64(status.MetadataVersion), ReadableFrom: int64(status.ReadableFrom),
	})
}

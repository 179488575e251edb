package httpapi

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

var streamHandlers = handlers{
	"readStream":         (*Server).readStream,
	"readAllEvents":      (*Server).readAllEvents,
	"readGlobalLog":      (*Server).readGlobalLog,
	"getGlobalLogCursor": (*Server).getGlobalLogCursor,
	"appendToStream":     withBody((*Server).appendToStream),
	"deleteStream":       (*Server).deleteStream,
	"setStreamMetadata":  withBody((*Server).setStreamMetadata),
	"getStreamMetadata":  (*Server).getStreamMetadata,
}

// readStream answers GET /api/streams/{type}/{id}.
func (s *Server) readStream(ctx context.Context, r *request) (any, error) {
	le, err := s.authorizeIn(ctx, actionReadEvents, r.query("legal_entity"))
	if err != nil {
		return nil, err
	}
	q := query.StreamQuery{
		Entity: le, Stream: r.stream(), Roles: rolesOf(ctx), Direction: r.direction(), WithoutData: r.withoutData(), Count: r.pageLimit("count"),
		AsOf: r.date("as_of"), KnownAt: r.query("known_at"),
	}
	first := 0
	if q.Direction == ports.Backward {
		first = 1
	}
	q.From = event.Version(r.integer("from", first, math.MaxInt, 0, "a version such as 4; leave it out to begin at the end"))
	if r.err != nil {
		return nil, r.err
	}
	page, err := s.config.Events.Stream(ctx, q)
	if err != nil {
		return nil, err
	}
	w, err := s.render(ctx, page.Events)
	if err != nil {
		return nil, err
	}
	w.withoutData = q.WithoutData
	w.raw(`{"stream":{"type":`)
	w.text(q.Stream.Type)
	w.member("id", q.Stream.ID)
	w.number("version", uint64(page.Version))
	w.raw(`},"events":`)
	w.events()
	w.boolean("has_more", page.HasMore)
	if page.HasMore {
		w.number("next_from", uint64(page.Next))
	}
	if page.Until != nil {
		w.member("as_of_sequence", numberText(*page.Until))
	}
	w.raw("}")
	return answer{status: http.StatusOK, body: w.b, cacheControl: cacheControlOf(page)}, w.err
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
func (s *Server) readAllEvents(ctx context.Context, r *request) (any, error) {
	p := callOf(ctx).principal
	q := query.FeedQuery{TenantID: p.TenantID, Readable: p.LegalEntities, Cursor: r.query("from"), WithoutData: r.withoutData(), Count: r.pageLimit("count")}
	if r.err != nil {
		return nil, r.err
	}
	page, err := s.config.Events.Feed(ctx, q)
	if err != nil {
		return nil, err
	}
	w, err := s.renderPage(ctx, page.Events, q.WithoutData, page.HasMore)
	if err != nil {
		return nil, err
	}
	w.member("next_cursor", page.NextCursor)
	w.raw("}")
	return w.answer()
}

// readGlobalLog answers GET /api/global-log/events.
func (s *Server) readGlobalLog(ctx context.Context, r *request) (any, error) {
	p := callOf(ctx).principal
	q := query.GlobalQuery{TenantID: p.TenantID, Readable: p.LegalEntities, Direction: r.direction(), WithoutData: r.withoutData(), Count: r.pageLimit("count")}
	first := 0
	if q.Direction == ports.Backward {
		first = int(globallog.End)
	}
	q.From = globallog.Position(r.integer("from", 0, int(globallog.End), first, "a position such as 4200; the first is 0"))
	if r.err != nil {
		return nil, r.err
	}
	page, err := s.config.GlobalOrder.Read(ctx, q)
	if err != nil {
		return nil, err
	}
	w, err := s.renderPage(ctx, page.Events, q.WithoutData, page.HasMore)
	if err != nil {
		return nil, err
	}
	if page.HasMore || q.Direction == ports.Forward {
		w.member("next_position", strconv.FormatUint(uint64(page.Next), 10))
	}
	w.optional("next_cursor", page.NextCursor)
	w.raw("}")
	return w.answer()
}

// getGlobalLogCursor answers GET /api/global-log/cursor.
func (s *Server) getGlobalLogCursor(ctx context.Context, r *request) (any, error) {
	p := callOf(ctx).principal
	from := r.integer("position", 0, int(globallog.End), 0, "a position such as 4200; the first is 0")
	if r.err != nil {
		return nil, r.err
	}
	cursor, err := s.config.GlobalOrder.CursorAt(ctx, p.TenantID, p.LegalEntities, globallog.Position(from))
	return api.GlobalLogCursor{Cursor: cursor}, err
}

// appendToStream answers POST /api/streams/{type}/{id}/events: a batch whose events
// all belong to one stream.
func (s *Server) appendToStream(ctx context.Context, r *request, body *api.StreamAppendRequest) (any, error) {
	batch := api.AppendRequest{AppendCondition: body.AppendCondition, AllowUnknownCause: body.AllowUnknownCause, Events: make([]api.NewEvent, len(body.Events))}
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
	a, err := s.appendBatch(ctx, r, &batch, string(place))
	if f, ok := fault.As(err); ok && strings.HasPrefix(f.Field, "/events/") {
		for suffix, field := range map[string]string{
			"/scope/legal_entity": "legal_entity", "/stream/type": "type", "/stream/id": "id", "/stream": "id", "/expected_version": "/expected_version",
		} {
			if strings.HasSuffix(f.Field, suffix) {
				return nil, f.WithField(field)
			}
		}
	}
	return a, err
}

const (
	actionDeleteStream    = "streams.delete"
	actionTombstoneStream = "streams.tombstone"
	actionDescribeStream  = "streams.describe"
	actionReadStatus      = "streams.read"
)

// deleteStream answers DELETE /api/streams/{type}/{id}.
func (s *Server) deleteStream(ctx context.Context, r *request) (any, error) {
	action, forGood := actionDeleteStream, r.flag("hard")
	if r.err != nil {
		return nil, r.err
	}
	if forGood {
		action = actionTombstoneStream
	}
	c, err := s.streamChange(ctx, action, r)
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
func (s *Server) setStreamMetadata(ctx context.Context, r *request, body *api.StreamMetadata) (any, error) {
	c, err := s.streamChange(ctx, actionDescribeStream, r)
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

// streamChange reads the parameters of the operations that change a stream.
func (s *Server) streamChange(ctx context.Context, action string, r *request) (streams.Change, error) {
	legalEntity, expected, id := r.query("legal_entity"), r.header("Expected-Version"), r.stream()
	le, err := s.authorizeIn(ctx, action, legalEntity)
	if err != nil {
		return streams.Change{}, err
	}
	principal := callOf(ctx).principal
	c := streams.Change{
		LegalEntity: le, Stream: id, Actor: principal.Actor(), PersonID: principal.PersonID, Roles: principal.Roles,
		Reason: r.query("reason"), IdempotencyKey: r.idempotencyKey(),
	}
	if c.Expected, err = parseExpectedHeader(expected); err != nil {
		return c, err
	}
	if c.IdempotencyKey != "" {
		place, err := json.Marshal([]string{action, legalEntity, id.Type, id.ID, c.Reason})
		if err != nil {
			return c, err
		}
		c.Fingerprint = fingerprint(callOf(ctx).body, expected+string(place))
	}
	return c, nil
}

// parseExpectedHeader reads the header Expected-Version; "" expects any version.
func parseExpectedHeader(header string) (concurrency.Expected, error) {
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
	return replyReplayed(http.StatusOK, api.StreamChange{
		Stream: api.EventStream{Type: id.Type, ID: id.ID, Version: int64(out.Event.StreamVersion)}, State: out.State.String(), Event: receiptAnswer(out.Event),
	}, out.Replayed)
}

// getStreamMetadata answers GET /api/streams/{type}/{id}/metadata.
func (s *Server) getStreamMetadata(ctx context.Context, r *request) (any, error) {
	le, err := s.authorizeIn(ctx, actionReadStatus, r.query("legal_entity"))
	if err != nil {
		return nil, err
	}
	status, err := s.config.Streams.Status(ctx, le, r.stream(), callOf(ctx).principal.Roles)
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

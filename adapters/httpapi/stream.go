package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// ReadStream answers GET /api/streams/{type}/{id}.
func (s *Server) ReadStream(ctx context.Context, r api.ReadStreamRequestObject) (api.ReadStreamResponseObject, error) {
	le, err := s.enter(ctx, "events.read", r.Params.LegalEntity)
	if err != nil {
		return nil, err
	}
	// Not nil: a caller without roles is not the log itself.
	roles := append([]string{}, callOf(ctx).principal.Roles...)
	q := query.StreamQuery{Entity: le, Stream: event.StreamID{Type: r.Type, ID: r.ID}, Roles: roles}
	if q.Direction, err = direction(r.Params.Direction); err != nil {
		return nil, err
	}
	if q.WithoutData, err = withoutData(r.Params.IncludeData); err != nil {
		return nil, err
	}
	if q.Count, err = pageCount("count", r.Params.Count); err != nil {
		return nil, err
	}
	if r.Params.From != "" {
		n, err := strconv.ParseUint(r.Params.From, 10, 63)
		if err != nil || n == 0 && q.Direction == ports.Backward {
			return nil, badParameter("from", "a version such as 4; leave it out to begin at the end")
		}
		q.From = event.Version(n)
	}
	if q.AsOf, err = effectiveDate(r.Params.AsOf); err != nil {
		return nil, err
	}
	q.KnownAt = r.Params.KnownAt
	page, err := s.config.Events.Stream(ctx, q)
	if err != nil {
		return nil, err
	}
	w, shown, err := s.render(ctx, page.Events)
	if err != nil {
		return nil, err
	}
	w.bare = q.WithoutData
	w.raw(`{"stream":{"type":`)
	w.text(r.Type)
	w.member("id", r.ID)
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
		w.member("as_of_sequence", sequenceText(*page.Until))
	}
	w.raw("}")
	return answer{status: http.StatusOK, body: w.b, cache: cacheOf(page)}, nil
}

// cacheOf is what a page may be kept for. Personal data are not kept: they must be
// gone when the person is erased.
func cacheOf(page query.StreamPage) string {
	for i := range page.Events {
		if len(page.Events[i].PII) > 0 {
			return ""
		}
	}
	return page.CacheControl
}

// ReadAllEvents answers GET /api/streams/$all.
func (s *Server) ReadAllEvents(ctx context.Context, r api.ReadAllEventsRequestObject) (api.ReadAllEventsResponseObject, error) {
	p := callOf(ctx).principal
	q := query.FeedQuery{TenantID: p.TenantID, Readable: p.LegalEntities, Cursor: r.Params.From}
	var err error
	if q.WithoutData, err = withoutData(r.Params.IncludeData); err != nil {
		return nil, err
	}
	if q.Count, err = pageCount("count", r.Params.Count); err != nil {
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
	w.bare = q.WithoutData
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

// AppendToStream answers POST /api/streams/{type}/{id}/events: a batch whose events
// all belong to one stream.
func (s *Server) AppendToStream(ctx context.Context, r api.AppendToStreamRequestObject) (api.AppendToStreamResponseObject, error) {
	batch := api.AppendRequest{AppendCondition: r.Body.AppendCondition, Events: make([]api.NewEvent, len(r.Body.Events))}
	for i := range r.Body.Events {
		e := &r.Body.Events[i]
		batch.Events[i] = api.NewEvent{
			Type: e.Type, SchemaVersion: e.SchemaVersion, OccurredAt: e.OccurredAt, EffectiveDate: e.EffectiveDate,
			Scope:           api.NewScope{LegalEntity: r.Params.LegalEntity, Division: e.Scope.Division, Region: e.Scope.Region, Site: e.Scope.Site, Custom: e.Scope.Custom},
			Stream:          api.Stream{Type: r.Type, ID: r.ID},
			ExpectedVersion: r.Body.ExpectedVersion, ExpectedEntities: e.ExpectedEntities,
			CausedBy: e.CausedBy, CausedByLegalEntity: e.CausedByLegalEntity, CorrelationID: e.CorrelationID,
			Data: e.Data, Dimensions: e.Dimensions, Entities: e.Entities, Tags: e.Tags, Source: e.Source,
		}
	}
	place, err := json.Marshal([]string{r.Params.LegalEntity, r.Type, r.ID})
	if err != nil {
		return nil, err
	}
	a, err := s.appendBatch(ctx, batch, r.Params.IdempotencyKey, r.Params.ExpectedVersion, string(place))
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

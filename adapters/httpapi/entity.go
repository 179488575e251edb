package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/entities"
	"github.com/erpbackbone/backbone/application/snapshot"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Entities folds entities: entity.Service.
type Entities interface {
	Read(ctx context.Context, q entities.Query) (entities.State, error)
}

// Snapshots keeps states that clients store for their streams: snapshot.Service.
type Snapshots interface {
	Save(ctx context.Context, le ports.LegalEntity, roles []string, n snapshot.NewSnapshot) (stored ports.StreamSnapshot, created bool, err error)
	// Get reads the snapshot at a version, the newest for 0.
	Get(ctx context.Context, le ports.LegalEntity, roles []string, id event.StreamID, v event.Version) (ports.StreamSnapshot, error)
}

const (
	actionReadEntities   = "entities.read"
	actionReadSnapshots  = "snapshots.read"
	actionWriteSnapshots = "snapshots.write"
)

func (a answer) VisitGetEntityResponse(w http.ResponseWriter) error         { return a.write(w) }
func (a answer) VisitSaveSnapshotResponse(w http.ResponseWriter) error      { return a.write(w) }
func (a answer) VisitGetLatestSnapshotResponse(w http.ResponseWriter) error { return a.write(w) }
func (a answer) VisitGetSnapshotResponse(w http.ResponseWriter) error       { return a.write(w) }

// GetEntity answers GET /api/entities/{type}/{id}.
func (s *Server) GetEntity(ctx context.Context, r api.GetEntityRequestObject) (api.GetEntityResponseObject, error) {
	le, err := s.enter(ctx, actionReadEntities, r.Params.LegalEntity)
	if err != nil {
		return nil, err
	}
	q := entities.Query{LegalEntity: le, Type: r.Type, ID: r.ID, KnownAt: r.Params.KnownAt}
	var ok bool
	if q.Consistency, ok = entities.ParseConsistency(r.Params.Consistency); !ok {
		return nil, badParameter("consistency", "strong, verified or eventual")
	}
	if q.AsOf, err = effectiveDate(r.Params.AsOf); err != nil {
		return nil, err
	}
	found, err := s.config.Entities.Read(ctx, q)
	if err != nil {
		return nil, err
	}
	// The state alone is opened: nothing else in the answer comes from events.
	state, err := s.openCopies(ctx, le.Partition, found.State)
	if err != nil {
		return nil, err
	}
	out := api.EntityState{
		Entity: api.EntityIdentity{Type: r.Type, ID: r.ID}, LegalEntity: le.Code, State: state,
		Version: sequenceText(found.Version), AsOfSequence: sequenceText(found.AsOf), HeadVersion: sequenceText(found.Head),
		EventCount: found.EventCount, EventsFolded: found.Folded, Consistency: string(found.Reached), AsOf: r.Params.AsOf, KnownAt: found.KnownAt,
	}
	if b := found.Snapshot; b != nil {
		out.Snapshot = &api.EntitySnapshot{
			Version: sequenceText(b.Version), AsOfSequence: sequenceText(b.AsOf), EventCount: b.EventCount,
			EffectiveThrough: b.EffectiveThrough.String(), CreatedAt: timeText(b.CreatedAt), SizeBytes: len(b.State),
		}
	}
	return reply(http.StatusOK, out)
}

// effectiveDate reads the parameter as_of; "" is nil.
func effectiveDate(text string) (*event.Date, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no date is no limit
	}
	d, err := event.ParseDate(text)
	if err != nil {
		return nil, badParameter("as_of", "an ISO date such as 2026-03-31")
	}
	return &d, nil
}

// SaveSnapshot answers POST /api/snapshots/{type}/{id}.
func (s *Server) SaveSnapshot(ctx context.Context, r api.SaveSnapshotRequestObject) (api.SaveSnapshotResponseObject, error) {
	le, err := s.enter(ctx, actionWriteSnapshots, r.Params.LegalEntity)
	if err != nil {
		return nil, err
	}
	b := r.Body
	stored, created, err := s.config.Snapshots.Save(ctx, le, rolesOf(ctx), snapshot.NewSnapshot{
		Stream: event.StreamID{Type: r.Type, ID: r.ID}, Version: event.Version(max(b.Version, 0)), StateType: b.StateType, SchemaVersion: int(b.SchemaVersion),
		State: b.State, Metadata: b.Metadata,
	})
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return snapshotAnswer(status, stored, false)
}

// GetLatestSnapshot answers GET /api/snapshots/{type}/{id}/latest.
func (s *Server) GetLatestSnapshot(ctx context.Context, r api.GetLatestSnapshotRequestObject) (api.GetLatestSnapshotResponseObject, error) {
	return s.readSnapshot(ctx, r.Params.LegalEntity, event.StreamID{Type: r.Type, ID: r.ID}, 0)
}

// GetSnapshot answers GET /api/snapshots/{type}/{id}/{version}.
func (s *Server) GetSnapshot(ctx context.Context, r api.GetSnapshotRequestObject) (api.GetSnapshotResponseObject, error) {
	v, err := strconv.ParseUint(r.Version, 10, 63)
	if err != nil || v == 0 {
		return nil, badParameter("version", "a version such as 4, or latest")
	}
	return s.readSnapshot(ctx, r.Params.LegalEntity, event.StreamID{Type: r.Type, ID: r.ID}, event.Version(v))
}

func (s *Server) readSnapshot(ctx context.Context, legalEntity string, id event.StreamID, v event.Version) (answer, error) {
	le, err := s.enter(ctx, actionReadSnapshots, legalEntity)
	if err != nil {
		return answer{}, err
	}
	found, err := s.config.Snapshots.Get(ctx, le, rolesOf(ctx), id, v)
	if err != nil {
		return answer{}, err
	}
	return snapshotAnswer(http.StatusOK, found, true)
}

// rolesOf are the caller's roles, for access lists. They are not nil: a caller without
// roles is not the log itself.
func rolesOf(ctx context.Context) []string {
	return append([]string{}, callOf(ctx).principal.Roles...)
}

func snapshotAnswer(status int, n ports.StreamSnapshot, whole bool) (answer, error) {
	out := api.StreamSnapshot{
		SnapshotID: n.ID.String(), Stream: api.Stream{Type: n.Stream.Type, ID: n.Stream.ID}, Version: int64(n.Version), StateType: n.StateType,
		SchemaVersion: int32(n.SchemaVersion), CreatedAt: timeText(n.CreatedAt), SizeBytes: len(n.State),
	}
	if whole {
		out.State, out.Metadata = n.State, n.Metadata
	}
	return reply(status, out)
}

package httpapi

import (
	"context"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

var snapshotHandlers = handlers{
	"saveSnapshot":      withBody((*Server).saveSnapshot),
	"getLatestSnapshot": (*Server).getLatestSnapshot,
	"getSnapshot":       (*Server).getSnapshot,
}

const (
	actionReadSnapshots  = "snapshots.read"
	actionWriteSnapshots = "snapshots.write"
)

// saveSnapshot answers POST /api/snapshots/{type}/{id}.
func (s *Server) saveSnapshot(ctx context.Context, r *request, body *api.NewSnapshot) (any, error) {
	le, err := s.authorizeIn(ctx, actionWriteSnapshots, r.query("legal_entity"))
	if err != nil {
		return nil, err
	}
	stored, created, err := s.config.Snapshots.Save(ctx, le, rolesOf(ctx), streams.NewSnapshot{
		Stream: r.stream(), Version: event.Version(max(body.Version, 0)), StateType: body.StateType, SchemaVersion: int(body.SchemaVersion),
		State: body.State, Metadata: body.Metadata,
	})
	if err != nil {
		return nil, err
	}
	return reply(createdStatus(created), snapshotAnswer(stored))
}

// getLatestSnapshot answers GET /api/snapshots/{type}/{id}/latest.
func (s *Server) getLatestSnapshot(ctx context.Context, r *request) (any, error) {
	return s.readSnapshot(ctx, r, 0)
}

// getSnapshot answers GET /api/snapshots/{type}/{id}/{version}.
func (s *Server) getSnapshot(ctx context.Context, r *request) (any, error) {
	v, err := strconv.ParseUint(r.path("version"), 10, 63)
	if err != nil || v == 0 {
		return nil, invalidParameter("version", "a version such as 4, or latest")
	}
	return s.readSnapshot(ctx, r, event.Version(v))
}

func (s *Server) readSnapshot(ctx context.Context, r *request, v event.Version) (any, error) {
	le, err := s.authorizeIn(ctx, actionReadSnapshots, r.query("legal_entity"))
	if err != nil {
		return nil, err
	}
	found, err := s.config.Snapshots.Get(ctx, le, rolesOf(ctx), r.stream(), v)
	out := snapshotAnswer(found)
	out.State, out.Metadata = found.State, found.Metadata
	return out, err
}

// snapshotAnswer describes a snapshot without its state.
func snapshotAnswer(n ports.StreamSnapshot) api.StreamSnapshot {
	return api.StreamSnapshot{
		SnapshotID: n.ID.String(), Stream: api.Stream{Type: n.Stream.Type, ID: n.Stream.ID}, Version: int64(n.Version), StateType: n.StateType,
		SchemaVersion: int32(n.SchemaVersion), CreatedAt: timeText(n.CreatedAt), SizeBytes: len(n.State),
	}
}

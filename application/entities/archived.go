package entities

import (
	"context"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

// archiveTime bounds the fold of a state for the archive, which no request waits for.
const archiveTime = time.Hour

// ArchivedState folds the state of an entity as of a sequence, from which reads go on when the events up to there are
// archived. found is false if there is none, because the state is too large or snapshots are not stored.
func (s *Service) ArchivedState(ctx context.Context, le ports.LegalEntity, entityType, entityID string, through event.Sequence) (state archive.State, found bool, err error) {
	if s.Archived == nil {
		return archive.State{}, false, nil
	}
	patient := *s
	patient.FoldTimeout = archiveTime
	q := Query{LegalEntity: le, Type: entityType, ID: entityID, Consistency: Strong}
	r := entityRead{service: &patient, query: q, key: event.EntityKey(entityType, entityID), startedAt: s.Clock.Now(), fold: s.foldOf(q), known: through, head: through}
	redactions, err := s.Archived.EntityRedactions(ctx, le.Partition, r.key, through)
	if err != nil {
		return archive.State{}, false, err
	}
	if err := r.findSnapshots(ctx); err != nil {
		return archive.State{}, false, err
	}
	p, err := r.foldLog(ctx)
	if err != nil || r.exhausted || s.foldOf(q).name != r.fold.name {
		return archive.State{}, false, err
	}
	text, err := json.Marshal(p.state)
	if err != nil || len(text) > snapshot.MaxBytes {
		return archive.State{}, false, err
	}
	return archive.State{
		Key: r.key, AsOf: uint64(through), Version: p.version, Fold: r.fold.name, EffectiveThrough: p.through, EventCount: p.count, Redactions: redactions, State: text,
	}, true, nil
}

// takeArchived begins the fold with the state in the archive, if that is of this fold, newer, and has nothing that the
// query excludes.
func (r *entityRead) takeArchived(ctx context.Context, p foldProgress) (foldProgress, bool, error) {
	if r.isLimited() {
		return p, false, nil
	}
	s, err := r.service.Archived.Entity(ctx, r.query.LegalEntity, r.key)
	if err != nil || s == nil {
		return p, false, err
	}
	asOf := event.Sequence(s.AsOf)
	if s.Fold != r.fold.name || asOf <= p.after || asOf > r.known || r.query.AsOf != nil && s.EffectiveThrough > *r.query.AsOf {
		return p, false, nil
	}
	state := r.fold.New(r.query.ID)
	if !isObject(s.State) {
		return p, false, nil
	}
	if err := json.Unmarshal(s.State, state); err != nil {
		return p, false, nil //nolint:nilerr // the cause may quote the state; folding gives the same
	}
	// Events are folded in the order of their sequences, back-dated ones too, so the fold just goes on.
	return foldProgress{state: state, after: asOf, version: s.Version, through: s.EffectiveThrough, count: s.EventCount, folded: p.folded}, true, nil
}

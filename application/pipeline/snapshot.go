package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"math"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/snapshots"
	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

// Background runs work that no request waits for. Do reports false if it drops the work.
type Background interface {
	Do(key string, f func(ctx context.Context)) bool
}

// snapshotStore stores folded states of streams as internal snapshots. A nil one stores
// none.
type snapshotStore struct {
	snapshots  *snapshots.Streams
	archived   *snapshots.Archived // nil: there are none
	background Background
	clock      ports.Clock
	ids        ports.IDSource
	log        *slog.Logger
	every      event.Version
	readingID  func(tenantID string) string
}

func newSnapshotStore(c Config) *snapshotStore {
	if c.Snapshots == nil || c.Background == nil {
		return nil
	}
	return &snapshotStore{c.Snapshots, c.Archived, c.Background, c.Clock, c.IDs, c.Logger, event.Version(c.SnapshotEvery), c.ReadingID}
}

// stateType names the snapshots of a stream. The name includes the reading id, so a
// change of upcasting makes older snapshots unusable.
func (s *snapshotStore) stateType(k stateKey) string {
	if s.readingID == nil {
		return "fold:" + k.stream.Type
	}
	return "fold:" + k.stream.Type + "@" + s.readingID(k.tenantID)
}

// load returns the newest snapshot, or the state of an empty stream. Errors of the store
// count as no snapshot: folding from the first event gives the same state.
func (s *snapshotStore) load(ctx context.Context, k stateKey, fold module.Fold) foldedState {
	if s == nil || fold.Codec == nil {
		return foldedState{state: fold.New()}
	}
	f, _, _ := s.read(ctx, k, fold)
	return f
}

// read returns the newest snapshot that this fold can decode, and the epoch to save the
// next one under.
func (s *snapshotStore) read(ctx context.Context, k stateKey, fold module.Fold) (foldedState, ports.SnapshotEpoch, error) {
	none, name := foldedState{state: fold.New()}, s.stateType(k)
	found, epoch, err := s.snapshots.Read(ctx, ports.LegalEntity{TenantID: k.tenantID, Partition: k.partition}, k.stream, true, 0)
	if err != nil && fault.KindOf(err) == fault.NotFound {
		return none, epoch, nil
	}
	if err != nil {
		return none, 0, err
	}
	if found.StateType != name || found.SchemaVersion != fold.Codec.Version {
		return none, epoch, nil // written by another version of the program
	}
	state, err := fold.Codec.Decode(found.State)
	if err != nil {
		// The cause is not logged, because it may quote the stored state.
		s.log.WarnContext(ctx, "snapshot cannot be decoded and is not used; the next one replaces it",
			"code", "snapshot.damaged", "stream_type", k.stream.Type, "partition", uint32(k.partition), "version", uint64(found.Version))
		return none, epoch, nil //nolint:nilerr // logged above; folding gives the same state
	}
	return foldedState{state: state, version: found.Version, snapshotVersion: found.Version}, epoch, nil
}

// isDue reports whether enough events were folded since the last snapshot, or archived ones had to be.
func (s *snapshotStore) isDue(fold module.Fold, f foldedState) bool {
	return s != nil && fold.Codec != nil && (f.version-f.snapshotVersion >= s.every || f.archived)
}

// saveInBackground takes a snapshot in the background and reports whether Background
// accepted it. It folds the stream again: a cached state may have been folded before a
// redaction.
func (s *snapshotStore) saveInBackground(states *StateCache, k stateKey, fold module.Fold) bool {
	return s.background.Do(fmt.Sprintf("stream %d %s", k.partition, k.stream), func(ctx context.Context) {
		if err := s.saveNow(ctx, states, k, fold); err != nil && fault.CodeOf(err) != snapshot.CodeSuperseded {
			s.log.WarnContext(ctx, "snapshot could not be stored; a later plan tries again",
				"code", fault.CodeOf(err), "stream_type", k.stream.Type, "partition", uint32(k.partition))
		}
	})
}

func (s *snapshotStore) saveNow(ctx context.Context, states *StateCache, k stateKey, fold module.Fold) error {
	name := s.stateType(k) // before the events are read
	f, epoch, err := s.read(ctx, k, fold)
	if err != nil {
		return err
	}
	if f, err = states.advance(ctx, k, fold, f, false, 0); err != nil || f.version-f.snapshotVersion < s.every && !f.archived {
		return err
	}
	state, err := fold.Codec.Encode(f.state)
	if err != nil {
		return err
	}
	if len(state) > snapshot.MaxBytes {
		s.log.WarnContext(ctx, "state of a stream exceeds the limit of snapshots; it is folded from the first event",
			"stream_type", k.stream.Type, "bytes", len(state), "limit", snapshot.MaxBytes)
		return nil
	}
	now := s.clock.Now()
	_, _, err = s.snapshots.Save(ctx, k.tenantID, ports.StreamSnapshot{
		ID: s.ids.NewID(now), Partition: k.partition, Stream: k.stream, Internal: true, Version: f.version, StateType: name,
		SchemaVersion: fold.Codec.Version, State: state, CreatedAt: now,
	}, epoch)
	return err
}

// loadStored returns the newest state that is stored, as a snapshot or with the archive, or that of an empty stream.
func (s *snapshotStore) loadStored(ctx context.Context, k stateKey, fold module.Fold) (foldedState, error) {
	f := s.load(ctx, k, fold)
	if archived, found, err := s.loadArchived(ctx, k, fold, math.MaxInt64); err != nil || found && archived.version > f.version {
		return archived, err
	}
	return f, nil
}

// loadArchived returns the newest state that is stored with the archive, if this fold can decode it and it has no events
// after a sequence.
func (s *snapshotStore) loadArchived(ctx context.Context, k stateKey, fold module.Fold, until event.Sequence) (f foldedState, found bool, err error) {
	if s == nil {
		return f, false, nil
	}
	stored, err := s.archived.Stream(ctx, ports.LegalEntity{TenantID: k.tenantID, Partition: k.partition}, k.stream)
	if err != nil || stored == nil || stored.Fold != s.stateType(k) || stored.Schema != fold.Codec.Version || stored.Through > until {
		return f, false, err
	}
	state, err := fold.Codec.Decode(stored.State)
	if err != nil {
		s.log.WarnContext(ctx, "state of the archive cannot be decoded and is not used; the events are folded",
			"code", "snapshot.damaged", "stream_type", k.stream.Type, "partition", uint32(k.partition), "version", stored.AsOf)
		return f, false, nil //nolint:nilerr // logged above; folding gives the same state
	}
	return foldedState{state: state, version: event.Version(stored.AsOf), snapshotVersion: event.Version(stored.AsOf)}, true, nil
}

// ArchivedState folds the state of a stream as of a sequence, from which plans go on when the events up to there are
// archived. needed is false if no module folds such streams; found is false if the module keeps no states of them, this one
// is too large, or states are not stored.
func (s *StateCache) ArchivedState(ctx context.Context, le ports.LegalEntity, stream event.StreamID, through event.Sequence) (state archive.State, needed, found bool, err error) {
	fold, declared := s.folds.Fold(stream.Type)
	if !declared {
		return state, false, false, nil
	}
	if s.snapshots == nil || s.snapshots.archived == nil || fold.Codec == nil {
		return state, true, false, nil
	}
	k := stateKey{le.TenantID, le.Partition, stream}
	name := s.snapshots.stateType(k) // before the events are read
	f, err := s.advance(ctx, k, fold, foldedState{state: fold.New()}, false, through)
	if err != nil {
		return state, true, false, err
	}
	text, err := fold.Codec.Encode(f.state)
	if err != nil || len(text) > snapshot.MaxBytes {
		return state, true, false, err
	}
	redactions, err := s.snapshots.archived.StreamRedactions(ctx, le.Partition, stream, f.version)
	return archive.State{Key: archive.StreamKey(stream), AsOf: uint64(f.version), Through: through, Fold: name, Schema: fold.Codec.Version, Redactions: redactions, State: text}, true, true, err
}

package pipeline

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

// Background does work that no request waits for. It may drop it.
type Background interface {
	Do(key string, f func(ctx context.Context)) bool
}

// defaultSnapshotEvery is how many events of a stream lie between stored states.
const defaultSnapshotEvery = 100

// storedStates keeps states of streams in the store. A nil one keeps none.
type storedStates struct {
	snapshots  ports.StreamSnapshots
	background Background
	clock      ports.Clock
	ids        ports.IDSource
	log        *slog.Logger
	every      event.Version
	reading    func() string
}

func newStoredStates(c Config) *storedStates {
	if c.Snapshots == nil || c.Background == nil {
		return nil
	}
	every := event.Version(defaultSnapshotEvery)
	if c.SnapshotEvery > 0 {
		every = event.Version(c.SnapshotEvery)
	}
	return &storedStates{c.Snapshots, c.Background, c.Clock, c.IDs, c.Logger, every, c.Reading}
}

// stateType is the name under which the states of a stream type are stored.
func (s *storedStates) stateType(streamType string) string {
	if s.reading == nil {
		return "fold:" + streamType
	}
	return "fold:" + streamType + "@" + s.reading()
}

// load gives the stored state to begin with, else the one of a stream without events.
// A store that cannot tell is like one that has none.
func (s *storedStates) load(ctx context.Context, k stateKey, fold module.Fold) folded {
	if s == nil || fold.Codec == nil {
		return folded{state: fold.New()}
	}
	f, _, _ := s.read(ctx, k, fold)
	return f
}

// read gives the newest stored state, if this fold can read it, and the epoch.
func (s *storedStates) read(ctx context.Context, k stateKey, fold module.Fold) (folded, ports.SnapshotEpoch, error) {
	none, name := folded{state: fold.New()}, s.stateType(k.stream.Type)
	found, epoch, err := s.snapshots.StreamSnapshot(ctx, k.partition, k.stream, true, 0)
	if err != nil && fault.KindOf(err) == fault.NotFound {
		return none, epoch, nil // none is an answer
	}
	if err != nil {
		return none, 0, err
	}
	if found.StateType != name || found.SchemaVersion != fold.Codec.Version {
		return none, epoch, nil // of another version of the program
	}
	state, err := fold.Codec.Decode(found.State)
	if err != nil {
		// The cause may quote what is stored.
		s.log.WarnContext(ctx, "a stored state of a stream cannot be read and is not used; the next one takes its place",
			"code", "snapshot.damaged", "stream_type", k.stream.Type, "partition", uint32(k.partition), "version", uint64(found.Version))
		return none, epoch, nil //nolint:nilerr // it was logged; folding gives the state too
	}
	return folded{state: state, version: found.Version, kept: found.Version}, epoch, nil
}

// wants says whether enough was folded since the stored state.
func (s *storedStates) wants(fold module.Fold, f folded) bool {
	return s != nil && fold.Codec != nil && f.version-f.kept >= s.every
}

// save stores the state of a stream in the background, and tells whether anybody has
// time for it. It folds the stream on its own: what a cache holds may have been folded
// before a redaction.
func (s *storedStates) save(states *States, k stateKey, fold module.Fold) bool {
	return s.background.Do(fmt.Sprintf("stream %d %s", k.partition, k.stream), func(ctx context.Context) {
		if err := s.store(ctx, states, k, fold); err != nil && fault.CodeOf(err) != snapshot.CodeSuperseded {
			s.log.WarnContext(ctx, "the state of a stream could not be stored; a later plan tries again",
				"code", fault.CodeOf(err), "stream_type", k.stream.Type, "partition", uint32(k.partition))
		}
	})
}

func (s *storedStates) store(ctx context.Context, states *States, k stateKey, fold module.Fold) error {
	name := s.stateType(k.stream.Type) // before the events are read
	f, epoch, err := s.read(ctx, k, fold)
	if err != nil {
		return err
	}
	if f, err = states.advance(ctx, k, fold, f, false); err != nil || f.version-f.kept < s.every {
		return err
	}
	state, err := fold.Codec.Encode(f.state)
	if err != nil {
		return err
	}
	if len(state) > snapshot.MaxBytes {
		s.log.WarnContext(ctx, "the state of a stream is too large to be stored; it is folded from the first event",
			"stream_type", k.stream.Type, "bytes", len(state), "limit", snapshot.MaxBytes)
		return nil
	}
	now := s.clock.Now()
	_, _, err = s.snapshots.SaveStreamSnapshot(ctx, ports.StreamSnapshot{
		ID: s.ids.NewID(now), Partition: k.partition, Stream: k.stream, Internal: true, Version: f.version, StateType: name,
		SchemaVersion: fold.Codec.Version, State: state, CreatedAt: now,
	}, epoch)
	return err
}

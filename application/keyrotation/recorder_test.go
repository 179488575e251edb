package keyrotation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/keyrotation"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// journal is an administrative log of one tenant, by stream.
type journal struct {
	ports.AdministrativeLog // nil: other methods are not called
	streams                 map[event.StreamID][]ports.Revision
	adopted                 bool
	err                     error
}

func newJournal() *journal { return &journal{streams: map[event.StreamID][]ports.Revision{}} }

func (j *journal) RecordRevision(_ context.Context, _ string, _ event.Actor, r ports.Revision) error {
	if last := j.streams[r.Stream]; j.err == nil && (len(last) == 0 || last[len(last)-1].Number < r.Number) {
		j.streams[r.Stream] = append(last, r)
	}
	return j.err
}

func (j *journal) Revisions(_ context.Context, _ string, stream event.StreamID) (out []event.Recorded, _ error) {
	for _, r := range j.streams[stream] {
		var e event.Recorded
		e.Type = r.Type
		out = append(out, e)
	}
	return out, nil
}

func (j *journal) AdoptRevisions(ctx context.Context, _, _ string, rows func(context.Context) ([]ports.Revision, error)) (event.Sequence, error) {
	if !j.adopted {
		revisions, err := rows(ctx)
		if err != nil {
			return 0, err
		}
		for _, r := range revisions {
			j.streams[r.Stream] = append(j.streams[r.Stream], r)
		}
		j.adopted = true
	}
	return 1, nil
}

// types returns the types of the events of an epoch.
func (j *journal) types(epoch string) (out []string) {
	for _, r := range j.streams[event.StreamID{Type: shredding.EpochStream, ID: epoch}] {
		out = append(out, r.Type)
	}
	return out
}

func TestRecorder_FollowsRotations(t *testing.T) {
	t.Parallel()
	r, j := newFixtureWithKeys(t, 3), newJournal()
	recorder := keyrotation.NewRecorder(r.service(), j)
	require.NoError(t, recorder.Record(t.Context()))
	require.Equal(t, []string{"backbone.key_epoch.began"}, j.types("1"), "adopted")

	_, err := r.service().Rotate(t.Context(), tenant, nil)
	require.NoError(t, err)
	j.err = errors.New("the log cannot be written")
	require.ErrorIs(t, recorder.Record(t.Context()), j.err)
	j.err = nil
	require.NoError(t, recorder.Record(t.Context()))
	require.NoError(t, keyrotation.NewRecorder(r.service(), j).Record(t.Context()), "another node records nothing again")
	require.Equal(t, []string{"backbone.key_epoch.began", "backbone.key_epoch.ended"}, j.types("1"))
	require.Equal(t, []string{"backbone.key_epoch.began"}, j.types("2"))
	began := j.streams[event.StreamID{Type: shredding.EpochStream, ID: "2"}][0].Data.(shredding.EpochRecord)
	require.EqualValues(t, 1, *began.Covers)
	require.Equal(t, r.keks[1].KeyID, began.KeyID)
}

// TestRecorder_RecordsNoWayBack puts an ended epoch back by hand.
func TestRecorder_RecordsNoWayBack(t *testing.T) {
	t.Parallel()
	r, j := newFixtureWithKeys(t, 3), newJournal()
	_, err := r.service().Rotate(t.Context(), tenant, nil)
	require.NoError(t, err)
	require.NoError(t, keyrotation.NewRecorder(r.service(), j).Record(t.Context()))
	r.keks[0].State = ports.KEKDraining
	require.NoError(t, keyrotation.NewRecorder(r.service(), j).Record(t.Context()))
	require.Equal(t, []string{"backbone.key_epoch.ended"}, j.types("1"))
}

// TestRecorder_EndedWhileInUse ends an epoch by hand whose key wraps keys of persons: it is
// neither recorded nor given to deletion.
func TestRecorder_EndedWhileInUse(t *testing.T) {
	t.Parallel()
	r, j := newFixtureWithKeys(t, 3), newJournal()
	recorder := keyrotation.NewRecorder(r.service(), j)
	require.NoError(t, recorder.Record(t.Context()))
	r.keks[0].State = ports.KEKDeleting
	require.ErrorContains(t, recorder.Record(t.Context()), "epoch 1, which is to be deleted")
	require.Equal(t, []string{"backbone.key_epoch.began"}, j.types("1"))
	_, err := r.service().Rotate(t.Context(), tenant, nil)
	require.Equal(t, "keys.epoch_in_use", fault.CodeOf(err))
	require.Equal(t, ports.KeyEnabled, r.keys[r.keks[0].KeyID].State)
}

func TestRecorder_Run(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, j := newFixtureWithKeys(t, 1), newJournal()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			keyrotation.NewRecorder(r.service(), j).Run(ctx, func(err error) { t.Error(err) })
		}()
		synctest.Wait()
		require.Equal(t, []string{"backbone.key_epoch.began"}, j.types("1"))
		cancel()
		<-done
	})
}

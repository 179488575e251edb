package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	domain "github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/test/typestest"
)

// requireStoredStates requires that a state that is stored and read again after each event is the one that was never
// stored, for all entities and all streams of the books whose module stores states.
func (j *judgement) requireStoredStates(t *testing.T) {
	t.Helper()
	catalog, err := module.Build(typestest.Schemas{}, gl.New(), ap.New())
	require.NoError(t, err)
	type state struct{ straight, stored any }
	checked := map[string]int{} // streams by type
	for _, events := range j.books {
		states, entities := map[domain.StreamID]*state{}, map[string][2]any{}
		for i := range events {
			e := &events[i]
			requireStoredEntities(t, catalog, entities, e)
			fold, declared := catalog.Fold(e.Stream.Type)
			if !declared || fold.Codec == nil {
				continue
			}
			s := states[e.Stream]
			if s == nil {
				s = &state{fold.New(), fold.New()}
				states[e.Stream] = s
				checked[e.Stream.Type]++
			}
			data := foldedData(t, e)
			require.NoError(t, fold.Apply(s.straight, *e, data))
			require.NoError(t, fold.Apply(s.stored, *e, data))
			text, err := fold.Codec.Encode(s.stored)
			require.NoError(t, err)
			s.stored, err = fold.Codec.Decode(text)
			require.NoError(t, err)
			require.Equal(t, s.straight, s.stored, "%s after %s", e.Stream, e.Type)
		}
	}
	require.Greater(t, len(checked), 8, "%v", checked)
}

// foldedData is the data of an event as folds get it.
func foldedData(t *testing.T, e *domain.Recorded) []byte {
	t.Helper()
	body, err := e.Body()
	require.NoError(t, err)
	data, err := shredding.CopySealed(body.Data, shredding.Location{
		Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion, Pointer: "/data",
	})
	require.NoError(t, err)
	return data
}

// requireStoredEntities folds an event into the entities that it refers to: into a state that was never stored, and into one
// that was stored after the event before.
func requireStoredEntities(t *testing.T, catalog *module.Catalog, entities map[string][2]any, e *domain.Recorded) {
	t.Helper()
	body, err := e.Body()
	require.NoError(t, err)
	for _, ref := range body.EntityRefs {
		fold, declared := catalog.EntityFold(ref.Type)
		if !declared {
			continue
		}
		s, known := entities[ref.Key()]
		if !known {
			s = [2]any{fold.New(ref.ID), fold.New(ref.ID)}
		}
		for _, state := range s {
			require.NoError(t, fold.Apply(state, *e, foldedData(t, e)))
		}
		straight, err := json.Marshal(s[0])
		require.NoError(t, err)
		text, err := json.Marshal(s[1])
		require.NoError(t, err)
		require.JSONEq(t, string(straight), string(text), "%s after %s", ref.Key(), e.Type)
		s[1] = fold.New(ref.ID)
		require.NoError(t, json.Unmarshal(text, s[1]))
		entities[ref.Key()] = s
	}
}

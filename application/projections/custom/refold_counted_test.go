package custom_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// An event of the stream of an entity usually refers to it too, and is one event.
func TestAnEventOfItsOwnEntityCountsOnce(t *testing.T) {
	t.Parallel()
	g := newBooth(t, func(c *custom.RecomputeConfig) { c.MaxEvents = 4 })
	p, _ := g.spending(t) // two of them refer to the machine
	own := func() {
		_, err := g.store.Appender.Append(context.Background(), ports.AppendRequest{Partition: g.le.Partition, Events: []event.Prepared{{
			Skeleton: event.Skeleton{
				ID: g.ids.NewID(start), Type: "machine.moved", SchemaVersion: 1, Stream: machine,
				Scope: event.Scope{TenantID: g.le.TenantID, LegalEntity: g.le.Code}, ActorType: event.Human, ActorID: "p-1", ActorName: "clerk",
			},
			Payload: []byte(`{"data":{},"dimensions":{},"entity_refs":[{"entity_type":"machine","entity_id":"M-1","role":"of"}]}`),
			Keys:    []string{event.EntityKey("machine", "M-1")},
		}}})
		require.NoError(t, err)
		g.advance(t, p, g.le, 100)
	}
	own()
	own()
	_, err := g.rebuild(machine, "", false)
	require.NoError(t, err, "four events")
	own()
	_, err = g.rebuild(machine, "", false)
	require.Equal(t, projection.CodeTargetTooLarge, fault.CodeOf(err), "five")
}

// A version may go on without an event while its log is read: that is looked at again, and
// refuses nothing.
func TestWhatAVersionGoesOnWithoutMeanwhileIsLeftOutToo(t *testing.T) {
	t.Parallel()
	g := newBooth(t, nil)
	p, fresh := g.spending(t)
	g.damage(t, p, map[string]string{"V-1": `{"n":7}`})
	g.while = func() {
		var before event.Sequence
		for range 600 { // more than is read while the checkpoint is held
			before = g.write(t, g.le, "shop.other", `{}`)
		}
		g.advance(t, p, g.le, 100)
		g.bill(t, "5", "M-1", "V-1", "no number")
		_, err := g.store.Projections.Isolate(context.Background(), ports.ProjectionFailure{ProjectionWork: g.work(p), At: before, Code: "transform.failed"}, projection.SkipEvent)
		require.NoError(t, err)
	}
	done, err := g.rebuild(machine, "", false)
	require.NoError(t, err)
	require.Equal(t, 1, done.Rebuilt[0].PassedOver)
	require.Equal(t, fresh, g.rows(t, "sums", g.le))
}

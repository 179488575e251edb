package subscriptions_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// marks stand for any cursor.
type marks []ports.FeedMark

func (m marks) OpenFeed(string, string) ([]ports.FeedMark, error) { return m, nil }

// A cursor of a log that has lost its end since would skip what is written there now.
func TestCreate_CursorOfAnotherLog(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	fixture := conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t")
	fixture.Write(t, 0, 3, "one")
	p := fixture.Entities[0].Partition
	events, err := fixture.Store.Events(t.Context(), ports.EventQuery{Partition: p, Limit: 10})
	require.NoError(t, err)
	var first, last [8]byte
	copy(first[:], events[0].Checksum[:])
	copy(last[:], events[2].Checksum[:])
	for name, c := range map[string]struct {
		at   marks
		code string
	}{
		"in the log":        {marks{{Partition: p, After: 1, ChecksumPrefix: first}}, ""},
		"at its head":       {marks{{Partition: p, After: 3, ChecksumPrefix: last}}, ""},
		"other event":       {marks{{Partition: p, After: 1, ChecksumPrefix: last}}, "cursor.diverged"},
		"other head":        {marks{{Partition: p, After: 3, ChecksumPrefix: first}}, "cursor.diverged"},
		"behind the head":   {marks{{Partition: p, After: 4, ChecksumPrefix: last}}, "cursor.diverged"},
		"another tenant's":  {marks{{Partition: 99, After: 4, ChecksumPrefix: last}}, ""},
		"of an empty start": {marks{{Partition: p}}, ""},
	} {
		s := conformance.NewDeliveryFixture(fixture, func(config *subscriptions.Config) { config.Cursors = c.at })
		start := subscription.Start{From: subscription.AtCursor, Cursor: "x"}
		_, _, err := s.Service.Create(t.Context(), s.Person, subscription.Subscription{ID: "s", SubscriberType: "service", SubscriberID: "suite", Settings: subscription.Settings{Start: start}})
		require.Equal(t, c.code, fault.CodeOf(err), name)
		s.Subscribe(t, "reset", subscription.Settings{}, subscription.Filter{})
		_, err = s.Service.Reset(t.Context(), owner(s), "reset", start)
		require.Equal(t, c.code, fault.CodeOf(err), name)
		for _, id := range []string{"s", "reset"} {
			if err := s.Service.Delete(t.Context(), owner(s), id); err != nil {
				require.Equal(t, "subscription.not_found", fault.CodeOf(err))
			}
		}
	}
}

// TestAcknowledge_AfterReset is what is promised of an answer to what was handed out
// before a reset: a consumer's name keeps it from what another one has now.
func TestAcknowledge_AfterReset(t *testing.T) {
	t.Parallel()
	c := counter(t)
	c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
	written := c.Write(t, 0, 2, "one")
	late := func(consumer string) subscriptions.AnswerResult {
		out, err := c.Service.Acknowledge(t.Context(), c.Person, subscriptions.Acknowledgement{ID: "s", Consumer: consumer, EventIDs: written})
		require.NoError(t, err)
		return out
	}
	require.Equal(t, written, ids(poll(t, c, subscriptions.Poll{Consumer: "old"})))
	_, err := c.Service.Reset(t.Context(), owner(c), "s", subscription.Start{From: subscription.Beginning})
	require.NoError(t, err)
	require.Zero(t, late("old").Applied, "nothing is handed out yet")
	require.Equal(t, written, ids(poll(t, c, subscriptions.Poll{Consumer: "new"})))
	for _, i := range late("old").Ignored {
		require.Equal(t, subscription.OtherConsumer, i.Reason)
	}
	require.Equal(t, 2, status(t, c).InFlight)
	require.Equal(t, 2, late("new").Applied)
}

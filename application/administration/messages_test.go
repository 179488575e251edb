package administration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// TestMessageDecisions_ReadsTheNewest lists decisions of three partitions, and reads no more events of
// each than it needs.
func TestMessageDecisions_ReadsTheNewest(t *testing.T) {
	t.Parallel()
	f, read := newFixture(t), 0
	f.streams.tamper = func(*event.Recorded) { read++ }
	log, _ := f.node()
	decisions := administration.NewSubscriptions(log)
	partitions := []event.PartitionID{11, 12, 13}
	var want []string // by partition and sequence, the oldest first
	decide := func(p event.PartitionID, first, messages int) {
		f.clock.Advance(time.Second)
		d := ports.MessageDecision{Subscription: &subscription.Subscription{ID: "s", TenantID: "acme"}, Partition: p, Action: "discard", By: person("1")}
		for i := range messages {
			d.Messages = append(d.Messages, subscription.Message{Sequence: event.Sequence(first + i), EventID: event.ID{1}})
			want = append(want, fmt.Sprint(p, first+i))
		}
		require.NoError(t, decisions.DecideMessages(t.Context(), d))
	}
	for i := range 60 {
		decide(13, i, 1)
		decide(11, i, 1)
	}
	for i := range 60 {
		decide(12, 3*i, 3)
	}
	list := func(limit int) (got []string) {
		read = 0
		all, err := decisions.MessageDecisions(t.Context(), "acme", "s", partitions, limit)
		require.NoError(t, err)
		for _, d := range all {
			got = append([]string{fmt.Sprint(d.Partition, d.Sequence)}, got...)
		}
		return got
	}
	require.Equal(t, want, list(1000))
	require.Equal(t, 180, read)
	require.Equal(t, want[len(want)-100:], list(100))
	require.Equal(t, 60+50+50, read, "of the third partition one page shows that the rest is older")
	require.Equal(t, want[len(want)-250:], list(250), "of all three partitions")
	require.Equal(t, want[len(want)-1:], list(1))
	require.Equal(t, 150, read, "one page of each")
}

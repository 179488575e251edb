package subscription_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
)

func valid() subscription.Subscription {
	return subscription.Subscription{ID: "s-1", SubscriberType: "service", SubscriberID: "crm"}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	s := valid()
	require.NoError(t, s.Check())
	require.Equal(t, subscription.Settings{
		Start: subscription.Start{From: subscription.Beginning}, MessageTimeout: 30 * time.Second, MaxRetries: 5, BreakerAfter: 10, CheckpointAfter: 10,
		MaxInFlight: 1000, ConsumerStrategy: subscription.RoundRobin, PartitionBy: subscription.PerLegalEntity, RetryFirst: time.Second, RetryLongest: time.Minute,
	}, s.Settings)
}

func TestCheck_Refusals(t *testing.T) {
	t.Parallel()
	for code, changes := range map[string][]func(*subscription.Subscription){
		"subscription.id_invalid":         {func(s *subscription.Subscription) { s.ID = "" }, func(s *subscription.Subscription) { s.ID = "a/b" }},
		"pii.in_identifier":               {func(s *subscription.Subscription) { s.SubscriberID = "DE89370400440532013000" }},
		"subscription.subscriber_invalid": {func(s *subscription.Subscription) { s.SubscriberType = "robot" }, func(s *subscription.Subscription) { s.SubscriberID = "a b" }},
		"subscription.filter_invalid": {
			func(s *subscription.Subscription) { s.Filter.Tags = []string{} }, func(s *subscription.Subscription) { s.Filter.Modules = []string{""} },
			func(s *subscription.Subscription) { s.Filter.EventTypes = make([]string, 101) },
		},
		"subscription.settings_invalid": {
			func(s *subscription.Subscription) { s.Settings.MessageTimeout = time.Millisecond },
			func(s *subscription.Subscription) { s.Settings.MaxRetries = -2 },
			func(s *subscription.Subscription) { s.Settings.BreakerAfter = -2 },
			func(s *subscription.Subscription) { s.Settings.MaxInFlight = 10_001 },
			func(s *subscription.Subscription) { s.Settings.CheckpointAfter = -1 },
			func(s *subscription.Subscription) {
				s.Settings.RetryFirst, s.Settings.RetryLongest = time.Minute, time.Second
			},
			func(s *subscription.Subscription) { s.Settings.ConsumerStrategy = "random" },
			func(s *subscription.Subscription) {
				s.Settings.ConsumerStrategy, s.Settings.PartitionBy = subscription.Pinned, subscription.NoOrder
			},
			func(s *subscription.Subscription) { s.Settings.PartitionBy = "colour" },
			func(s *subscription.Subscription) { s.Settings.PartitionBy = "entity:" },
			func(s *subscription.Subscription) { s.Settings.PartitionBy = "$.a b" },
			func(s *subscription.Subscription) { s.Settings.Start.From = "middle" },
			func(s *subscription.Subscription) { s.Settings.Start.From = subscription.Position },
			func(s *subscription.Subscription) { s.Settings.Start.From = subscription.AtTime },
		},
	} {
		for i, change := range changes {
			s := valid()
			change(&s)
			require.Equal(t, code, fault.CodeOf(s.Check()), "%s %d", code, i)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	s := valid()
	require.NoError(t, s.Check())
	var got []time.Duration
	for n := 1; n <= 8; n++ {
		got = append(got, s.Settings.Backoff(n)/time.Second)
	}
	require.Equal(t, []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}, got)
	require.Equal(t, time.Minute, s.Settings.Backoff(1000))
	s.Settings.RetryFirst, s.Settings.RetryLongest = 7*time.Second, 7*time.Second
	require.Equal(t, 7*time.Second, s.Settings.Backoff(3))
}

func about(stream, data, refs string) *event.Recorded {
	e := &event.Recorded{Payload: []byte(`{"data":` + data + `,"dimensions":{},"entity_refs":` + refs + `}`)}
	e.Stream = event.StreamID{Type: "case", ID: stream}
	e.CorrelationID = "c-" + data
	return e
}

func TestKeyOf(t *testing.T) {
	t.Parallel()
	vendor := func(id string) string {
		return `[{"entity_type":"plant","entity_id":"P","role":"x"},{"entity_type":"vendor","entity_id":"` + id + `","role":"x"}]`
	}
	key := func(by string, e *event.Recorded) subscription.Key {
		s := subscription.Settings{PartitionBy: by}
		return s.KeyOf(e)
	}
	for _, c := range []struct {
		by   string
		a, b *event.Recorded
		same bool
	}{
		{subscription.PerLegalEntity, about("1", `1`, `[]`), about("2", `2`, `[]`), true},
		{subscription.PerStream, about("1", `1`, `[]`), about("1", `2`, `[]`), true},
		{subscription.PerStream, about("1", `1`, `[]`), about("2", `1`, `[]`), false},
		{subscription.PerCorrelation, about("1", `1`, `[]`), about("2", `1`, `[]`), true},
		{"entity:vendor", about("1", `1`, vendor("A")), about("2", `2`, vendor("A")), true},
		{"entity:vendor", about("1", `1`, vendor("A")), about("1", `1`, vendor("B")), false},
		{"entity:vendor", about("1", `1`, `[]`), about("1", `2`, `[]`), true}, // none: its stream
		{"$.order.id", about("1", `{"order":{"id":"x"}}`, `[]`), about("2", `{"order":{"id":"x","n":1}}`, `[]`), true},
		{"$.order.id", about("1", `{"order":{"id":1}}`, `[]`), about("1", `{"order":{"id":"1"}}`, `[]`), false},
		{"$.lines[*].id", about("1", `{"lines":[{"id":7},{"id":8}]}`, `[]`), about("2", `{"lines":[{"id":7}]}`, `[]`), true},
		{"$.lines.id", about("1", `{"lines":[]}`, `[]`), about("1", `{"other":1}`, `[]`), true},
		{"$.order", about("1", `{"order":{"id":1}}`, `[]`), about("2", `{"order":{"id":1}}`, `[]`), false}, // no scalar: its stream
	} {
		require.Equal(t, c.same, key(c.by, c.a) == key(c.by, c.b), "%s: %s %s", c.by, c.a.Payload, c.b.Payload)
		require.NotZero(t, key(c.by, c.a))
	}
	require.Zero(t, key(subscription.NoOrder, about("1", `1`, `[]`)))
}

func TestKeyOwner_LeavingConsumerMovesOnlyItsKeys(t *testing.T) {
	t.Parallel()
	all, left := []string{"a", "b", "c"}, []string{"a", "c"}
	count := map[string]int{}
	for i := range 3000 {
		e := about(fmt.Sprint(i), `1`, `[]`)
		s := subscription.Settings{PartitionBy: subscription.PerStream}
		k := s.KeyOf(e)
		owner := k.Owner(all)
		count[owner]++
		if owner != "b" {
			require.Equal(t, owner, k.Owner(left))
		}
	}
	for _, n := range count {
		require.InDelta(t, 1000, n, 150)
	}
	require.Len(t, count, 3)
}

func TestFilterMatches(t *testing.T) {
	t.Parallel()
	predicate, err := event.ParsePredicate("$.n", "ge", "5")
	require.NoError(t, err)
	e := about("1", `{"n":5}`, `[]`)
	e.Type, e.Tags = "ap.invoice.approved", []string{"q1", "urgent"}
	e.Scope.Division, e.Scope.Region, e.Scope.Site = "north", "emea", "B-7"
	e.Scope.Custom = json.RawMessage(`{"cost_center": "CC-1", "plant": "P-1"}`)
	e.Stream = event.StreamID{Type: "case", ID: "I-1"}
	moduleOf := func(string) string { return "ap" }
	for want, filters := range map[bool][]subscription.Filter{
		true: {
			{}, {EventTypes: []string{"x", "ap.invoice.approved"}}, {Modules: []string{"ap"}}, {Divisions: []string{"north"}}, {Regions: []string{"emea"}}, {Sites: []string{"B-7"}}, {Streams: []string{"case/I-1"}}, {Tags: []string{"urgent", "other"}},
			{StreamTypes: []string{"case"}}, {Predicate: predicate},
			{Custom: map[string][]string{"cost_center": {"CC-1", "CC-2"}}}, {Custom: map[string][]string{"cost_center": {"CC-1"}, "plant": {"P-1"}}},
		},
		false: {
			{EventTypes: []string{"x"}}, {Modules: []string{"gl"}}, {Divisions: []string{"south"}}, {Regions: []string{"apac"}}, {Sites: []string{"B-8"}}, {Streams: []string{"case/I-2"}}, {Tags: []string{"other"}},
			{StreamTypes: []string{"desk"}}, {Tags: []string{"q1"}, Modules: []string{"gl"}},
			{Custom: map[string][]string{"cost_center": {"CC-2"}}}, {Custom: map[string][]string{"cost_center": {"CC-1"}, "plant": {"P-2"}}}, {Custom: map[string][]string{"none": {"x"}}},
		},
	} {
		for i := range filters {
			require.Equal(t, want, filters[i].Matches(e, moduleOf), "%+v", filters[i])
		}
	}
	e.Scope.Custom = nil
	require.False(t, (&subscription.Filter{Custom: map[string][]string{"cost_center": {"CC-1"}}}).Matches(e, moduleOf))
	e.Payload = []byte(`{"data":{"n":4}}`)
	require.False(t, (&subscription.Filter{Predicate: predicate}).Matches(e, moduleOf))
}

// A node matches every event against every subscription, so a filter of types allocates nothing.
func TestFilterMatches_Allocations(t *testing.T) {
	f := subscription.Filter{EventTypes: []string{"ap.invoice.posted"}}
	e := event.Recorded{Skeleton: event.Skeleton{Type: "ap.invoice.posted", Stream: event.StreamID{Type: "ap.invoice", ID: "01M7XG62RC9EF6RGCAYTJC1P6J"}}}
	matched := true
	require.Zero(t, testing.AllocsPerRun(100, func() { matched = matched && f.Matches(&e, nil) }))
	require.True(t, matched)
}

func TestFilterSelectsAll(t *testing.T) {
	t.Parallel()
	predicate, err := event.ParsePredicate("$.n", "ge", "5")
	require.NoError(t, err)
	some := []string{"x"}
	require.True(t, (&subscription.Filter{}).SelectsAll())
	require.True(t, (&subscription.Filter{LegalEntities: some}).SelectsAll())
	for _, f := range []subscription.Filter{
		{EventTypes: some}, {Modules: some}, {Divisions: some}, {Regions: some}, {Sites: some}, {Custom: map[string][]string{"a": some}}, {Tags: some}, {StreamTypes: some},
		{Streams: some}, {Predicate: predicate},
	} {
		require.False(t, f.SelectsAll(), "%+v", f)
	}
}

func TestFilterCheck_Custom(t *testing.T) {
	t.Parallel()
	f := subscription.Filter{Custom: map[string][]string{"cost_center": {"CC-2", "CC-1", "CC-2"}}}
	require.NoError(t, f.Check())
	require.Equal(t, map[string][]string{"cost_center": {"CC-1", "CC-2"}}, f.Custom)
	many := map[string][]string{}
	for n := range 21 {
		many[strconv.Itoa(n)] = []string{"x"}
	}
	for field, custom := range map[string]map[string][]string{
		"/custom": {}, "/custom/a~1b": {"a/b": {}}, "/custom/a": {"a": nil}, "/custom/b": {"b": {""}}, "/custom/c": {"c": {strings.Repeat("x", 201)}}, "/custom/d": {"d": make([]string, 101)},
	} {
		err := (&subscription.Filter{Custom: custom}).Check()
		require.Equal(t, "subscription.filter_invalid", fault.CodeOf(err), field)
		refused, _ := fault.As(err)
		require.Equal(t, field, refused.Field)
	}
	for _, custom := range []map[string][]string{many, {"": {"x"}}, {strings.Repeat("x", 201): {"x"}}} {
		require.Equal(t, "subscription.filter_invalid", fault.CodeOf((&subscription.Filter{Custom: custom}).Check()))
	}
	for _, custom := range []map[string][]string{{"owner": {"olga@example.org"}}, {"olga@example.org": {"x"}}} {
		require.Equal(t, "pii.in_identifier", fault.CodeOf((&subscription.Filter{Custom: custom}).Check()))
	}
}

func TestSubscription_WebhookDefaults(t *testing.T) {
	t.Parallel()
	sub := subscription.Subscription{ID: "a", SubscriberType: subscription.Webhook, SubscriberID: "b"}
	require.NoError(t, sub.Check())
	var total time.Duration
	for n := 1; n <= sub.Settings.MaxRetries; n++ {
		total += sub.Settings.Backoff(n)
	}
	require.InDelta(t, 23, total.Hours(), 1, "attempts are spread over a day")
	require.Equal(t, subscription.NoBreaker, sub.Settings.BreakerAfter)
	sub.Settings = subscription.Settings{MaxRetries: 2, BreakerAfter: 7}
	require.NoError(t, sub.Check())
	require.Equal(t, []int{2, 7}, []int{sub.Settings.MaxRetries, sub.Settings.BreakerAfter})
	require.Equal(t, time.Second, sub.Settings.RetryFirst, "given retries take the usual pauses")
}

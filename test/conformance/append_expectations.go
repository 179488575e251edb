package conformance

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

var expectationPromises = []promise{
	{"exact version of a changed stream is refused", exactVersion},
	{"no_stream on an existing stream is refused", noStream},
	{"stream_exists before the first event is refused", streamExists},
	{"any is never refused", anyVersion},
	{"every expectation of a request must hold", everyExpectation},
	{"entity is at the sequence of its last event", entityVersion},
	{"refusal names expected and actual version", namedVersions},
	{"demands are checked in the promised order", checkOrder},
}

func exactVersion(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1")), b.event(s.changed, stream("1")))
	for _, wrong := range []event.Version{1, 3} {
		r := b.request(b.event(s.changed, stream("1")))
		r.Streams = expect(stream("1"), concurrency.Exactly(wrong))
		b.refused(t, concurrency.CodeWrongExpectedVersion, r)
	}
	r := b.request(b.event(s.changed, stream("1")))
	r.Streams = expect(stream("1"), concurrency.Exactly(2))
	require.Equal(t, event.Version(3), b.must(t, r).Events[0].StreamVersion)
}

func noStream(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.request(b.event(s.opened, stream("1")))
	r.Streams = expect(stream("1"), concurrency.NoStream())
	b.must(t, r)
	r.Events = []event.Prepared{b.event(s.opened, stream("1"))}
	b.refused(t, concurrency.CodeWrongExpectedVersion, r)
	r.Streams = expect(stream("1"), concurrency.Exactly(0))
	b.refused(t, concurrency.CodeWrongExpectedVersion, r)
}

func streamExists(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.request(b.event(s.opened, stream("1")))
	r.Streams = expect(stream("1"), concurrency.StreamExists())
	b.refused(t, concurrency.CodeWrongExpectedVersion, r)
	b.write(t, b.event(s.opened, stream("1")))
	r.Events = []event.Prepared{b.event(s.opened, stream("1"))}
	b.must(t, r)
}

func anyVersion(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for range 3 {
		r := b.request(b.event(s.opened, stream("1")))
		r.Streams = expect(stream("1"), concurrency.Any())
		b.must(t, r)
	}
}

func everyExpectation(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("read")))
	// A stream may be demanded that the request does not write.
	r := b.request(b.event(s.opened, stream("written")))
	r.Streams = []concurrency.StreamExpectation{
		{Stream: stream("written"), Expected: concurrency.NoStream()},
		{Stream: stream("read"), Expected: concurrency.Exactly(1)},
	}
	b.must(t, r)
	b.write(t, b.event(s.changed, stream("read")))
	r.Events = []event.Prepared{b.event(s.changed, stream("written"))}
	r.Streams[0].Expected = concurrency.Exactly(1)
	b.refused(t, concurrency.CodeWrongExpectedVersion, r)
}

func entityVersion(t *testing.T, s *suite) {
	b := s.newPartition(t)
	demand := func(n event.Sequence) ports.AppendRequest {
		r := b.request(b.event(s.changed, stream("x")))
		r.Entities = []concurrency.EntityExpectation{{EntityType: "vendor", EntityID: "V-1", Sequence: n}}
		return r
	}
	b.refused(t, concurrency.CodeWrongExpectedVersion, demand(1))
	b.must(t, demand(0))                                                                                 // 1
	b.write(t, b.event(s.changed, stream("y"), about("vendor", "V-1")))                                  // 2
	b.write(t, b.event(s.changed, stream("y"), about("vendor", "V-2")), b.event(s.changed, stream("y"))) // 3, 4
	b.refused(t, concurrency.CodeWrongExpectedVersion, demand(0))
	b.refused(t, concurrency.CodeWrongExpectedVersion, demand(4))
	f := b.refused(t, concurrency.CodeWrongExpectedVersion, demand(1))
	require.Equal(t, uint64(2), f.Actual)
	b.must(t, demand(2))
}

func visibleEntityVersion(t *testing.T, s *suite) {
	b := s.newPartition(t)
	demand := func(n event.Sequence) ports.AppendRequest {
		r := b.request(b.event(s.changed, stream("x")))
		vendor := concurrency.Entity{Type: "vendor", ID: "V-1"}
		r.Conditions = []concurrency.AppendCondition{{
			Items: []concurrency.Item{{Types: []string{s.changed.Type}, Entities: []concurrency.Entity{vendor}}}, After: n, Entity: vendor,
		}}
		return r
	}
	b.write(t, b.event(s.changed, stream("y"), about("vendor", "V-1"))) // 1
	b.write(t, b.event(s.opened, stream("z"), about("vendor", "V-1")))  // 2, of another type
	f := b.refused(t, concurrency.CodeWrongExpectedVersion, demand(0))
	require.Equal(t, "vendor:V-1", f.Attributes["entity"])
	require.Equal(t, "1", f.Holder.Sequence)
	require.Nil(t, f.Actual)
	b.must(t, demand(1))
	b.refused(t, concurrency.CodeConditionBeyondHead, demand(99))
}

func namedVersions(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1")), b.event(s.changed, stream("1")))
	r := b.request(b.event(s.changed, stream("1")))
	r.Streams = expect(stream("1"), concurrency.Exactly(1))
	f := b.refused(t, concurrency.CodeWrongExpectedVersion, r)
	require.Equal(t, fault.Conflict, f.Kind)
	require.Equal(t, uint64(1), f.Expected)
	require.Equal(t, uint64(2), f.Actual)
	require.Equal(t, "case/1", f.Attributes["stream"])
}

// checkOrder breaks every demand, then repairs them one by one from the front.
func checkOrder(t *testing.T, s *suite) {
	b := s.newPartition(t)
	first := b.request(b.event(s.opened, stream("1"), tagged("t"), about("vendor", "V-1"), claiming("k", "")))
	first.Idempotency = b.claim("idem", "first content")
	first.Intent = insert(b.intent("executed"))
	b.must(t, first)

	r := b.request(b.event(s.opened, stream("1"), claiming("k", "")))
	r.Idempotency = b.claim("idem", "other content")
	r.Intent = insert(first.Intent.Intent)
	r.Streams = expect(stream("1"), concurrency.NoStream())
	r.Entities = []concurrency.EntityExpectation{{EntityType: "vendor", EntityID: "V-1"}}
	r.Conditions = absent(0, "t")
	b.refused(t, concurrency.CodeIdempotencyMismatch, r)
	r.Idempotency = b.claim("idem-2", "other content")
	b.refused(t, concurrency.CodeIntentChanged, r)
	r.Intent = nil
	require.Contains(t, b.refused(t, concurrency.CodeWrongExpectedVersion, r).Attributes, "stream")
	r.Streams = nil
	require.Contains(t, b.refused(t, concurrency.CodeWrongExpectedVersion, r).Attributes, "entity")
	r.Entities = nil
	b.refused(t, concurrency.CodeConditionFailed, r)
	r.Conditions = nil
	b.refused(t, concurrency.CodeDuplicateKey, r)
	r.Events = []event.Prepared{b.event(s.opened, stream("1"))}
	b.must(t, r)
}

var conditionPromises = []promise{
	{"matching event after the sequence fails the condition", conditionFails},
	{"item matches only its types", itemTypes},
	{"item demands all its tags and entities", itemKeys},
	{"item without tags and entities matches by type", itemTypeOnly},
	{"one matching item fails the request", anyItem},
	{"refusal names the first matching event", firstMatch},
	{"refusal of a visible entity version names the entity", visibleEntityVersion},
	{"events of the request itself do not count", ownEvents},
	{"condition whose keys are all too frequent is too old", conditionTooOld},
	{"condition beyond the head is refused", conditionBeyondHead},
}

func conditionBeyondHead(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.request(b.event(s.opened, stream("1"), tagged("t")))
	r.Conditions = absent(1, "t")
	f := b.refused(t, concurrency.CodeConditionBeyondHead, r)
	require.Equal(t, fault.Conflict, f.Kind)
	r.Conditions = absent(0, "t")
	b.must(t, r)
	r = b.request(b.event(s.changed, stream("1")))
	r.Conditions = absent(1, "t")
	b.must(t, r)
	r.Events = []event.Prepared{b.event(s.changed, stream("1"))}
	r.Conditions = append(r.Conditions, absent(3, "never seen", s.opened.Type)...)
	b.refused(t, concurrency.CodeConditionBeyondHead, r)
}

func conditionFails(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1"), tagged("t")), b.event(s.opened, stream("2"), tagged("other")))
	r := b.request(b.event(s.changed, stream("3")))
	r.Conditions = absent(0, "t")
	f := b.refused(t, concurrency.CodeConditionFailed, r)
	require.Equal(t, fault.Conflict, f.Kind)
	r.Conditions = absent(1, "t")
	b.must(t, r)
	r.Conditions = absent(0, "never seen")
	r.Events = []event.Prepared{b.event(s.changed, stream("3"))}
	b.must(t, r)
}

// holds reports whether a condition on the item after the sequence lets an
// event through.
func (b *partition) holds(t *testing.T, after event.Sequence, items ...concurrency.Item) bool {
	t.Helper()
	r := b.request(b.event(b.changed, stream("probe")))
	r.Conditions = []concurrency.AppendCondition{{After: after, Items: items}}
	_, err := b.try(r)
	if err != nil {
		require.Equal(t, concurrency.CodeConditionFailed, fault.CodeOf(err), "error: %v", err)
	}
	return err == nil
}

func itemTypes(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1"), tagged("t")))
	item := func(types ...string) concurrency.Item { return concurrency.Item{Types: types, Tags: []string{"t"}} }
	require.True(t, b.holds(t, 0, item(s.closed.Type)))
	require.True(t, b.holds(t, 0, item(s.closed.Type, s.changed.Type)))
	require.True(t, b.holds(t, 0, item("conformance.never.registered")))
	require.False(t, b.holds(t, 0, item(s.opened.Type)))
	require.False(t, b.holds(t, 0, item(s.closed.Type, s.opened.Type)))
	require.False(t, b.holds(t, 0, item()))
}

func itemKeys(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t,
		b.event(s.opened, stream("1"), tagged("t", "u"), about("vendor", "V-1")),
		b.event(s.opened, stream("2"), tagged("v"), about("vendor", "V-2")))
	vendor := func(id string) []concurrency.Entity { return []concurrency.Entity{{Type: "vendor", ID: id}} }
	require.False(t, b.holds(t, 0, concurrency.Item{Tags: []string{"t", "u"}, Entities: vendor("V-1")}))
	require.False(t, b.holds(t, 0, concurrency.Item{Entities: vendor("V-1")}))
	require.False(t, b.holds(t, 0, concurrency.Item{Tags: []string{"u"}}))
	require.True(t, b.holds(t, 0, concurrency.Item{Tags: []string{"t", "v"}}))
	require.True(t, b.holds(t, 0, concurrency.Item{Tags: []string{"t"}, Entities: vendor("V-2")}))
	require.True(t, b.holds(t, 0, concurrency.Item{Tags: []string{"t"}, Entities: append(vendor("V-1"), vendor("V-2")...)}))
	require.True(t, b.holds(t, 0, concurrency.Item{Entities: []concurrency.Entity{{Type: "customer", ID: "V-1"}}}))
	require.True(t, b.holds(t, 1, concurrency.Item{Tags: []string{"t", "u"}}))
}

func itemTypeOnly(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1")), b.event(s.closed, stream("1")))
	require.False(t, b.holds(t, 0, concurrency.Item{Types: []string{s.opened.Type}}))
	require.False(t, b.holds(t, 1, concurrency.Item{Types: []string{s.opened.Type, s.closed.Type}}))
	require.True(t, b.holds(t, 1, concurrency.Item{Types: []string{s.opened.Type}}))
	require.True(t, b.holds(t, 2, concurrency.Item{Types: []string{s.closed.Type}}))
}

func anyItem(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1"), tagged("t")))
	absentItem, presentItem := concurrency.Item{Tags: []string{"no"}}, concurrency.Item{Tags: []string{"t"}}
	require.False(t, b.holds(t, 0, absentItem, presentItem))
	require.True(t, b.holds(t, 0, absentItem, concurrency.Item{Tags: []string{"neither"}}))
	r := b.request(b.event(s.changed, stream("2")))
	r.Conditions = append(absent(0, "no"), absent(0, "t")...)
	b.refused(t, concurrency.CodeConditionFailed, r)
}

func firstMatch(t *testing.T, s *suite) {
	b := s.newPartition(t)
	events := make([]event.Prepared, 4)
	for i := range events {
		events[i] = b.event(s.opened, stream(fmt.Sprint(i)), tagged("t"))
	}
	b.write(t, events...)
	r := b.request(b.event(s.changed, stream("x")))
	r.Conditions = absent(1, "t")
	f := b.refused(t, concurrency.CodeConditionFailed, r)
	require.NotNil(t, f.Holder)
	require.Equal(t, events[1].ID.String(), f.Holder.EventID)

	// The first of all items and types, not of the item or type that is named first.
	late, early := b.event(s.closed, stream("x"), tagged("late")), b.event(s.changed, stream("x"), tagged("early"))
	b.write(t, early, late)
	for _, items := range [][]concurrency.Item{
		{{Tags: []string{"late"}}, {Tags: []string{"early"}}},
		{{Tags: []string{"early"}}, {Tags: []string{"late"}}},
		{{Types: []string{s.closed.Type, s.changed.Type}}},
		{{Types: []string{s.changed.Type, s.closed.Type}}},
	} {
		r.Conditions = []concurrency.AppendCondition{{After: 4, Items: items}}
		f = b.refused(t, concurrency.CodeConditionFailed, r)
		require.NotNil(t, f.Holder)
		require.Equal(t, early.ID.String(), f.Holder.EventID)
	}
}

func ownEvents(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.request(b.event(s.opened, stream("1"), tagged("once")), b.event(s.opened, stream("1"), tagged("once")))
	r.Conditions = absent(0, "once")
	b.must(t, r)
	r.Events = []event.Prepared{b.event(s.opened, stream("1"), tagged("once"))}
	b.refused(t, concurrency.CodeConditionFailed, r)
}

// conditionTooOld stays at the edge: exactly the bound is scanned, one key more
// is refused.
func conditionTooOld(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("hot"), tagged("hot"))) // before the condition's sequence: not counted
	const batch = 250
	for range concurrency.MaxConditionScan / batch {
		events := make([]event.Prepared, batch)
		for i := range events {
			events[i] = b.event(s.opened, stream("hot"), tagged("hot"))
		}
		b.write(t, events...)
	}
	r := b.request(b.event(s.changed, stream("1")))
	r.Conditions = absent(1, "hot", s.closed.Type)
	b.must(t, r)
	b.write(t, b.event(s.opened, stream("hot"), tagged("hot")))
	r.Events = []event.Prepared{b.event(s.changed, stream("1"))}
	f := b.refused(t, concurrency.CodeConditionTooOld, r)
	require.Equal(t, fault.Conflict, f.Kind)
	// A second key that is rare bounds the scan again, whichever is named first.
	for _, tags := range [][]string{{"hot", "rare"}, {"rare", "hot"}} {
		require.True(t, b.holds(t, 1, concurrency.Item{Types: []string{s.closed.Type}, Tags: tags}))
	}
	r.Conditions = absent(b.head(t).Sequence, "hot", s.closed.Type)
	b.must(t, r)
}

var businessKeyPromises = []promise{
	{"business key is never released", businessKeyHeld},
	{"refusal names the holder", businessKeyHolder},
	{"key belongs to its event type", businessKeyType},
	{"two events of a request cannot claim one key", businessKeyInBatch},
}

func businessKeyHeld(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1"), claiming("INV-1", "")))
	b.write(t, b.event(s.opened, stream("2"), claiming("INV-2", "")))
	b.clock.Advance(365 * 24 * 3600e9)
	b.refused(t, concurrency.CodeDuplicateKey, b.request(b.event(s.opened, stream("3"), claiming("INV-3", ""), claiming("INV-1", ""))))
	b.write(t, b.event(s.opened, stream("3"), claiming("INV-3", "")))
}

func businessKeyHolder(t *testing.T, s *suite) {
	b := s.newPartition(t)
	holder := b.event(s.opened, stream("1"), claiming("INV-1", "invoice-77"))
	b.write(t, holder)
	f := b.refused(t, concurrency.CodeDuplicateKey, b.request(b.event(s.opened, stream("2"), claiming("INV-1", "invoice-78"))))
	require.Equal(t, fault.Conflict, f.Kind)
	require.NotNil(t, f.Holder)
	require.Equal(t, holder.ID.String(), f.Holder.EventID)
	require.Equal(t, "invoice-77", f.Holder.DocumentID)
}

func businessKeyType(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("1"), claiming("K", "")))
	b.write(t, b.event(s.closed, stream("1"), claiming("K", "")))
	// The type that owns the key space need not be the event's own.
	borrowed := b.event(s.changed, stream("1"), func(p *event.Prepared) {
		p.BusinessKeys = []event.BusinessKey{{EventType: s.opened.Type, Key: "K"}}
	})
	b.refused(t, concurrency.CodeDuplicateKey, b.request(borrowed))
}

func businessKeyInBatch(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.refused(t, concurrency.CodeDuplicateKey, b.request(
		b.event(s.opened, stream("1"), claiming("K", "")), b.event(s.opened, stream("2"), claiming("K", ""))))
	b.write(t, b.event(s.opened, stream("1"), claiming("K", "")))
}

package conformance

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

var seriesPromises = []promise{
	{"numbers start at 1 without gaps", seriesWithoutGaps},
	{"number replaces its token everywhere", seriesEverywhere},
	{"two events of a request take two numbers", seriesInBatch},
	{"series are independent", seriesIndependent},
	{"refused request takes no number", seriesRefused},
}

func seriesWithoutGaps(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for i := range 5 {
		result := b.write(t, b.event(s.opened, stream(""), numbered("journal")))
		require.Equal(t, "journal/"+number(i+1), result.Events[0].Stream.ID)
	}
}

func seriesEverywhere(t *testing.T, s *suite) {
	b := s.newPartition(t)
	e := b.event(s.opened, stream(""), numbered("journal"), func(p *event.Prepared) {
		p.Keys = append(p.Keys, event.EntityKey("journal", token))
	})
	b.write(t, e)
	got, err := b.store.EventByID(context.Background(), b.le.Partition, e.ID)
	require.NoError(t, err)
	n := number(1)
	require.Equal(t, `{"data":{"number":"`+n+`"},"dimensions":{},"entity_refs":[]}`, string(got.Payload))
	require.Equal(t, event.HashPayload(e.Salt, got.Payload), got.PayloadHash, "the hash must cover the stored bytes")
	require.Equal(t, "journal/"+n, got.Stream.ID)
	require.Equal(t, []string{"numbered:" + n}, got.Tags)
	require.Equal(t, "ref "+n, got.Source.Reference)
	require.Len(t, b.stream(t, stream("journal/"+n)), 1)
	require.Len(t, b.query(t, ports.EventQuery{Key: event.TagKey("numbered:" + n)}), 1)
	require.Len(t, b.query(t, ports.EventQuery{Key: event.EntityKey("journal", n)}), 1)
	require.Empty(t, b.query(t, ports.EventQuery{Key: event.EntityKey("journal", token)}))
	f := b.refused(t, concurrency.CodeDuplicateKey, b.request(b.event(s.opened, stream("x"), claiming("journal:"+n, ""))))
	require.Equal(t, n, f.Holder.DocumentID)
}

func seriesInBatch(t *testing.T, s *suite) {
	b := s.newPartition(t)
	result := b.write(t, b.event(s.opened, stream(""), numbered("journal")), b.event(s.opened, stream("plain")), b.event(s.opened, stream(""), numbered("journal")))
	require.Equal(t, "journal/"+number(1), result.Events[0].Stream.ID)
	require.Equal(t, "journal/"+number(2), result.Events[2].Stream.ID)
}

func seriesIndependent(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for _, series := range []string{"a", "b"} {
		result := b.write(t, b.event(s.opened, stream(""), numbered(series)))
		require.Equal(t, series+"/"+number(1), result.Events[0].Stream.ID)
	}
}

func seriesRefused(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream(""), numbered("journal"), claiming("K", "")))
	refused := []func(*ports.AppendRequest){
		func(r *ports.AppendRequest) { r.Streams = expect(stream("none"), concurrency.StreamExists()) },
		func(r *ports.AppendRequest) { r.Conditions = absent(0, "numbered:"+number(1)) },
		func(r *ports.AppendRequest) {
			r.Events = append(r.Events, b.event(s.opened, stream("x"), claiming("K", "")))
		},
	}
	codes := []string{concurrency.CodeWrongExpectedVersion, concurrency.CodeConditionFailed, concurrency.CodeDuplicateKey}
	for i, spoil := range refused {
		r := b.request(b.event(s.opened, stream(""), numbered("journal")))
		spoil(&r)
		before := deepCopy(r.Events)
		b.refused(t, codes[i], r)
		require.Equal(t, before, r.Events, "a refusal must leave the request as it was, so that it can be sent again")
		b.refused(t, codes[i], r)
	}
	r := b.request(b.event(s.opened, stream(""), numbered("journal")))
	require.Equal(t, "journal/"+number(2), b.must(t, r).Events[0].Stream.ID)
}

var idempotencyPromises = []promise{
	{"repeated request returns the first outcome", replay},
	{"same key with other content is refused", mismatch},
	{"plain digest identifies a request too", plainDigest},
	{"request without the secret is undecided", withoutSecret},
	{"expired key is free", expiredKey},
	{"replay is checked first", replayFirst},
	{"reader finds the outcome", outcomeReader},
}

func replay(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("0")))
	r := b.request(b.event(s.opened, stream("1"), claiming("K", "")), b.event(s.changed, stream("1")))
	r.Idempotency = b.claim("key", "content")
	r.Intent = insert(b.intent(intent.Executed))
	first := b.must(t, r)
	require.False(t, first.Replayed)
	require.Equal(t, []event.Sequence{2, 3}, receiptSequences(first.Events))
	for range 2 {
		again, err := b.try(r)
		require.NoError(t, err)
		require.True(t, again.Replayed)
		require.Equal(t, ports.IdempotencyOutcome{
			StoredHash: fingerprint("content"), IntentID: r.Intent.Intent.ID, FirstSequence: 2, EventCount: 2,
		}, again.Outcome)
	}
	require.Len(t, b.all(t), 3)
}

func mismatch(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.request(b.event(s.opened, stream("1")))
	r.Idempotency = b.claim("key", "content")
	b.must(t, r)
	r.Events = []event.Prepared{b.event(s.opened, stream("2"))}
	r.Idempotency = b.claim("key", "other content")
	f := b.refused(t, concurrency.CodeIdempotencyMismatch, r)
	require.Equal(t, fault.Conflict, f.Kind)
	r.Idempotency = b.claim("other key", "content")
	require.False(t, b.must(t, r).Replayed)
}

// plainDigest repeats a request that was stored while the secret was unavailable, with a
// keyed fingerprint and without.
func plainDigest(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.request(b.event(s.opened, stream("1")))
	r.Idempotency = b.claim("key", "")
	r.Idempotency.Fingerprint, r.Idempotency.Digest = event.Hash{}, fingerprint("content")
	b.must(t, r)
	for _, keyed := range []event.Hash{{}, fingerprint("keyed content")} {
		r.Idempotency = b.claim("key", "")
		r.Idempotency.Fingerprint, r.Idempotency.Digest = keyed, fingerprint("content")
		again, err := b.try(r)
		require.NoError(t, err)
		require.True(t, again.Replayed)
		require.Equal(t, fingerprint("content"), again.Outcome.StoredHash)
	}
	r.Events = []event.Prepared{b.event(s.opened, stream("2"))}
	r.Idempotency = b.claim("key", "keyed other content")
	r.Idempotency.Digest = fingerprint("other content")
	b.refused(t, concurrency.CodeIdempotencyMismatch, r)
}

func withoutSecret(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.request(b.event(s.opened, stream("1")))
	r.Idempotency = b.claim("key", "keyed content")
	r.Idempotency.Digest = fingerprint("content")
	b.must(t, r)
	r.Idempotency = b.claim("key", "")
	r.Idempotency.Fingerprint, r.Idempotency.Digest = event.Hash{}, fingerprint("content")
	f := b.refused(t, concurrency.CodeIdempotencyUndecided, r)
	require.Equal(t, fault.Unavailable, f.Kind)
	require.Positive(t, f.RetryAfter)
}

func expiredKey(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.request(b.event(s.opened, stream("1")))
	r.Idempotency = b.claim("key", "content")
	b.must(t, r)
	b.clock.Advance(25 * time.Hour)
	r.Events = []event.Prepared{b.event(s.opened, stream("2"))}
	r.Idempotency = b.claim("key", "other content")
	second := b.must(t, r)
	require.False(t, second.Replayed)
	again, err := b.try(r)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, second.Events[0].Sequence, again.Outcome.FirstSequence)
}

func replayFirst(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.request(b.event(s.opened, stream("1"), tagged("t"), claiming("K", "")))
	r.Idempotency = b.claim("key", "content")
	r.Streams = expect(stream("1"), concurrency.NoStream())
	r.Conditions = absent(0, "t")
	b.must(t, r)
	again, err := b.try(r)
	require.NoError(t, err)
	require.True(t, again.Replayed)
}

func outcomeReader(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ctx := context.Background()
	r := b.request(b.event(s.opened, stream("1")))
	r.Idempotency = b.claim("key", "content")
	b.must(t, r)
	now := b.clock.Now()
	o, found, err := b.store.IdempotencyOutcome(ctx, b.le.Partition, "key", now)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, ports.IdempotencyOutcome{StoredHash: fingerprint("content"), FirstSequence: 1, EventCount: 1}, o)
	_, found, err = b.store.IdempotencyOutcome(ctx, b.le.Partition, "unknown", now)
	require.NoError(t, err)
	require.False(t, found)
	_, found, err = b.store.IdempotencyOutcome(ctx, b.le.Partition, "key", now.Add(25*time.Hour))
	require.NoError(t, err)
	require.False(t, found)
}

var intentPromises = []promise{
	{"intent is stored with its events and their range", intentWithEvents},
	{"every field of an intent is read as written", intentFields},
	{"request with an event about its intent alone", intentOnly},
	{"intent that no event binds is refused", intentUnbound},
	{"intent is inserted once", intentOnce},
	{"update of an older revision is refused", intentRevision},
	{"intent passes through its lifecycle", intentLifecycle},
	{"events about an intent are not its own", eventsAboutIntent},
	{"waiting intents are listed oldest first", waitingIntents},
	{"intents are listed by id, without payloads", listedIntents},
	{"unknown intent is not found", unknownIntent},
}

func (b *partition) stored(t tester, id event.ID) intent.Intent {
	t.Helper()
	in, err := b.store.Intent(context.Background(), b.le.Partition, id)
	require.NoError(t, err)
	return in
}

func intentWithEvents(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("0")))
	r := b.request(b.event(s.opened, stream("1")), b.event(s.changed, stream("1")))
	r.Intent = insert(b.intent(intent.Executed))
	b.must(t, r)
	in := b.stored(t, r.Intent.Intent.ID)
	require.Equal(t, event.Sequence(2), in.FirstSequence)
	require.Equal(t, 2, in.EventCount)
	require.Equal(t, event.Sequence(3), in.LastSequence)
	require.Equal(t, 1, in.Revision)
}

// eventsAboutIntent keeps events about an intent out of the range of those that it made, and
// points the row to the last event of its append.
func eventsAboutIntent(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.request(b.event(s.opened, stream("waits")))
	r.Intent = insert(b.intent(intent.PendingApproval))
	r.Intent.EventsAbout = 1
	b.must(t, r)
	in := b.stored(t, r.Intent.Intent.ID)
	require.Zero(t, in.FirstSequence)
	require.Zero(t, in.EventCount)
	require.Equal(t, event.Sequence(1), in.LastSequence)

	r = b.request(b.event(s.opened, stream("1")), b.event(s.changed, stream("1")), b.event(s.opened, stream("approved")))
	r.Intent = update(in, intent.Executed)
	r.Intent.EventsAbout = 1
	b.must(t, r)
	in = b.stored(t, in.ID)
	require.Equal(t, event.Sequence(2), in.FirstSequence)
	require.Equal(t, 2, in.EventCount)
	require.Equal(t, event.Sequence(4), in.LastSequence)
}

func intentFields(t *testing.T, s *suite) {
	b := s.newPartition(t)
	want := b.intent(intent.Denied)
	want.CausedBy, want.CausedByPartition = b.ids.next(), 77
	want.Documents = []string{"case/1", `odd "id", {with} \marks`}
	want.Actor.Details.OnBehalfOf = &event.Delegate{Type: "human", ID: "u-2"}
	want.Approvals = []intent.Approval{{PersonID: "p", ActorID: "a", Role: "controller", Decision: "approved", PlanHash: "plan-1", Comment: "fine", At: s.clock.Now()}}
	want.Refusal = &intent.Refusal{Code: "rule.denied", Kind: "forbidden", Detail: "over the limit; ask for approval"}
	r := b.intentRequest(s, insert(want))
	b.must(t, r)
	got := b.stored(t, want.ID)
	stamped := want
	stamped.Revision = 1
	binding, err := stamped.Bind()
	require.NoError(t, err)
	again, err := got.Bind()
	require.NoError(t, err)
	require.Equal(t, binding, again, "the row has the digest of what was written")
	require.True(t, want.CreatedAt.Equal(got.CreatedAt))
	require.True(t, want.UpdatedAt.Equal(got.UpdatedAt))
	require.JSONEq(t, string(want.Rules), string(got.Rules))
	require.JSONEq(t, string(want.Payload), string(got.Payload))
	require.Contains(t, string(got.Payload), "1.50", "numbers of a payload keep their digits")
	got.CreatedAt, got.UpdatedAt, got.Rules, got.Payload = want.CreatedAt, want.UpdatedAt, want.Rules, want.Payload
	want.LastSequence = 1
	require.Equal(t, want, got)
}

// intentUnbound refuses to write an intent's row without an event that holds its digest.
func intentUnbound(t *testing.T, s *suite) {
	b := s.newPartition(t)
	_, err := b.store.Append(context.Background(), ports.AppendRequest{Partition: b.le.Partition, Intent: insert(b.intent(intent.PendingApproval))})
	require.Equal(t, fault.Internal, fault.KindOf(err))
	r := b.request(b.event(s.opened, stream("1")))
	r.Intent = insert(b.intent(intent.PendingApproval))
	_, err = b.store.Append(context.Background(), r)
	require.Equal(t, fault.Internal, fault.KindOf(err), "the event of another intent")
	_, err = b.store.Intent(context.Background(), b.le.Partition, r.Intent.Intent.ID)
	require.Equal(t, "intent.not_found", fault.CodeOf(err))
	require.Zero(t, b.head(t).Sequence)
}

func intentOnly(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("0")))
	r := b.intentRequest(s, insert(b.intent(intent.PendingApproval)))
	r.Idempotency = b.claim("key", "content")
	b.must(t, r)
	in := b.stored(t, r.Intent.Intent.ID)
	require.Equal(t, intent.PendingApproval, in.Status)
	require.Zero(t, in.FirstSequence)
	require.Zero(t, in.EventCount)
	again, err := b.try(r)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, ports.IdempotencyOutcome{StoredHash: fingerprint("content"), IntentID: in.ID, FirstSequence: 2, EventCount: 1}, again.Outcome)
}

func intentOnce(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.intentRequest(s, insert(b.intent(intent.PendingApproval)))
	b.must(t, r)
	f := b.refused(t, concurrency.CodeIntentChanged, r)
	require.Equal(t, r.Intent.Intent.ID.String(), f.IntentID)
	never := b.intentRequest(s, update(b.intent(intent.PendingApproval), intent.Executed))
	b.refused(t, concurrency.CodeIntentChanged, never)
}

func intentRevision(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.intentRequest(s, insert(b.intent(intent.PendingApproval)))
	b.must(t, r)
	in := b.stored(t, r.Intent.Intent.ID)
	approve := b.request(b.event(s.opened, stream("1")))
	approve.Intent = update(in, intent.Executed)
	b.must(t, approve)
	reject := b.intentRequest(s, update(in, intent.Rejected))
	b.refused(t, concurrency.CodeIntentChanged, reject)
	got := b.stored(t, in.ID)
	require.Equal(t, intent.Executed, got.Status)
	require.Equal(t, 2, got.Revision)
}

func intentLifecycle(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.intentRequest(s, insert(b.intent(intent.PendingApproval)))
	b.must(t, r)
	id := r.Intent.Intent.ID
	for i, status := range []intent.Status{intent.PendingApproval, intent.PendingApproval, intent.PendingApproval} {
		b.must(t, b.intentRequest(s, update(b.stored(t, id), status)))
		in := b.stored(t, id)
		require.Equal(t, status, in.Status)
		require.Equal(t, i+2, in.Revision)
		require.Zero(t, in.EventCount)
	}
	r.Events = []event.Prepared{b.event(s.opened, stream("1")), b.event(s.closed, stream("1"))}
	r.Intent = update(b.stored(t, id), intent.Executed)
	b.must(t, r)
	in := b.stored(t, id)
	require.Equal(t, event.Sequence(5), in.FirstSequence)
	require.Equal(t, 2, in.EventCount)
	require.Equal(t, 5, in.Revision)
}

func waitingIntents(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ctx := context.Background()
	list, err := b.store.WaitingIntents(ctx, b.le.Partition, 10)
	require.NoError(t, err)
	require.NotNil(t, list)
	require.Empty(t, list)
	var want []event.ID
	for i, minute := range []int{3, 1, 2, 4} {
		in := b.intent(intent.PendingApproval)
		in.CreatedAt = in.CreatedAt.Add(time.Duration(minute) * time.Minute)
		if i == 3 {
			in.Status = intent.Executed
		}
		r := b.intentRequest(s, insert(in))
		b.must(t, r)
		want = append(want, in.ID)
	}
	ids := func(limit int) []event.ID {
		list, err := b.store.WaitingIntents(ctx, b.le.Partition, limit)
		require.NoError(t, err)
		out := make([]event.ID, len(list))
		for i, in := range list {
			out[i] = in.ID
		}
		return out
	}
	require.Equal(t, []event.ID{want[1], want[2], want[0]}, ids(10))
	require.Equal(t, []event.ID{want[1], want[2]}, ids(2))
	r := b.intentRequest(s, update(b.stored(t, want[1]), intent.Rejected))
	b.must(t, r)
	require.Equal(t, []event.ID{want[2], want[0]}, ids(10))
}

func listedIntents(t *testing.T, s *suite) {
	b, other := s.newPartition(t), s.newPartition(t)
	statuses := []intent.Status{intent.Executed, intent.PendingApproval, intent.Denied, intent.PendingApproval, intent.Executed}
	ids := make([]event.ID, len(statuses))
	for i, status := range statuses {
		in := b.intent(status)
		in.Documents = []string{"case/1"}
		ids[i] = in.ID
		b.must(t, b.intentRequest(s, insert(in)))
	}
	other.must(t, other.intentRequest(s, insert(other.intent(intent.PendingApproval))))
	list := func(q ports.IntentQuery) []event.ID {
		t.Helper()
		q.Partition = b.le.Partition
		found, err := b.store.ListIntents(context.Background(), q)
		require.NoError(t, err)
		out := make([]event.ID, len(found))
		for i, in := range found {
			require.Empty(t, in.Payload)
			require.Empty(t, in.Rules)
			full := b.stored(t, in.ID)
			full.Payload, full.Rules = nil, nil
			require.Equal(t, full, in)
			out[i] = in.ID
		}
		return out
	}
	require.Equal(t, ids, list(ports.IntentQuery{Limit: 10}))
	require.Equal(t, ids[:2], list(ports.IntentQuery{Limit: 2}))
	require.Equal(t, ids[1:4], list(ports.IntentQuery{After: ids[0], Before: ids[4], Limit: 10}))
	require.Equal(t, []event.ID{ids[3], ids[2]}, list(ports.IntentQuery{Before: ids[4], Direction: ports.Backward, Limit: 2}))
	require.Equal(t, []event.ID{ids[1], ids[3]}, list(ports.IntentQuery{Status: intent.PendingApproval, Limit: 10}))
	require.Equal(t, []event.ID{ids[3]}, list(ports.IntentQuery{Status: intent.PendingApproval, Direction: ports.Backward, Limit: 1}))
	require.Equal(t, []event.ID{ids[2]}, list(ports.IntentQuery{Status: intent.Denied, After: ids[1], Limit: 10}))
	require.Empty(t, list(ports.IntentQuery{Status: intent.Rejected, Limit: 10}))
}

func unknownIntent(t *testing.T, s *suite) {
	b, other := s.newPartition(t), s.newPartition(t)
	r := other.intentRequest(s, insert(other.intent(intent.PendingApproval)))
	other.must(t, r)
	for _, id := range []event.ID{b.ids.next(), r.Intent.Intent.ID} {
		_, err := b.store.Intent(context.Background(), b.le.Partition, id)
		require.Equal(t, "intent.not_found", fault.CodeOf(err))
		require.Equal(t, fault.NotFound, fault.KindOf(err))
	}
}

var rollbackPromises = []promise{
	{"refused batch writes nothing", rollback},
	{"refused request succeeds once its demand is met", sendAgain},
}

// rollback refuses a request with side rows of every kind at its last event, and looks for
// each row afterwards.
func rollback(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ctx := context.Background()
	b.write(t, b.event(s.opened, stream("held"), claiming("held", "")))
	before := b.head(t)
	spoils := map[string]func(*ports.AppendRequest){
		concurrency.CodeDuplicateKey: func(r *ports.AppendRequest) {
			r.Events = append(r.Events, b.event(s.opened, stream("s"), claiming("held", "")))
		},
		concurrency.CodeWrongExpectedVersion: func(r *ports.AppendRequest) { r.Streams = expect(stream("held"), concurrency.NoStream()) },
		concurrency.CodeConditionFailed: func(r *ports.AppendRequest) {
			r.Conditions = []concurrency.AppendCondition{{Items: []concurrency.Item{{Types: []string{s.opened.Type}}}}}
		},
	}
	for code, spoil := range spoils {
		r := b.request(
			b.event(s.opened, stream("s"), tagged("left"), about("vendor", "left"), claiming("free", "")),
			b.event(s.opened, stream(""), numbered("journal")),
			b.event(s.changed, stream("s")))
		r.Idempotency = b.claim("key "+code, "content")
		r.Intent = insert(b.intent(intent.Executed))
		spoil(&r)
		b.refused(t, code, r)

		require.Equal(t, before, b.head(t))
		require.Len(t, b.all(t), 1)
		require.Empty(t, b.stream(t, stream("s")))
		require.Empty(t, b.query(t, ports.EventQuery{Key: event.TagKey("left")}))
		for _, e := range r.Events {
			_, err := b.store.EventByID(ctx, b.le.Partition, e.ID)
			require.Equal(t, "event.not_found", fault.CodeOf(err))
		}
		_, err := b.store.Intent(ctx, b.le.Partition, r.Intent.Intent.ID)
		require.Equal(t, "intent.not_found", fault.CodeOf(err))
		_, found, err := b.store.IdempotencyOutcome(ctx, b.le.Partition, r.Idempotency.Key, b.clock.Now())
		require.NoError(t, err)
		require.False(t, found)
	}
	// Keys, numbers and versions that the refused requests asked for are still free.
	r := b.request(
		b.event(s.opened, stream("s"), tagged("left"), about("vendor", "left"), claiming("free", "")),
		b.event(s.opened, stream(""), numbered("journal")))
	r.Streams = expect(stream("s"), concurrency.NoStream())
	r.Entities = []concurrency.EntityExpectation{{EntityType: "vendor", EntityID: "left"}}
	r.Conditions = absent(0, "left")
	r.Idempotency = b.claim("key "+concurrency.CodeDuplicateKey, "another content")
	result := b.must(t, r)
	require.Equal(t, []event.Sequence{2, 3}, receiptSequences(result.Events))
	require.Equal(t, "journal/"+number(1), result.Events[1].Stream.ID)
}

func sendAgain(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.request(b.event(s.opened, stream("1"), claiming("K", "")), b.event(s.opened, stream(""), numbered("journal")))
	r.Streams = expect(stream("gate"), concurrency.StreamExists())
	r.Idempotency = b.claim("key", "content")
	b.refused(t, concurrency.CodeWrongExpectedVersion, r)
	b.write(t, b.event(s.opened, stream("gate")))
	want := slices.Clone(r.Events)
	result := b.must(t, r)
	require.Equal(t, want[0].ID, result.Events[0].ID)
	require.Equal(t, "journal/"+number(1), result.Events[1].Stream.ID)
}

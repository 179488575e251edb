package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

var racePromises = []promise{
	{"one of sixteen wins an append condition", raceCondition},
	{"decisions never oversell", raceDecisions},
	{"one of many wins an expected version", raceVersion},
	{"one of many wins an entity version", raceEntity},
	{"one of many wins a business key", raceBusinessKey},
	{"one of many is first with an idempotency key", raceIdempotency},
	{"one of many changes an intent", raceIntent},
	{"a waiting intent has one outcome", raceOutcomes},
	{"races and refusals leave no gaps in numbers", raceSeries},
	{"each of several concurrent contests has one winner", raceContests},
	{"invalid request does not affect concurrent ones", racePoison},
	{"one of many creates a legal entity", raceLegalEntity},
	{"writers on many partitions leave no gaps", racePartitions},
}

// races is how often a cheap race is run: an error between a read and the lock appears
// once in some hundred races.
const races = 20

// race starts n writers at once and collects their errors.
func race(n int, write func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = write(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// oneWinner requires that exactly one error is nil and that all other errors have the
// code.
func oneWinner(t require.TestingT, errs []error, code string) int {
	winner := -1
	for i, err := range errs {
		if err == nil {
			require.Equal(t, -1, winner, "writers %d and %d both won", winner, i)
			winner = i
			continue
		}
		require.Equal(t, code, fault.CodeOf(err), "error: %v", err)
	}
	require.NotEqual(t, -1, winner, "no request succeeded")
	return winner
}

// compete lets n writers append what build makes, in several rounds, and demands
// one winner in each.
func (b *partition) compete(t *testing.T, n, rounds int, code string, build func(round, i int) ports.AppendRequest) {
	t.Helper()
	for round := range rounds {
		requests := make([]ports.AppendRequest, n)
		for i := range requests {
			requests[i] = build(round, i)
		}
		before := b.head(t).Sequence
		errs := race(n, func(i int) error { _, err := b.try(requests[i]); return err })
		winner := oneWinner(t, errs, code)
		events := b.query(t, ports.EventQuery{After: before})
		require.Len(t, events, 1, "a loser left an event")
		require.Equal(t, requests[winner].Events[0].ID, events[0].ID)
	}
	b.verify(t, 1000)
}

func raceCondition(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.compete(t, 16, s.conditionRaces, concurrency.CodeConditionFailed, func(round, i int) ports.AppendRequest {
		tag := fmt.Sprint("round", round)
		r := b.request(b.event(s.opened, stream(fmt.Sprint(round, "-", i)), tagged(tag)))
		r.Conditions = absent(0, tag, s.opened.Type)
		return r
	})
}

// raceDecisions lets sixteen buyers of seats decide on what they read: each buyer gets one
// seat while there are any.
func raceDecisions(t *testing.T, s *suite) {
	const buyers, seats = 16, 5
	b := s.newPartition(t)
	var mu sync.Mutex
	taken, tries := 0, 0
	errs := race(buyers, func(i int) error {
		buyer := fmt.Sprint("buyer", i%(buyers-4)) // four come twice
		for {
			sold, own := 0, 0
			count := func(n int, _ event.Recorded, _ []byte) (int, error) { return n + 1, nil }
			condition, err := module.Decide(context.Background(), s.store, b.le.Partition,
				module.Project(&sold, count, concurrency.Item{Types: []string{s.opened.Type}, Tags: []string{"show"}}),
				module.Project(&own, count, concurrency.Item{Tags: []string{"show", buyer}}))
			if err != nil || sold >= seats || own > 0 {
				return err
			}
			r := b.request(b.event(s.opened, stream(buyer), tagged("show", buyer)))
			r.Conditions = []concurrency.AppendCondition{condition}
			_, err = b.try(r)
			mu.Lock()
			tries++
			if err == nil {
				taken++
			}
			mu.Unlock()
			if err != nil && fault.CodeOf(err) != concurrency.CodeConditionFailed {
				return err
			}
		}
	})
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, seats, taken, "after %d tries", tries)
	events := b.verify(t, 1000)
	require.Len(t, events, seats)
	holders := map[string]bool{}
	for _, e := range events {
		require.False(t, holders[e.Tags[1]], "%s has two seats", e.Tags[1])
		holders[e.Tags[1]] = true
	}
}

func raceVersion(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.compete(t, 8, 20, concurrency.CodeWrongExpectedVersion, func(round, i int) ports.AppendRequest {
		r := b.request(b.event(s.opened, stream("1")))
		r.Streams = expect(stream("1"), concurrency.Exactly(event.Version(round)))
		return r
	})
}

func raceEntity(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.compete(t, 8, 20, concurrency.CodeWrongExpectedVersion, func(round, i int) ports.AppendRequest {
		r := b.request(b.event(s.opened, stream(fmt.Sprint(round, "-", i)), about("vendor", "V-1")))
		r.Entities = []concurrency.EntityExpectation{{EntityType: "vendor", EntityID: "V-1", Sequence: event.Sequence(round)}}
		return r
	})
}

func raceBusinessKey(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.compete(t, 8, 20, concurrency.CodeDuplicateKey, func(round, i int) ports.AppendRequest {
		return b.request(b.event(s.opened, stream(fmt.Sprint(round, "-", i)), claiming(fmt.Sprint("INV-", round), "")))
	})
}

func raceIdempotency(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for round := range 20 {
		requests := make([]ports.AppendRequest, 8)
		for i := range requests {
			requests[i] = b.request(b.event(s.opened, stream("1")))
			requests[i].Idempotency = b.claim(fmt.Sprint("key", round), "content")
		}
		results := make([]ports.AppendResult, len(requests))
		errs := race(len(requests), func(i int) (err error) { results[i], err = b.try(requests[i]); return err })
		first := 0
		for i := range results {
			require.NoError(t, errs[i])
			if !results[i].Replayed {
				first++
				require.Equal(t, event.Sequence(round+1), results[i].Events[0].Sequence)
				continue
			}
			require.Equal(t, event.Sequence(round+1), results[i].Outcome.FirstSequence)
		}
		require.Equal(t, 1, first, "writers that were first with the key")
		require.Equal(t, event.Sequence(round+1), b.head(t).Sequence)
	}
}

func raceIntent(t *testing.T, s *suite) {
	b := s.newPartition(t)
	w := insert(b.intent(intent.PendingApproval))
	id := w.Intent.ID
	b.must(t, b.intentRequest(s, w))
	b.compete(t, 8, 10, concurrency.CodeIntentChanged, func(round, i int) ports.AppendRequest {
		r := b.request(b.event(s.opened, stream(fmt.Sprint(round))))
		r.Intent = update(b.stored(t, id), intent.Executed)
		return r
	})
	require.Equal(t, 11, b.stored(t, id).Revision)
}

// raceOutcomes lets approval, rejection, withdrawal and expiry compete for waiting intents.
// One wins, with its event, and the row points to it.
func raceOutcomes(t *testing.T, s *suite) {
	b := s.newPartition(t)
	outcomes := []intent.Status{intent.Executed, intent.Rejected, intent.Withdrawn, intent.Expired}
	for range races {
		r := b.request(b.event(s.opened, stream("waits")))
		r.Intent = insert(b.intent(intent.PendingApproval))
		r.Intent.EventsAbout = 1
		b.must(t, r)
		waiting := b.stored(t, r.Intent.Intent.ID)
		before := b.head(t).Sequence
		requests := make([]ports.AppendRequest, 2*len(outcomes))
		for i := range requests {
			requests[i] = b.request(b.event(s.opened, stream(string(outcomes[i%len(outcomes)]))))
			requests[i].Intent = update(waiting, outcomes[i%len(outcomes)])
			requests[i].Intent.EventsAbout = 1
		}
		errs := race(len(requests), func(i int) error { _, err := b.try(requests[i]); return err })
		winner := oneWinner(t, errs, concurrency.CodeIntentChanged)
		in := b.stored(t, waiting.ID)
		require.Equal(t, outcomes[winner%len(outcomes)], in.Status)
		require.Equal(t, 2, in.Revision)
		require.Equal(t, before+1, b.head(t).Sequence, "the losers wrote nothing")
		require.Equal(t, before+1, in.LastSequence)
		require.Equal(t, stream(string(in.Status)), b.all(t)[before].Stream)
	}
}

func raceSeries(t *testing.T, s *suite) {
	b := s.newPartition(t)
	b.write(t, b.event(s.opened, stream("0"), claiming("held", "")))
	const writers, rounds = 8, 6
	var mu sync.Mutex
	numbers := []string{}
	errs := race(writers, func(i int) error {
		for round := range rounds {
			r := b.request(b.event(s.opened, stream(""), numbered("journal")))
			spoilt := (i+round)%2 == 1
			if spoilt {
				r.Events = append(r.Events, b.event(s.opened, stream("x"), claiming("held", "")))
			}
			result, err := b.try(r)
			switch {
			case spoilt && fault.CodeOf(err) != concurrency.CodeDuplicateKey:
				return fmt.Errorf("the spoilt request got %w", err)
			case !spoilt && err != nil:
				return err
			case !spoilt:
				mu.Lock()
				numbers = append(numbers, result.Events[0].Stream.ID)
				mu.Unlock()
			}
		}
		return nil
	})
	for _, err := range errs {
		require.NoError(t, err)
	}
	slices.Sort(numbers)
	want := make([]string, writers*rounds/2)
	for i := range want {
		want[i] = "journal/" + number(i+1)
	}
	require.Equal(t, want, numbers)
	// Numbers follow the order of the log.
	for i, e := range b.all(t)[1:] {
		require.Equal(t, want[i], e.Stream.ID)
	}
	b.verify(t, 1000)
}

// contest is a demand that the store can meet for one of several writers only.
type contest struct {
	code   string // of the refusals
	demand func(b *partition, name string, writer int, r *ports.AppendRequest)
}

var contests = []contest{
	{concurrency.CodeConditionFailed, func(_ *partition, name string, _ int, r *ports.AppendRequest) {
		tagged(name)(&r.Events[0])
		r.Conditions = absent(0, name)
	}},
	{concurrency.CodeWrongExpectedVersion, func(_ *partition, name string, _ int, r *ports.AppendRequest) {
		r.Events[0].Stream = stream(name)
		r.Streams = expect(stream(name), concurrency.NoStream())
	}},
	{concurrency.CodeWrongExpectedVersion, func(_ *partition, name string, _ int, r *ports.AppendRequest) {
		about("vendor", name)(&r.Events[0])
		r.Entities = []concurrency.EntityExpectation{{EntityType: "vendor", EntityID: name}}
	}},
	{concurrency.CodeDuplicateKey, func(_ *partition, name string, _ int, r *ports.AppendRequest) {
		claiming(name, "")(&r.Events[0])
	}},
	{concurrency.CodeIdempotencyMismatch, func(b *partition, name string, writer int, r *ports.AppendRequest) {
		r.Idempotency = b.claim(name, fmt.Sprint("content of ", writer))
	}},
	{concurrency.CodeIntentChanged, func(b *partition, _ string, _ int, r *ports.AppendRequest) {
		r.Intent = insert(b.intent(intent.Executed))
	}},
}

// raceContests mixes contests, so that a store that decides several requests
// together must check each against the requests that it has just accepted.
func raceContests(t *testing.T, s *suite) {
	const rivals, rounds = 4, 15
	b := s.newPartition(t)
	for round := range rounds {
		requests := make([]ports.AppendRequest, rivals*len(contests))
		shared := b.ids.next() // the intent that the last contest is about
		for i := range requests {
			name := fmt.Sprint("contest", round, "-", i%len(contests))
			r := b.request(b.event(s.opened, stream(""), numbered("journal")), b.event(s.opened, stream(fmt.Sprint("own", round, "-", i))))
			slices.Reverse(r.Events)
			contests[i%len(contests)].demand(b, name, i, &r)
			if r.Intent != nil {
				r.Intent.Intent.ID = shared
			}
			requests[i] = r
		}
		errs := race(len(requests), func(i int) error { _, err := b.try(requests[i]); return err })
		for c := range contests {
			var answers []error
			for i := c; i < len(errs); i += len(contests) {
				answers = append(answers, errs[i])
			}
			oneWinner(t, answers, contests[c].code)
		}
	}
	events := b.verify(t, 1000)
	require.Len(t, events, 2*rounds*len(contests))
	for i, e := range events {
		if i%2 == 1 {
			require.Equal(t, "journal/"+number(i/2+1), e.Stream.ID)
		}
	}
}

// racePoison sends one request with a taken event id among valid ones.
func racePoison(t *testing.T, s *suite) {
	b := s.newPartition(t)
	taken := b.event(s.opened, stream("0"))
	b.write(t, taken)
	const writers, rounds = 12, 5
	for round := range rounds {
		requests := make([]ports.AppendRequest, writers)
		for i := range requests {
			e := b.event(s.opened, stream(fmt.Sprint(round, "-", i)))
			if i == round {
				e.ID = taken.ID
			}
			requests[i] = b.request(e)
		}
		errs := race(writers, func(i int) error { _, err := b.try(requests[i]); return err })
		for i, err := range errs {
			if i == round {
				require.Error(t, err)
				continue
			}
			require.NoError(t, err)
		}
	}
	require.Len(t, b.verify(t, 1000), 1+rounds*(writers-1))
}

func raceLegalEntity(t *testing.T, s *suite) {
	for range races {
		tenant := s.unique("tenant")
		errs := race(8, func(int) error {
			_, err := s.store.CreateLegalEntity(context.Background(), s.legalEntity(tenant, "DEMF"))
			return err
		})
		oneWinner(t, errs, "legal_entity.duplicate")
		list, err := s.store.LegalEntities(context.Background(), tenant)
		require.NoError(t, err)
		require.Len(t, list, 1)
	}
}

func racePartitions(t *testing.T, s *suite) {
	partitions := make([]*partition, 4)
	for i := range partitions {
		partitions[i] = s.newPartition(t)
	}
	const writers, each = 16, 8
	errs := race(writers, func(i int) error {
		for n := range each {
			b := partitions[(i+n)%len(partitions)]
			if _, err := b.try(b.request(b.event(s.opened, stream(fmt.Sprint(i))), b.event(s.changed, stream("shared")))); err != nil {
				return err
			}
		}
		return nil
	})
	for _, err := range errs {
		require.NoError(t, err)
	}
	for _, b := range partitions {
		const perPartition = 2 * writers * each / 4
		require.Len(t, b.verify(t, 1000), perPartition)
		shared := b.stream(t, stream("shared"))
		require.Len(t, shared, perPartition/2)
		for i, e := range shared {
			require.Equal(t, event.Version(i+1), e.StreamVersion)
			require.Zero(t, e.Sequence%2, "the events of a request follow each other")
		}
	}
}

// maxWait bounds waits that end on a correct store, so that a broken store fails instead
// of hanging. It is no measure of speed.
const maxWait = 2 * time.Minute

// waitFor calls poke until done is closed.
func waitFor(t *testing.T, done <-chan struct{}, poke func()) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(maxWait)
	defer deadline.Stop()
	for {
		poke()
		select {
		case <-done:
			return
		case <-deadline.C:
			t.Fatalf("not done after %s", maxWait)
		case <-tick.C:
		}
	}
}

package conformance

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const (
	codeErased   = "pii.subject_erased"
	codeKeyMoved = "pii.key_moved"
)

var personalPromises = []promise{
	{"event sealed with an active key is stored", keyActive},
	{"event sealed with a fenced key is refused", keyFenced},
	{"event sealed with a destroyed key is refused", keyDestroyed},
	{"event sealed with an absent key is refused", keyAbsent},
	{"another version of the key asks the caller to seal again", keyOfAnotherVersion},
	{"keys of other classes, subjects and legal entities do not count", keyOfAnotherClass},
	{"refused request does not affect concurrent ones", keyRefusesOne},
	{"replay needs no key", keyReplay},
	{"keys are checked after the intent and before the streams", keyOrder},
	{"sealed intent needs its keys", keyOfIntent},
	{"records of a person are found", personalRecords},
	{"records of a person are paged", personalPages},
	{"no event is written under a destroyed key", keyRace},
}

func (b *partition) key(subject string, class shredding.KeyClass) ports.SubjectKeyID {
	return ports.SubjectKeyID{Partition: b.le.Partition, Subject: shredding.Subject(subject), Class: class}
}

// minted is a new key in its first version.
func (b *partition) minted(t *testing.T, subject string, class shredding.KeyClass) ports.SubjectKeyID {
	t.Helper()
	id := b.key(subject, class)
	require.EqualValues(t, 1, b.keys.Mint(t, id))
	return id
}

func sealed(id ports.SubjectKeyID, version uint32, pointers ...string) event.SealedSubject {
	return event.SealedSubject{Subject: string(id.Subject), KeyClass: uint8(id.Class), KeyVersion: version, Pointers: pointers}
}

// sealing declares sealed values of the event.
func sealing(subjects ...event.SealedSubject) option {
	return func(p *event.Prepared) {
		p.Sealed = append(p.Sealed, subjects...)
		p.PII = map[string]string{}
		for _, s := range subjects {
			for _, pointer := range s.Pointers {
				p.PII[pointer] = string(shredding.Contact)
			}
		}
	}
}

// personal is an event with one sealed value.
func (b *partition) personal(id ports.SubjectKeyID, version uint32, options ...option) event.Prepared {
	return b.event(b.opened, stream(b.unique("p")), append(options, sealing(sealed(id, version, "/data/email")))...)
}

func keyActive(t *testing.T, s *suite) {
	b := s.newPartition(t)
	id, other := b.minted(t, "employee:E-1", shredding.KeyStandard), b.minted(t, "employee:E-2", shredding.KeyStandard)
	e := b.event(s.opened, stream("1"), sealing(sealed(id, 1, "/data/email", "/data/phone"), sealed(other, 1, "/data/manager/email")))
	b.write(t, e, b.personal(id, 1), b.event(s.opened, stream("2")))
	got, err := b.store.EventByID(context.Background(), b.le.Partition, e.ID)
	require.NoError(t, err)
	require.Equal(t, e.PII, got.PII)
	b.write(t, b.personal(id, 1))
}

func requireErased(t *testing.T, f fault.Error, field string) {
	t.Helper()
	require.Equal(t, fault.Gone, f.Kind)
	require.Equal(t, field, f.Field)
}

func keyFenced(t *testing.T, s *suite) {
	b := s.newPartition(t)
	id := b.minted(t, "employee:E-1", shredding.KeyStandard)
	b.write(t, b.personal(id, 1))
	b.keys.Fence(t, id)
	f := b.refused(t, codeErased, b.request(b.event(s.opened, stream("a")), b.personal(id, 1)))
	requireErased(t, f, "/events/1/data/email")
}

func keyDestroyed(t *testing.T, s *suite) {
	b := s.newPartition(t)
	id := b.minted(t, "employee:E-1", shredding.KeyStandard)
	b.write(t, b.personal(id, 1))
	b.keys.Fence(t, id)
	b.keys.Destroy(t, id)
	requireErased(t, b.refused(t, codeErased, b.request(b.personal(id, 1))), "/events/0/data/email")
	require.Len(t, b.all(t), 1, "what was written stays")
}

func keyAbsent(t *testing.T, s *suite) {
	b := s.newPartition(t)
	requireErased(t, b.refused(t, codeErased, b.request(b.personal(b.key("employee:E-1", shredding.KeyStandard), 1))), "/events/0/data/email")
}

func keyOfAnotherVersion(t *testing.T, s *suite) {
	b := s.newPartition(t)
	id := b.minted(t, "employee:E-1", shredding.KeyStandard)
	f := b.refused(t, codeKeyMoved, b.request(b.personal(id, 2)))
	require.Equal(t, fault.Conflict, f.Kind)
	require.Positive(t, f.RetryAfter, "the caller seals again and retries")
	require.EqualValues(t, 2, b.keys.Mint(t, id))
	b.refused(t, codeKeyMoved, b.request(b.personal(id, 1)))
	b.write(t, b.personal(id, 2))
}

func keyOfAnotherClass(t *testing.T, s *suite) {
	b, elsewhere := s.newPartition(t), s.newPartition(t)
	standard, regulatory := b.minted(t, "employee:E-1", shredding.KeyStandard), b.minted(t, "employee:E-1", shredding.KeyRegulatory)
	b.minted(t, "employee:E-11", shredding.KeyStandard)
	elsewhere.minted(t, "employee:E-1", shredding.KeyStandard)
	b.keys.Fence(t, standard)
	b.keys.Destroy(t, standard)
	b.refused(t, codeErased, b.request(b.event(s.opened, stream("1"), sealing(sealed(regulatory, 1, "/data/iban"), sealed(standard, 1, "/data/email")))))
	b.write(t, b.personal(regulatory, 1))
	b.write(t, b.personal(b.key("employee:E-11", shredding.KeyStandard), 1))
	elsewhere.write(t, elsewhere.personal(elsewhere.key("employee:E-1", shredding.KeyStandard), 1))
	elsewhere.refused(t, codeErased, elsewhere.request(elsewhere.personal(elsewhere.key("employee:E-11", shredding.KeyStandard), 1)))
}

func keyRefusesOne(t *testing.T, s *suite) {
	b := s.newPartition(t)
	gone, alive := b.minted(t, "employee:gone", shredding.KeyStandard), b.minted(t, "employee:alive", shredding.KeyStandard)
	b.keys.Fence(t, gone)
	const callers = 24
	requests := make([]ports.AppendRequest, callers)
	for i := range requests {
		e := b.event(s.opened, stream(b.unique("n")), tagged("t"))
		switch i % 3 {
		case 1:
			e = b.personal(alive, 1)
		case 2:
			e = b.personal(gone, 1)
		}
		requests[i] = b.request(e)
	}
	for i, err := range race(callers, func(i int) error { _, err := b.try(requests[i]); return err }) {
		if i%3 == 2 {
			require.Equal(t, codeErased, fault.CodeOf(err))
		} else {
			require.NoError(t, err)
		}
	}
	require.Len(t, b.all(t), callers/3*2)
}

func keyReplay(t *testing.T, s *suite) {
	b := s.newPartition(t)
	id := b.minted(t, "employee:E-1", shredding.KeyStandard)
	r := b.request(b.personal(id, 1))
	r.Idempotency = b.claim("key", "content")
	first := b.must(t, r)
	b.keys.Fence(t, id)
	b.keys.Destroy(t, id)
	again, err := b.try(r)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, first.Outcome, again.Outcome)
	r.Idempotency = b.claim("key", "other content")
	b.refused(t, concurrency.CodeIdempotencyMismatch, r)
}

func keyOrder(t *testing.T, s *suite) {
	b := s.newPartition(t)
	id := b.key("employee:E-1", shredding.KeyStandard)
	in := b.intent(intent.PendingApproval)
	b.must(t, b.intentRequest(s, insert(in)))
	r := b.request(b.personal(id, 1))
	r.Streams = expect(stream("none"), concurrency.StreamExists())
	b.refused(t, codeErased, r)
	r.Intent = insert(in)
	b.refused(t, concurrency.CodeIntentChanged, r)
}

func keyOfIntent(t *testing.T, s *suite) {
	b := s.newPartition(t)
	id := b.minted(t, "employee:E-1", shredding.KeyStandard)
	write := func(w *ports.IntentWrite, subjects ...event.SealedSubject) ports.AppendRequest {
		w.Sealed = subjects
		return b.intentRequest(s, w)
	}
	in := b.intent(intent.PendingApproval)
	b.must(t, write(insert(in), sealed(id, 1, "/email")))
	b.refused(t, codeKeyMoved, write(insert(b.intent(intent.PendingApproval)), sealed(id, 2, "/email")))
	// Sealed once more at a later revision, it is one record all the same.
	b.must(t, write(update(in, intent.PendingApproval), sealed(id, 1, "/email")))
	b.keys.Fence(t, id)
	b.keys.Destroy(t, id)
	late := b.intent(intent.Denied)
	requireErased(t, b.refused(t, codeErased, write(insert(late), sealed(id, 1, "/email"))), "/payload/email")
	_, err := b.store.Intent(context.Background(), b.le.Partition, late.ID)
	require.Equal(t, "intent.not_found", fault.CodeOf(err))
	in.Revision = 2
	b.must(t, write(update(in, intent.Denied)))
	ids, err := b.store.PersonalIntents(context.Background(), b.le.Partition, id.Subject, event.ID{}, 10)
	require.NoError(t, err)
	require.Equal(t, []event.ID{in.ID}, ids)
}

func personalRecords(t *testing.T, s *suite) {
	b, elsewhere := s.newPartition(t), s.newPartition(t)
	ctx := context.Background()
	standard, regulatory := b.minted(t, "employee:E-1", shredding.KeyStandard), b.minted(t, "employee:E-1", shredding.KeyRegulatory)
	other := b.minted(t, "employee:E-2", shredding.KeyStandard)
	elsewhere.minted(t, "employee:E-1", shredding.KeyStandard)
	elsewhere.write(t, elsewhere.personal(elsewhere.key("employee:E-1", shredding.KeyStandard), 1))

	none, err := b.store.CountPersonalRecords(ctx, b.le.Partition, standard.Subject)
	require.NoError(t, err)
	require.Empty(t, none)
	b.write(t, b.personal(other, 1))
	both := b.event(s.opened, stream("1"), sealing(sealed(standard, 1, "/data/email", "/data/phone"), sealed(regulatory, 1, "/data/iban")))
	b.write(t, both)
	s.clock.Advance(time.Minute)
	changed := b.event(s.changed, stream("1"), sealing(sealed(standard, 1, "/data/email")))
	in := b.intent(intent.Executed)
	r := b.request(changed, b.personal(other, 1), b.personal(standard, 1))
	r.Intent = insert(in)
	r.Intent.Sealed = []event.SealedSubject{sealed(standard, 1, "/email", "/phone", "/name")}
	b.must(t, r)
	// What is refused leaves nothing behind.
	refused := b.request(b.personal(standard, 1))
	refused.Streams = expect(stream("none"), concurrency.StreamExists())
	b.refused(t, concurrency.CodeWrongExpectedVersion, refused)

	events := b.all(t)
	got, err := b.store.CountPersonalRecords(ctx, b.le.Partition, standard.Subject)
	require.NoError(t, err)
	require.ElementsMatch(t, []ports.PersonalCount{
		{Type: s.opened.Type, Class: shredding.KeyStandard, Records: 2, Fields: 3, NewestAt: events[4].RecordedAt},
		{Type: s.opened.Type, Class: shredding.KeyRegulatory, Records: 1, Fields: 1, NewestAt: events[1].RecordedAt},
		{Type: s.changed.Type, Class: shredding.KeyStandard, Records: 1, Fields: 1, NewestAt: events[2].RecordedAt},
		{Intent: true, Type: in.Type, Class: shredding.KeyStandard, Records: 1, Fields: 3, NewestAt: event.Micros(in.CreatedAt)},
	}, got)
	found, err := b.store.PersonalEvents(ctx, b.le.Partition, standard.Subject, 0, 100)
	require.NoError(t, err)
	require.Equal(t, []event.Recorded{events[1], events[2], events[4]}, found, "with payloads, each once")
	ids, err := b.store.PersonalIntents(ctx, b.le.Partition, standard.Subject, event.ID{}, 100)
	require.NoError(t, err)
	require.Equal(t, []event.ID{in.ID}, ids)
}

func personalPages(t *testing.T, s *suite) {
	b := s.newPartition(t)
	ctx := context.Background()
	id, other := b.minted(t, "employee:E-1", shredding.KeyStandard), b.minted(t, "employee:E-2", shredding.KeyStandard)
	var wanted []event.ID
	for range 5 {
		in := b.intent(intent.Denied)
		wanted = append(wanted, in.ID)
		r := b.request(b.personal(id, 1), b.personal(other, 1))
		r.Intent = insert(in)
		r.Intent.Sealed = []event.SealedSubject{sealed(id, 1, "/email")}
		b.must(t, r)
	}
	var seen []event.Sequence
	var intents []event.ID
	after, afterID := event.Sequence(0), event.ID{}
	for page := range 3 {
		events, err := b.store.PersonalEvents(ctx, b.le.Partition, id.Subject, after, 2)
		require.NoError(t, err)
		require.Len(t, events, min(2, 5-2*page))
		seen, after = append(seen, sequences(events)...), events[len(events)-1].Sequence
		ids, err := b.store.PersonalIntents(ctx, b.le.Partition, id.Subject, afterID, 2)
		require.NoError(t, err)
		require.Len(t, ids, min(2, 5-2*page))
		intents, afterID = append(intents, ids...), ids[len(ids)-1]
	}
	require.Equal(t, []event.Sequence{1, 3, 5, 7, 9}, seen)
	require.Equal(t, wanted, intents)
	events, err := b.store.PersonalEvents(ctx, b.le.Partition, id.Subject, after, 2)
	require.NoError(t, err)
	require.NotNil(t, events)
	require.Empty(t, events)
}

func keyRace(t *testing.T, s *suite) {
	for range 5 {
		b := s.newPartition(t)
		id := b.minted(t, "employee:E-1", shredding.KeyStandard)
		var wg, running sync.WaitGroup
		var destroyed atomic.Bool
		errs := make([]error, 8)
		for i := range errs {
			running.Add(1)
			wg.Go(func() {
				_, errs[i] = b.try(b.request(b.personal(id, 1)))
				running.Done()
				for last := false; errs[i] == nil && !last; {
					last = destroyed.Load()
					_, errs[i] = b.try(b.request(b.personal(id, 1)))
				}
			})
		}
		running.Wait()
		b.keys.Fence(t, id)
		b.keys.Destroy(t, id)
		atDestruction := b.head(t).Sequence
		destroyed.Store(true)
		wg.Wait()
		for _, err := range errs {
			require.Contains(t, []string{codeErased, codeKeyMoved}, fault.CodeOf(err))
		}
		require.Equal(t, atDestruction, b.head(t).Sequence, "an event was written under a destroyed key")
	}
}

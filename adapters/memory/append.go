package memory

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Appender writes to the log.
type Appender struct {
	*state
	clock ports.Clock // of the node that writes
}

// AppenderOn returns an appender of a node with a clock of its own.
func (d *Database) AppenderOn(clock ports.Clock) *Appender { return &Appender{d.Appender.state, clock} }

// Append implements ports.EventAppender. It decides whether the request is refused before
// the first write, so that a refusal has nothing to undo.
func (s *Appender) Append(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
	if f := r.CheckIntent(); f != nil {
		return ports.AppendResult{}, f
	}
	return get(ctx, s.state, func() (ports.AppendResult, error) {
		p, ok := s.partitions[r.Partition]
		if !ok {
			return ports.AppendResult{}, unknownLegalEntity()
		}
		now := event.Micros(s.clock.Now())
		outcome, replayed, err := p.replay(r.Idempotency, now)
		if err != nil {
			return ports.AppendResult{}, err
		}
		if replayed {
			return ports.AppendResult{Events: []ports.AppendedEvent{}, Head: p.head().Sequence, Replayed: true, Outcome: outcome}, nil
		}
		if err := p.checkIntent(r.Intent); err != nil {
			return ports.AppendResult{}, err
		}
		releaseKeys, err := s.holdKeys(&r)
		if err != nil {
			return ports.AppendResult{}, err
		}
		defer releaseKeys()
		if err := p.check(&r); err != nil {
			return ports.AppendResult{}, err
		}
		st := p.stage(&r, now)
		claims, err := p.claimBusinessKeys(st.events)
		if err != nil {
			return ports.AppendResult{}, err
		}
		if err := p.checkStates(st.events); err != nil {
			return ports.AppendResult{}, err
		}
		result := p.commit(&r, st, claims)
		if len(st.events) > 0 {
			s.wake(r.Partition)
		}
		return result, nil
	})
}

// replay answers a repeated idempotency key.
func (p *partition) replay(claim *ports.IdempotencyClaim, now time.Time) (ports.IdempotencyOutcome, bool, error) {
	if claim == nil {
		return ports.IdempotencyOutcome{}, false, nil
	}
	row, known := p.idempotency[claim.Key]
	if !known || !now.Before(row.expiresAt) {
		return ports.IdempotencyOutcome{}, false, nil
	}
	if f := claim.Check(row.outcome.StoredHash); f != nil {
		return ports.IdempotencyOutcome{}, false, f
	}
	return row.outcome, true, nil
}

// check compares the access lists and expectations of the request with the log, in the order
// that the port promises. Business keys follow in claimBusinessKeys, since series numbers may be
// part of them, and the states of streams in checkStates.
func (p *partition) check(r *ports.AppendRequest) error {
	if err := p.checkAccess(r); err != nil {
		return err
	}
	for _, want := range r.Streams {
		sequences := p.byStream[want.Stream]
		actual, state := event.Version(len(sequences)), p.streamState(want.Stream)
		from := actual
		if !r.ChangesStream(want.Stream) {
			from = p.contentVersion(sequences)
		}
		if !want.Expected.AllowsIn(state, from, actual) {
			return concurrency.UnmetExpectation(want, state, actual, p.lastHolder(sequences))
		}
	}
	for _, want := range r.Entities {
		sequences := p.byKey[event.EntityKey(want.EntityType, want.EntityID)]
		var actual event.Sequence
		if n := len(sequences); n > 0 {
			actual = sequences[n-1]
		}
		if actual != want.Sequence {
			return concurrency.WrongEntityVersion(want.EntityType, want.EntityID, want.Sequence, actual)
		}
	}
	for i := range r.Conditions {
		if err := p.checkCondition(&r.Conditions[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *partition) lastHolder(sequences []event.Sequence) *fault.Holder {
	if len(sequences) == 0 {
		return nil
	}
	h := p.holder(sequences[len(sequences)-1])
	return &h
}

func (p *partition) holder(n event.Sequence) fault.Holder {
	return fault.Holder{EventID: p.at(n).ID.String(), Sequence: decimal(n)}
}

func decimal(n event.Sequence) string { return strconv.FormatUint(uint64(n), 10) }

// staged is a request's effect before it is written.
type staged struct {
	events []event.Prepared
	series map[string]uint64
}

// stage numbers and chains copies of the events, so that a refusal leaves the caller's
// request and the partition unchanged.
func (p *partition) stage(r *ports.AppendRequest, now time.Time) staged {
	st := staged{events: make([]event.Prepared, len(r.Events)), series: map[string]uint64{}}
	head := p.head()
	recordedAt := now
	if recordedAt.Before(head.RecordedAt) {
		recordedAt = head.RecordedAt
	}
	versions := map[event.StreamID]event.Version{}
	checksum, scratch := head.Checksum, []byte(nil)
	for i := range r.Events {
		e := r.Events[i] // its keys, business keys and series are only read before Append returns
		e.Skeleton, e.Payload = cloneSkeleton(e.Skeleton), slices.Clone(e.Payload)
		for _, number := range e.Series {
			n, taken := st.series[number.Series]
			if !taken {
				n = p.series[number.Series]
			}
			st.series[number.Series] = n + 1
			e.ReplaceToken(number.Token, number.Format(n+1))
		}
		if !e.PayloadHashDone || len(e.Series) > 0 {
			e.PayloadHash = event.HashPayload(e.Salt, e.Payload)
		}
		version, seen := versions[e.Stream]
		if !seen {
			version = event.Version(len(p.byStream[e.Stream]))
		}
		versions[e.Stream] = version + 1
		e.Partition = r.Partition
		e.Sequence = head.Sequence + event.Sequence(i) + 1
		e.RecordedAt = recordedAt
		e.StreamVersion = version + 1
		checksum, scratch = e.ChainChecksum(checksum, scratch)
		e.Checksum = checksum
		st.events[i] = e
	}
	return st
}

// claimBusinessKeys checks the events' business keys and ids against the log and against
// each other, and returns the keys with the events that will hold them.
func (p *partition) claimBusinessKeys(events []event.Prepared) (map[businessKey]fault.Holder, error) {
	claims := map[businessKey]fault.Holder{}
	ids := make(map[event.ID]struct{}, len(events))
	for i := range events {
		e := &events[i]
		for _, k := range e.BusinessKeys {
			key := businessKey{k.EventType, k.Key}
			holder, held := p.business[key]
			if !held {
				holder, held = claims[key]
			}
			if held {
				return nil, concurrency.DuplicateBusinessKey(k.EventType, holder)
			}
			claims[key] = fault.Holder{EventID: e.ID.String(), DocumentID: k.Document, Sequence: decimal(e.Sequence)}
		}
		_, stored := p.byID[e.ID]
		_, repeated := ids[e.ID]
		if stored || repeated {
			return nil, fault.New(fault.Internal, "append.rejected_by_store", "event id %s is taken already; make a new id and send the request again", e.ID)
		}
		ids[e.ID] = struct{}{}
	}
	return claims, nil
}

// commit writes the staged events and side rows. Nothing in it can fail.
func (p *partition) commit(r *ports.AppendRequest, st staged, claims map[businessKey]fault.Holder) ports.AppendResult {
	receipts := make([]ports.AppendedEvent, len(st.events))
	for i := range st.events {
		e := &st.events[i]
		p.events = append(p.events, event.Recorded{Skeleton: e.Skeleton, Salt: e.Salt, Payload: e.Payload})
		p.noteEvent(e)
		p.byID[e.ID] = e.Sequence
		p.byStream[e.Stream] = append(p.byStream[e.Stream], e.Sequence)
		p.changeStream(e)
		for _, k := range e.Keys {
			// Two references to one entity in different roles are one row of the index.
			if list := p.byKey[k]; len(list) == 0 || list[len(list)-1] != e.Sequence {
				p.byKey[k] = append(list, e.Sequence)
			}
		}
		receipts[i] = ports.AppendedEvent{
			ID: e.ID, Type: e.Type, Sequence: e.Sequence, Stream: e.Stream,
			StreamVersion: e.StreamVersion, RecordedAt: e.RecordedAt, Checksum: e.Checksum,
		}
	}
	maps.Copy(p.business, claims)
	maps.Copy(p.series, st.series)
	outcome := ports.IdempotencyOutcome{EventCount: len(st.events)}
	if len(st.events) > 0 {
		outcome.FirstSequence = st.events[0].Sequence
	}
	if w := r.Intent; w != nil {
		outcome.IntentID = w.Intent.ID
		p.intents[w.Intent.ID] = storedIntent(r.Partition, w, outcome)
		p.noteIntent(w)
	}
	if c := r.Idempotency; c != nil {
		outcome.StoredHash = c.StoredHash()
		p.idempotency[c.Key] = idempotencyRow{outcome: outcome, expiresAt: event.Micros(c.ExpiresAt)}
	}
	return ports.AppendResult{Events: receipts, Head: p.head().Sequence, Outcome: outcome}
}

// checkCondition looks for the first event after the condition's sequence that
// any item matches.
func (p *partition) checkCondition(c *concurrency.AppendCondition) error {
	if head := event.Sequence(len(p.events)); c.After > head {
		return concurrency.ConditionBeyondHead(c.After, head)
	}
	var first event.Sequence
	tooOld := false
	for i := range c.Items {
		n, undecided := p.firstMatch(&c.Items[i], c.After)
		tooOld = tooOld || undecided
		if n != 0 && (first == 0 || n < first) {
			first = n
		}
	}
	switch {
	case first != 0:
		return c.Failed(p.holder(first))
	case tooOld:
		return concurrency.ConditionTooOld(c.After)
	default:
		return nil
	}
}

// firstMatch scans the events of each key in turn until one list is short enough to be
// scanned to its end, or has a match. undecided reports that every list is longer than the bound
// and none has a match within it.
func (p *partition) firstMatch(item *concurrency.Item, after event.Sequence) (found event.Sequence, undecided bool) {
	keys := item.Keys()
	if len(keys) == 0 {
		for n := after + 1; n <= event.Sequence(len(p.events)); n++ {
			if p.hasType(n, item.Types) {
				return n, false
			}
		}
		return 0, false
	}
	lists := make([][]event.Sequence, len(keys))
	for i, k := range keys {
		lists[i] = sequencesAfter(p.byKey[k], after)
	}
	for _, leading := range lists {
		scan := leading[:min(len(leading), concurrency.MaxConditionScan)]
		for _, n := range scan {
			if p.hasType(n, item.Types) && inAll(lists, n) {
				return n, false
			}
		}
		if len(scan) == len(leading) {
			return 0, false
		}
	}
	return 0, true
}

func (p *partition) hasType(n event.Sequence, types []string) bool {
	return len(types) == 0 || slices.Contains(types, p.at(n).Type)
}

func inAll(lists [][]event.Sequence, n event.Sequence) bool {
	for _, list := range lists {
		if _, ok := slices.BinarySearch(list, n); !ok {
			return false
		}
	}
	return true
}

// sequencesAfter is the part of an ascending list after the sequence.
func sequencesAfter(list []event.Sequence, after event.Sequence) []event.Sequence {
	i, _ := slices.BinarySearch(list, after+1)
	return list[i:]
}

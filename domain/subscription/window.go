package subscription

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// State is the state of a message that is not done.
type State string

// The states. A message that is done has no row and no state.
const (
	Waiting     State = "waiting" // read, not delivered yet: an earlier message of its key is not done
	Leased      State = "leased"  // delivered, until Due
	Retry       State = "retry"   // failed, to be delivered again from Due on
	ParkedState State = "parked"  // a dead letter, until a person replays or discards it
)

// Codes of failures without a code of the subscriber.
const (
	CodeTimeout = "timeout"
	CodeNack    = "nack"
)

// Message is an event that a subscription covers and that is not done. It holds no payload: each
// delivery reads the event from the log, so an event that was erased or redacted since its first
// delivery is delivered as it is now.
type Message struct {
	Sequence    event.Sequence
	EventID     event.ID
	Key         Key
	State       State
	Consumer    string    // of the last delivery
	Attempts    int       // deliveries since it was read or replayed
	Due         time.Time // when the lease ends, or the next attempt may be made; zero: neither
	DeliveredAt time.Time // last delivery; zero: never
	Code        string    // of the last failure
	Detail      string    // of the failure, in words; never values of a payload
	ChangedAt   time.Time
}

// Counts are totals of what happened to messages.
type Counts struct {
	Delivered    int64 `json:"delivered"` // repeated deliveries count again
	Acknowledged int64 `json:"acknowledged"`
	Retried      int64 `json:"retried"` // failures that are tried again
	TimedOut     int64 `json:"timed_out"`
	Parked       int64 `json:"parked"`
	Skipped      int64 `json:"skipped"`
	Discarded    int64 `json:"discarded"`
	Replayed     int64 `json:"replayed"`
}

// Add adds the counts of o.
func (c *Counts) Add(o Counts) {
	c.Delivered += o.Delivered
	c.Acknowledged += o.Acknowledged
	c.Retried += o.Retried
	c.TimedOut += o.TimedOut
	c.Parked += o.Parked
	c.Skipped += o.Skipped
	c.Discarded += o.Discarded
	c.Replayed += o.Replayed
}

// Window is the open messages of a subscription in one legal entity while the caller holds
// their lock.
type Window struct {
	settings  Settings
	now       time.Time
	open      []Message               // not parked, by sequence
	parked    map[Key]event.Sequence  // the first parked message of each key that blocks later ones
	changed   map[event.Sequence]bool // to be stored
	closed    map[event.Sequence]bool // to be removed
	delivered map[event.Sequence]bool // delivered in this window
	partial   bool                    // more messages may be open than the window was given

	// Counts is what happened in this window.
	Counts Counts
	// Failures counts failures of this window, for the breaker. Messages that one consumer
	// got together and let time out are one failure: the consumer stopped.
	Failures int
	LastCode string // of the newest failure
	// Succeeded reports that a message was acknowledged.
	Succeeded bool
}

// NewWindow makes a window of all open messages, which excludes parked ones, by sequence.
// The caller must call BlockKeys before Claim and Admit.
func NewWindow(s Settings, now time.Time, open []Message) *Window {
	return &Window{
		settings: s, now: now, open: open, parked: map[Key]event.Sequence{},
		changed: map[event.Sequence]bool{}, closed: map[event.Sequence]bool{}, delivered: map[event.Sequence]bool{},
	}
}

// openMessages yields the messages that are still open.
func (w *Window) openMessages(yield func(*Message) bool) {
	for i := range w.open {
		if m := &w.open[i]; !w.isClosed(m) && !yield(m) {
			return
		}
	}
}

// isReady reports whether a message may be delivered, apart from the order of its key.
func (w *Window) isReady(m *Message) bool {
	return m.State == Waiting || m.State == Retry && !m.Due.After(w.now)
}

// BlockKeys adds the first parked message of each key, behind which later messages of the key wait.
func (w *Window) BlockKeys(parked map[Key]event.Sequence) {
	if !w.settings.parkedBlocksKey() {
		return
	}
	for k, n := range parked {
		if known, there := w.parked[k]; k != (Key{}) && (!there || n < known) {
			w.parked[k] = n
		}
	}
}

// ClaimableKeys lists the keys of the messages that may be delivered, each once, if parked
// messages may block keys. The caller reads their parked messages and passes them to BlockKeys.
func (w *Window) ClaimableKeys() []Key {
	return w.distinctKeys(func(yield func(Key) bool) {
		for m := range w.openMessages {
			if m.State != Leased && !yield(m.Key) {
				return
			}
		}
	})
}

// CandidateKeys lists the keys of candidates, each once, if parked messages may block keys.
func (w *Window) CandidateKeys(candidates []Candidate) []Key {
	return w.distinctKeys(func(yield func(Key) bool) {
		for i := range candidates {
			if !yield(candidates[i].Key) {
				return
			}
		}
	})
}

func (w *Window) distinctKeys(all iter.Seq[Key]) (keys []Key) {
	if !w.settings.parkedBlocksKey() {
		return nil
	}
	seen := map[Key]bool{{}: true}
	for k := range all {
		if !seen[k] {
			seen[k] = true
			keys = append(keys, k)
		}
	}
	return keys
}

// Expire ends the leases whose time is over and reports whether there were any.
func (w *Window) Expire() bool {
	type lease struct {
		consumer string
		due      int64
	}
	ended := map[lease]bool{}
	for m := range w.openMessages {
		if m.State != Leased || m.Due.After(w.now) {
			continue
		}
		if l := (lease{m.Consumer, m.Due.UnixMicro()}); !ended[l] {
			ended[l] = true
			w.Failures++
			w.LastCode = CodeTimeout
		}
		w.Counts.TimedOut++
		w.fail(m, CodeTimeout, "")
	}
	return len(ended) > 0
}

func (w *Window) isClosed(m *Message) bool { return w.closed[m.Sequence] || m.State == ParkedState }

func (w *Window) fail(m *Message, code, detail string) {
	m.Code, m.Detail = code, detail
	if m.Attempts > max(w.settings.MaxRetries, 0) {
		w.park(m)
		return
	}
	m.State, m.Due, m.ChangedAt = Retry, w.now.Add(w.settings.Backoff(m.Attempts)), w.now
	w.changed[m.Sequence] = true
	w.Counts.Retried++
}

func (w *Window) park(m *Message) {
	m.State, m.Due, m.ChangedAt = ParkedState, time.Time{}, w.now
	w.changed[m.Sequence] = true
	w.Counts.Parked++
	if w.settings.parkedBlocksKey() && m.Key != (Key{}) {
		if n, known := w.parked[m.Key]; !known || m.Sequence < n {
			w.parked[m.Key] = m.Sequence
		}
	}
}

// isBlockedByParked reports whether a parked message of the key blocks a sequence.
func (w *Window) isBlockedByParked(k Key, n event.Sequence) bool {
	first, known := w.parked[k]
	return known && first < n
}

// Claim delivers messages that are due, in order. A message waits until earlier messages of
// its key are done, unless they are delivered together. ownsKey reports whether the
// consumer gets the messages of a key; nil: all.
func (w *Window) Claim(consumer string, limit int, ownsKey func(Key) bool) []Message {
	var out []Message
	for _, m := range w.claimable(limit, ownsKey) {
		w.lease(m, consumer)
		out = append(out, *m)
	}
	return out
}

// Claimable lists the sequences that Claim would deliver. A smaller limit shortens the list at
// its end.
func (w *Window) Claimable(limit int, ownsKey func(Key) bool) (sequences []event.Sequence) {
	for _, m := range w.claimable(limit, ownsKey) {
		sequences = append(sequences, m.Sequence)
	}
	return sequences
}

func (w *Window) claimable(limit int, ownsKey func(Key) bool) (out []*Message) {
	blocked := map[Key]bool{}
	for m := range w.openMessages {
		if !w.isReady(m) || blocked[m.Key] || w.isBlockedByParked(m.Key, m.Sequence) || len(out) >= limit || ownsKey != nil && !ownsKey(m.Key) {
			if m.Key != (Key{}) && !w.delivered[m.Sequence] {
				blocked[m.Key] = true
			}
			continue
		}
		out = append(out, m)
	}
	return out
}

func (w *Window) lease(m *Message, consumer string) {
	m.State, m.Consumer, m.DeliveredAt, m.ChangedAt = Leased, consumer, w.now, w.now
	m.Attempts++
	m.Due = event.Micros(w.now.Add(w.settings.MessageTimeout))
	w.changed[m.Sequence] = true
	w.delivered[m.Sequence] = true
	w.Counts.Delivered++
}

// Candidate is an event that matches the filter and follows all messages of the window.
type Candidate struct {
	Sequence event.Sequence
	EventID  event.ID
	Key      Key
}

// Admit adds events in their order. It delivers at most room of them. Those whose key is blocked
// or another consumer's have to wait, at most waiting of them. It stops at the first event beyond
// its bound, and returns how many it admitted.
func (w *Window) Admit(candidates []Candidate, consumer string, room, waiting int, ownsKey func(Key) bool) (delivered []Message, admitted int) {
	blocked := map[Key]bool{}
	for m := range w.openMessages {
		if m.Key != (Key{}) && !w.delivered[m.Sequence] {
			blocked[m.Key] = true
		}
	}
	for _, c := range candidates {
		m := Message{Sequence: c.Sequence, EventID: c.EventID, Key: c.Key, State: Waiting, ChangedAt: w.now}
		switch {
		case blocked[c.Key] || w.isBlockedByParked(c.Key, c.Sequence) || ownsKey != nil && !ownsKey(c.Key):
			if waiting <= 0 {
				return delivered, admitted
			}
			waiting--
			if c.Key != (Key{}) {
				blocked[c.Key] = true
			}
			w.open = append(w.open, m)
			w.changed[m.Sequence] = true
		case room <= 0:
			return delivered, admitted
		default:
			room--
			w.lease(&m, consumer)
			w.open = append(w.open, m)
			delivered = append(delivered, m)
		}
		admitted++
	}
	return delivered, admitted
}

// IsBlocked reports whether no new event can be delivered before a message is answered: if all
// messages of a legal entity have one key, each open one blocks all later ones.
func (w *Window) IsBlocked() bool {
	if w.settings.PartitionBy != PerLegalEntity {
		return false
	}
	for m := range w.openMessages {
		if !w.delivered[m.Sequence] {
			return true
		}
	}
	return false
}

// Count counts the open messages in a state.
func (w *Window) Count(state State) (n int) {
	for m := range w.openMessages {
		if m.State == state {
			n++
		}
	}
	return n
}

// FirstOpen is the lowest sequence that is not done, except parked ones; 0 if there is none.
func (w *Window) FirstOpen() event.Sequence {
	for i := range w.open {
		if m := &w.open[i]; !w.isClosed(m) {
			return m.Sequence
		}
	}
	return 0
}

func compareSequence(m Message, n event.Sequence) int { return cmp.Compare(m.Sequence, n) }

// Outcome is the effect of a subscriber's answer on one message.
type Outcome string

// The outcomes.
const (
	Applied        Outcome = "taken"           // only inside the service: answers list the other outcomes
	NotOutstanding Outcome = "not_outstanding" // acknowledged already, or never delivered
	OtherConsumer  Outcome = "other_consumer"  // the newest delivery went to another consumer
	AlreadyParked  Outcome = "parked"          // a dead letter: replay or discard it
)

func (w *Window) find(n event.Sequence) *Message {
	i, found := slices.BinarySearchFunc(w.open, n, compareSequence)
	if !found || w.closed[n] {
		return nil
	}
	return &w.open[i]
}

// answerable finds a message that was delivered. An answer counts even after the lease has
// ended, because the subscriber did see the message.
func (w *Window) answerable(n event.Sequence, consumer string) (*Message, Outcome) {
	m := w.find(n)
	switch {
	case m == nil || m.Attempts == 0 || m.State == Waiting:
		return nil, NotOutstanding
	case m.State == ParkedState:
		return nil, AlreadyParked
	case consumer != "" && m.Consumer != consumer:
		return nil, OtherConsumer
	}
	return m, Applied
}

// Acknowledge ends a message; if a consumer is named, only one that was delivered to it.
func (w *Window) Acknowledge(n event.Sequence, consumer string) Outcome {
	m, outcome := w.answerable(n, consumer)
	if m != nil {
		w.acknowledge(m)
	}
	return outcome
}

func (w *Window) acknowledge(m *Message) {
	w.closed[m.Sequence] = true
	w.Counts.Acknowledged++
	w.Succeeded = true
}

// AcknowledgeThrough ends every message up to a sequence, inclusive, that was delivered and
// not refused; if a consumer is named, only those that were delivered to it.
func (w *Window) AcknowledgeThrough(n event.Sequence, consumer string) (acknowledged int) {
	for i := range w.open {
		m := &w.open[i]
		if m.Sequence > n {
			break
		}
		answered := m.State == Leased || m.State == Retry && m.Code == CodeTimeout
		if w.isClosed(m) || !answered || consumer != "" && m.Consumer != consumer {
			continue
		}
		w.acknowledge(m)
		acknowledged++
	}
	return acknowledged
}

// Refusal says how to treat a message that the subscriber could not process.
type Refusal string

// The refusals.
const (
	RetryLater Refusal = "retry"
	Park       Refusal = "park"
	Skip       Refusal = "skip"
)

// Refuse answers a delivered message with a failure.
func (w *Window) Refuse(n event.Sequence, consumer string, how Refusal, code, detail string) Outcome {
	m, outcome := w.answerable(n, consumer)
	if m == nil {
		return outcome
	}
	if m.State == Retry && how == RetryLater {
		return NotOutstanding // it failed already, and its next attempt is set
	}
	switch how {
	case Skip:
		w.closed[m.Sequence] = true
		w.Counts.Skipped++
		return Applied
	case Park:
		m.Code, m.Detail = code, detail
		w.park(m)
	default:
		w.fail(m, code, detail)
	}
	w.Failures++
	w.LastCode = code
	return Applied
}

// Requeue undoes a delivery that its consumer never received, if it is the message's newest one.
func (w *Window) Requeue(n event.Sequence, attempt int) {
	m := w.find(n)
	if m == nil || m.State != Leased || m.Attempts != attempt {
		return
	}
	m.Attempts--
	m.State, m.Due, m.ChangedAt = Retry, w.now, w.now
	if m.Attempts == 0 {
		m.State, m.Due, m.DeliveredAt, m.Consumer = Waiting, time.Time{}, time.Time{}, ""
	}
	w.changed[m.Sequence] = true
	w.Counts.Delivered--
}

// Replay makes a parked message due again, with no attempt counted.
func (w *Window) Replay(m Message) {
	m.State, m.Attempts, m.Due, m.ChangedAt = Retry, 0, w.now, w.now
	i, _ := slices.BinarySearchFunc(w.open, m.Sequence, compareSequence)
	w.open = slices.Insert(w.open, i, m)
	w.changed[m.Sequence] = true
	w.Counts.Replayed++
}

// Discard removes a parked message.
func (w *Window) Discard(n event.Sequence) {
	w.closed[n] = true
	w.Counts.Discarded++
}

// Changes returns what must be stored: messages as they are now, and the sequences of those
// that are done.
func (w *Window) Changes() (changed []Message, done []event.Sequence) {
	for i := range w.open {
		if n := w.open[i].Sequence; w.changed[n] && !w.closed[n] {
			changed = append(changed, w.open[i])
		}
	}
	return changed, slices.Sorted(maps.Keys(w.closed))
}

// NewPartialWindow makes a window of some of the open messages, by sequence. Before Claim,
// Add must have added all other messages that could be delivered.
func NewPartialWindow(s Settings, now time.Time, open []Message) *Window {
	w := NewWindow(s, now, open)
	w.partial = true
	return w
}

// IsPartial reports whether more may be open than the window was given.
func (w *Window) IsPartial() bool { return w.partial }

// Add adds open messages that the window was not given, by sequence.
func (w *Window) Add(more []Message) {
	w.open = append(slices.Clip(w.open), more...)
	slices.SortFunc(w.open, func(a, b Message) int { return cmp.Compare(a.Sequence, b.Sequence) })
}

// BlockedKey is a key none of whose messages after a sequence can be delivered.
type BlockedKey struct {
	Key   Key
	After event.Sequence
}

// BlockedKeys lists the keys of which no message can be delivered that follows a message of the
// window, each once, with the first such message. Earlier messages of the key may be
// deliverable: one that was requeued, or one that is replayed.
func (w *Window) BlockedKeys() (keys []BlockedKey) {
	seen := map[Key]bool{}
	for m := range w.openMessages {
		if m.Key != (Key{}) && !seen[m.Key] && (!w.isReady(m) || w.isBlockedByParked(m.Key, m.Sequence)) {
			seen[m.Key] = true
			keys = append(keys, BlockedKey{m.Key, m.Sequence})
		}
	}
	return keys
}

// ClosedCount counts the messages that are no longer open after this window.
func (w *Window) ClosedCount() (n int) {
	for i := range w.open {
		if w.isClosed(&w.open[i]) {
			n++
		}
	}
	return n
}

// FirstOpenAmong is FirstOpen of a partial window. lowest are the lowest sequences that were
// open before this window, one more than ClosedCount.
func (w *Window) FirstOpenAmong(lowest []event.Sequence) event.Sequence {
	first := w.FirstOpen()
	for _, n := range lowest {
		if first > 0 && n >= first {
			break
		}
		i, there := slices.BinarySearchFunc(w.open, n, compareSequence)
		if !there || !w.isClosed(&w.open[i]) {
			return n
		}
	}
	return first
}

package subscription

import (
	"cmp"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Strategy says which consumer of a group gets a message.
type Strategy string

// The strategies.
const (
	RoundRobin Strategy = "round_robin" // the next one that polls
	Pinned     Strategy = "pinned"      // the same consumer for the same key, while it keeps polling
)

// Origin is where a subscription begins in each legal entity.
type Origin string

// The origins.
const (
	Beginning Origin = "beginning"
	End       Origin = "end"      // what is appended after the subscription was made
	Position  Origin = "position" // at named sequences
	AtTime    Origin = "time"     // with what was recorded at the time or later
	AtCursor  Origin = "cursor"   // at the position that a feed of all legal entities has reached
)

// Start says where a subscription begins. Legal entities that Positions or the cursor
// does not name begin at their first event, and so do those created after the subscription.
type Start struct {
	From      Origin                    `json:"from"`
	Positions map[string]event.Sequence `json:"positions,omitempty"` // by legal entity: the first to be delivered
	Time      time.Time                 `json:"time,omitzero"`
	Cursor    string                    `json:"cursor,omitempty"` // as a feed returned it
	// Marks are the positions that a cursor encodes: the last sequence that the feed has
	// shown. They may name legal entities that the caller may not see any more.
	Marks map[event.PartitionID]event.Sequence `json:"marks,omitempty"`
}

// maxCursor bounds a cursor's text: some thousands of legal entities.
const maxCursor = 128 << 10

// Settings say how messages are delivered. Zero values are replaced by the defaults.
type Settings struct {
	Start            Start         `json:"start"`
	MessageTimeout   time.Duration `json:"message_timeout"`   // after which a delivery without an answer counts as failed; 30 s
	MaxRetries       int           `json:"max_retries"`       // attempts after the first, before a message is parked; 5. NoRetries: none
	BreakerAfter     int           `json:"breaker_after"`     // failures in a row after which the subscription is parked; 10. NoBreaker: never
	CheckpointAfter  int           `json:"checkpoint_after"`  // acknowledgements until the checkpoint is written; 10
	MaxInFlight      int           `json:"max_in_flight"`     // leased messages, in all legal entities together; 1,000
	ConsumerStrategy Strategy      `json:"consumer_strategy"` // round_robin
	PartitionBy      string        `json:"partition_by"`      // PerLegalEntity; see KeyOf
	RetryFirst       time.Duration `json:"retry_first"`       // 1 s; doubles with every attempt
	RetryLongest     time.Duration `json:"retry_longest"`     // 60 s
}

// Values that mean none, since zero is the default.
const (
	NoRetries = -1
	NoBreaker = -1
)

// Values of PartitionBy, besides "entity:<type>" and JSON paths.
const (
	PerLegalEntity = "legal_entity" // in the order of the legal entity; a parked message does not block later ones
	PerStream      = "stream"
	PerCorrelation = "correlation"
	NoOrder        = "none" // consumers share messages in any order
	entityPrefix   = "entity:"
	pathPrefix     = "$."
)

func settingsInvalid(field, detail string) error {
	return fault.New(fault.Invalid, "subscription.settings_invalid", detail).WithField("/settings/" + field)
}

// setDefaults replaces zero values. A delivery to a webhook is retried for about a day. Webhooks
// have no breaker, because their dispatcher pauses while an endpoint fails.
func (s *Settings) setDefaults(subscriberType string) {
	if subscriberType == Webhook {
		if s.MaxRetries == 0 && s.RetryFirst == 0 && s.RetryLongest == 0 {
			s.MaxRetries, s.RetryFirst, s.RetryLongest = 14, 5*time.Second, 12*time.Hour
		}
		s.BreakerAfter = cmp.Or(s.BreakerAfter, NoBreaker)
	}
	s.Start.From = cmp.Or(s.Start.From, Beginning)
	s.MessageTimeout = cmp.Or(s.MessageTimeout, 30*time.Second)
	s.MaxRetries = cmp.Or(s.MaxRetries, 5)
	s.BreakerAfter = cmp.Or(s.BreakerAfter, 10)
	s.CheckpointAfter = cmp.Or(s.CheckpointAfter, 10)
	s.MaxInFlight = cmp.Or(s.MaxInFlight, 1000)
	s.ConsumerStrategy = cmp.Or(s.ConsumerStrategy, RoundRobin)
	s.PartitionBy = cmp.Or(s.PartitionBy, PerLegalEntity)
	s.RetryFirst = cmp.Or(s.RetryFirst, time.Second)
	s.RetryLongest = cmp.Or(s.RetryLongest, max(time.Minute, s.RetryFirst))
}

func (s *Settings) check() error {
	switch {
	case s.MessageTimeout < 100*time.Millisecond || s.MessageTimeout > 24*time.Hour:
		return settingsInvalid("message_timeout_ms", "a message times out after 100 ms to 24 hours; correct it")
	case s.MaxRetries != NoRetries && (s.MaxRetries < 0 || s.MaxRetries > 1000):
		return settingsInvalid("max_retry_count", "a message is tried again 0 to 1000 times; correct it")
	case s.BreakerAfter != NoBreaker && (s.BreakerAfter < 0 || s.BreakerAfter > 1_000_000):
		return settingsInvalid("breaker_after", "the breaker opens after 1 to 1,000,000 failures in a row, 0 never; correct it")
	case s.CheckpointAfter < 0 || s.CheckpointAfter > 10_000:
		return settingsInvalid("checkpoint_after", "a checkpoint is written after 1 to 10,000 acknowledgements; correct it")
	case s.MaxInFlight < 0 || s.MaxInFlight > 10_000:
		return settingsInvalid("max_checkpoint_count", "1 to 10,000 messages may be in flight; correct it")
	case s.RetryFirst < time.Millisecond || s.RetryLongest < s.RetryFirst || s.RetryLongest > 24*time.Hour:
		return settingsInvalid("retry_first_ms", "the first retry comes after 1 ms or later, the longest wait is no shorter and at most 24 hours; correct them")
	}
	switch s.ConsumerStrategy {
	case RoundRobin:
	case Pinned:
		if s.PartitionBy == NoOrder {
			return settingsInvalid("consumer_strategy", "pinned needs a key to pin; choose another partition_by than none")
		}
	default:
		return settingsInvalid("consumer_strategy", "the strategy is round_robin or pinned; correct it")
	}
	if !validKey(s.PartitionBy) {
		return settingsInvalid("partition_by", "the order is kept by legal_entity, none, stream, correlation, entity:<type> or a path such as $.invoice.number; correct it")
	}
	switch s.Start.From {
	case Beginning, End:
	case Position:
		if len(s.Start.Positions) == 0 {
			return settingsInvalid("start_positions", "name the sequence to begin with for each legal entity")
		}
	case AtTime:
		if s.Start.Time.IsZero() {
			return settingsInvalid("start_time", "name the time to begin at")
		}
	case AtCursor:
		if s.Start.Cursor == "" || len(s.Start.Cursor) > maxCursor {
			return settingsInvalid("start_cursor", "give the cursor of a feed of all legal entities, unchanged; it has 1 to 131072 characters")
		}
	default:
		return settingsInvalid("start_from", "a subscription begins at beginning, end, position, time or cursor; correct it")
	}
	if s.Start.From != AtCursor && s.Start.Cursor != "" {
		return settingsInvalid("start_cursor", "a cursor goes with start_from cursor; set it, or leave the cursor out")
	}
	return nil
}

func validKey(by string) bool {
	switch {
	case by == PerLegalEntity, by == PerStream, by == PerCorrelation, by == NoOrder:
		return true
	case strings.HasPrefix(by, entityPrefix):
		return len(by) > len(entityPrefix) && len(by) <= 100
	case strings.HasPrefix(by, pathPrefix):
		_, err := event.ParsePredicate(by, string(event.Exists), "")
		return err == nil
	default:
		return false
	}
}

// KeyPath is the JSON path of PartitionBy, "" if that is none.
func (s *Settings) KeyPath() string {
	if strings.HasPrefix(s.PartitionBy, pathPrefix) {
		return s.PartitionBy
	}
	return ""
}

// parkedBlocksKey reports whether a parked message blocks later messages of its key.
func (s *Settings) parkedBlocksKey() bool {
	return s.PartitionBy != PerLegalEntity && s.PartitionBy != NoOrder
}

// Backoff is how long a message waits after its n-th failed attempt.
func (s *Settings) Backoff(attempts int) time.Duration {
	wait := s.RetryFirst
	for range min(attempts-1, 60) {
		if wait >= s.RetryLongest/2 {
			return s.RetryLongest
		}
		wait *= 2
	}
	return min(wait, s.RetryLongest)
}

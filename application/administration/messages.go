package administration

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// The event types of messages of subscriptions.
const (
	MessageReplayed  = "backbone.subscription_message.replayed"
	MessageDiscarded = "backbone.subscription_message.discarded"
	MessageSkipped   = "backbone.subscription_message.skipped"
	MessageFormer    = "backbone.subscription_message.former"
)

const messageStream = "backbone.subscription_message" // by id of the subscription and partition

var messageActions = map[string]string{"replay": MessageReplayed, "discard": MessageDiscarded, "skip": MessageSkipped}

// messagesData is the data of the events of messages.
type messagesData struct {
	Subscription string            `json:"subscription_id"`
	Partition    event.PartitionID `json:"partition_id"`
	Reason       string            `json:"reason,omitempty"`
	Messages     []decidedMessage  `json:"messages"`
}

type decidedMessage struct {
	Sequence string `json:"sequence"`
	EventID  string `json:"event_id"`
	Code     string `json:"code,omitempty"` // of the failure it was parked for
}

func messageStreamOf(id string, p event.PartitionID) event.StreamID {
	return event.StreamID{Type: messageStream, ID: fmt.Sprintf("%s/%d", id, p)}
}

// eventMessages is how many messages one event names.
const eventMessages = 500

// DecideMessages implements ports.SubscriptionDecisions.
func (s *Subscriptions) DecideMessages(ctx context.Context, d ports.MessageDecision) error {
	stream := messageStreamOf(d.Subscription.ID, d.Partition)
	var drafts []event.Draft
	for some := range slices.Chunk(d.Messages, eventMessages) {
		data := messagesData{Subscription: d.Subscription.ID, Partition: d.Partition, Reason: d.Reason}
		for _, m := range some {
			data.Messages = append(data.Messages, decidedMessage{strconv.FormatUint(uint64(m.Sequence), 10), m.EventID.String(), m.Code})
		}
		drafts = append(drafts, draft(messageActions[d.Action], stream, data))
	}
	return s.log.Record(ctx, d.Subscription.TenantID, d.By.Actor(), concurrency.StreamExpectation{Stream: stream, Expected: concurrency.Any()}, drafts...)
}

// MessageDecisions implements ports.SubscriptionDecisions.
func (s *Subscriptions) MessageDecisions(ctx context.Context, tenantID, id string, partitions []event.PartitionID, limit int) (out []ports.ParkedDecision, _ error) {
	for _, p := range partitions {
		var oldest time.Time // that is in the list if it is full
		if len(out) == limit {
			oldest = out[limit-1].At
		}
		collected := 0
		err := s.log.eachNewest(ctx, tenantID, messageStreamOf(id, p), func(e *event.Recorded) (more bool, _ error) {
			if e.RecordedAt.Before(oldest) {
				return false, nil
			}
			decided, err := messagesOf(tenantID, e)
			out, collected = append(out, decided...), collected+len(decided)
			return collected < limit, err
		})
		if err != nil {
			return nil, err
		}
		slices.SortFunc(out, func(a, b ports.ParkedDecision) int {
			return cmp.Or(b.At.Compare(a.At), b.ID.Compare(a.ID), cmp.Compare(b.Sequence, a.Sequence))
		})
		out = out[:min(limit, len(out))]
	}
	return out, nil
}

func messagesOf(tenantID string, e *event.Recorded) (out []ports.ParkedDecision, err error) {
	var data messagesData
	if err := decode(e, &data); err != nil {
		return nil, err
	}
	one := ports.ParkedDecision{ID: e.ID, TenantID: tenantID, Subscription: data.Subscription, Partition: data.Partition, Actor: e.ActorID, Reason: data.Reason, At: e.RecordedAt}
	for action, eventType := range messageActions {
		if eventType == e.Type {
			one.Action = action
		}
	}
	for _, m := range data.Messages {
		n, err := strconv.ParseUint(m.Sequence, 10, 63)
		if err != nil {
			return nil, err
		}
		if one.EventID, err = event.ParseID(m.EventID); err != nil {
			return nil, err
		}
		one.Sequence, one.Code = event.Sequence(n), m.Code
		out = append(out, one)
	}
	return out, nil
}

// newestEvents is how many events of a stream are read at once, each with up to eventMessages messages.
const newestEvents = 50

// eachNewest calls f with the events of a stream, the newest first, while it returns true.
func (l *Log) eachNewest(ctx context.Context, tenantID string, stream event.StreamID, f func(e *event.Recorded) (more bool, err error)) error {
	log, err := l.Of(ctx, tenantID)
	if err != nil {
		return err
	}
	for q := (ports.StreamQuery{Partition: log.Partition, Stream: stream, Direction: ports.Backward, Limit: newestEvents}); ; {
		events, _, err := l.streams.ReadStream(ctx, q)
		if err == nil {
			err = checkPayloads(tenantID, events)
		}
		if err != nil {
			return err
		}
		for i := range events {
			if more, err := f(&events[i]); err != nil || !more {
				return err
			}
		}
		if n := len(events); n < newestEvents || events[n-1].StreamVersion == 1 {
			return nil
		}
		q.From = events[len(events)-1].StreamVersion - 1
	}
}

// formerMessages has the digest of the decisions that an earlier release stored.
var formerMessages = event.StreamID{Type: messageStream, ID: "former"}

type formerData struct {
	Decisions int    `json:"decisions"`
	SHA256    string `json:"sha256"`
}

// AdoptMessageDecisions records the digest of the decisions about messages of an earlier release.
func AdoptMessageDecisions(store ports.FormerDecisions) Adoption {
	return Adoption{Concern: "subscription_messages", Drafts: func(ctx context.Context, tenantID string) ([]event.Draft, error) {
		count, sum, err := ports.DigestFormerDecisions(ctx, store, tenantID)
		if err != nil || count == 0 {
			return nil, err
		}
		return []event.Draft{draft(MessageFormer, formerMessages, formerData{count, hex.EncodeToString(sum[:])})}, nil
	}}
}

func registerMessages(r *module.Registrar) {
	const example = `{"subscription_id":"payments","partition_id":4711,"reason":"the bank knows them now","messages":[{"sequence":"42","event_id":"01M7YGST5B2MDDN003W0A63V58","code":"bank.unknown"}]}`
	for _, t := range []struct{ name, description string }{
		{MessageReplayed, "A person had dead letters of a subscription delivered again."},
		{MessageDiscarded, "A person gave dead letters of a subscription up: they are not delivered."},
		{MessageSkipped, "A subscriber skipped messages: they are not delivered again."},
	} {
		r.EventType(builtin(t.name, t.description, messagesSchema, example))
	}
	r.EventType(builtin(MessageFormer, "The decisions about messages that an earlier release stored, by their number and digest.", formerSchema,
		`{"decisions":17,"sha256":"`+exampleHash+`"}`))
}

const messagesSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["subscription_id", "partition_id", "messages"],
  "properties": {
    "subscription_id": {"type": "string", "minLength": 1, "maxLength": 100},
    "partition_id": {"type": "integer", "minimum": 1, "description": "of the legal entity"},
    "reason": {"type": "string", "maxLength": 500, "description": "no personal data"},
    "messages": {
      "type": "array",
      "minItems": 1,
      "maxItems": 500,
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["sequence", "event_id"],
        "properties": {
          "sequence": {"type": "string", "pattern": "^[0-9]{1,19}$"},
          "event_id": {"type": "string", "minLength": 26, "maxLength": 26},
          "code": {"type": "string", "maxLength": 100, "description": "of the failure it was parked for"}
        }
      }
    }
  }
}`

const formerSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["decisions", "sha256"],
  "properties": {
    "decisions": {"type": "integer", "minimum": 1},
    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of the rows, by partition, subscription and id"}
  }
}`

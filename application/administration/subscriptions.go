package administration

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// The event types of subscriptions: subscriptionStream and an action.
const (
	SubscriptionCreated = "backbone.subscription.created"
	SubscriptionChanged = "backbone.subscription.changed"
	SubscriptionPaused  = "backbone.subscription.paused"
	SubscriptionResumed = "backbone.subscription.resumed"
	SubscriptionReset   = "backbone.subscription.reset"
	SubscriptionDeleted = "backbone.subscription.deleted"
)

const subscriptionStream = "backbone.subscription" // by id

var subscriptionTypes = []string{SubscriptionCreated, SubscriptionChanged, SubscriptionPaused, SubscriptionResumed, SubscriptionReset, SubscriptionDeleted}

// Subscriptions records what persons decide about the subscriptions of a tenant. What a consumer
// or a breaker does is no decision.
type Subscriptions struct{ log *Log }

var _ ports.SubscriptionDecisions = (*Subscriptions)(nil)

// NewSubscriptions makes the decisions about subscriptions.
func NewSubscriptions(log *Log) *Subscriptions {
	return &Subscriptions{log: log}
}

// subscriptionData is the data of the events of subscriptions: the whole subscription as it is
// after the decision.
type subscriptionData struct {
	UID            string                   `json:"subscription_uid"`
	ID             string                   `json:"subscription_id"`
	Owner          string                   `json:"owner"`
	SubscriberType string                   `json:"subscriber_type"`
	SubscriberID   string                   `json:"subscriber_id"`
	Status         subscription.Status      `json:"status"`
	Definition     *subscription.Definition `json:"definition,omitempty"` // absent when it is deleted
	Positions      map[string]string        `json:"positions,omitempty"`  // of a reset, by partition
	Revision       int64                    `json:"revision"`
	CreatedAt      time.Time                `json:"created_at"`
}

func subscriptionStreamOf(id string) event.StreamID {
	return event.StreamID{Type: subscriptionStream, ID: id}
}

func subscriptionDraft(action ports.SubscriptionAction, sub subscription.Subscription, positions map[event.PartitionID]event.Sequence) event.Draft {
	data := subscriptionData{
		UID: sub.UID.String(), ID: sub.ID, Owner: sub.Owner, SubscriberType: sub.SubscriberType, SubscriberID: sub.SubscriberID, Status: subscription.Active,
		Revision: sub.Revision, CreatedAt: event.Micros(sub.CreatedAt),
	}
	if sub.Status == subscription.Paused {
		data.Status = subscription.Paused
	}
	if action != ports.SubscriptionDeleted {
		d := sub.Definition()
		data.Definition = &d
	}
	for p, n := range positions {
		if data.Positions == nil {
			data.Positions = map[string]string{}
		}
		data.Positions[strconv.FormatUint(uint64(p), 10)] = strconv.FormatUint(uint64(n), 10)
	}
	return draft(subscriptionStream+"."+string(action), subscriptionStreamOf(sub.ID), data)
}

// recordOf reads an event of a subscription.
func recordOf(tenantID string, e *event.Recorded) (r ports.SubscriptionRecord, err error) {
	var data subscriptionData
	if err := decode(e, &data); err != nil {
		return r, err
	}
	r.Version, r.Deleted = e.StreamVersion, e.Type == SubscriptionDeleted
	if r.UID, err = event.ParseID(data.UID); err != nil {
		return r, err
	}
	r.TenantID, r.ID, r.Owner, r.SubscriberType, r.SubscriberID = tenantID, data.ID, data.Owner, data.SubscriberType, data.SubscriberID
	r.Status, r.Revision, r.CreatedAt, r.UpdatedAt = data.Status, data.Revision, data.CreatedAt.UTC(), e.RecordedAt
	if data.Definition != nil {
		r.SetDefinition(*data.Definition)
	}
	return r, nil
}

// Subscription implements ports.SubscriptionDecisions.
func (s *Subscriptions) Subscription(ctx context.Context, tenantID, id string) (ports.SubscriptionRecord, error) {
	e, err := s.log.Latest(ctx, tenantID, subscriptionStreamOf(id))
	if err != nil || e.StreamVersion == 0 {
		return ports.SubscriptionRecord{}, err
	}
	return recordOf(tenantID, &e)
}

// Subscriptions implements ports.SubscriptionDecisions.
func (s *Subscriptions) Subscriptions(ctx context.Context, tenantID string) ([]ports.SubscriptionRecord, error) {
	newest := map[string]ports.SubscriptionRecord{}
	err := s.log.Each(ctx, tenantID, subscriptionTypes, func(e *event.Recorded) error {
		r, err := recordOf(tenantID, e)
		newest[r.ID] = r
		return err
	})
	all := make([]ports.SubscriptionRecord, 0, len(newest))
	for _, r := range newest {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b ports.SubscriptionRecord) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

// Decide implements ports.SubscriptionDecisions.
func (s *Subscriptions) Decide(ctx context.Context, d ports.SubscriptionDecision) error {
	actor := webhookServer
	if d.By.PersonID != "" {
		actor = d.By.Actor()
	}
	expected := concurrency.StreamExpectation{Stream: subscriptionStreamOf(d.Subscription.ID), Expected: expectVersion(d.Before)}
	err := s.log.Record(ctx, d.Subscription.TenantID, actor, expected, subscriptionDraft(d.Action, d.Subscription, d.Positions))
	if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion {
		err = subscription.Changed()
	}
	return err
}

// AdoptSubscriptions takes over the subscriptions of an earlier release.
func AdoptSubscriptions(rows func(ctx context.Context, tenantID string) ([]subscription.Subscription, error)) Adoption {
	return Adoption{Concern: "subscriptions", Drafts: func(ctx context.Context, tenantID string) ([]event.Draft, error) {
		all, err := rows(ctx, tenantID)
		drafts := make([]event.Draft, len(all))
		for i := range all {
			drafts[i] = subscriptionDraft(ports.SubscriptionCreated, all[i], nil)
		}
		return drafts, err
	}}
}

func registerSubscriptions(r *module.Registrar) {
	registerMessages(r)
	definition, _ := json.Marshal(subscription.Definition{Settings: subscription.Settings{Start: subscription.Start{From: subscription.End}, MaxRetries: 5}})
	state := `{"subscription_uid":"01M7YGST5B2MDDN003W0A63V58","subscription_id":"payments","owner":"p-0002","subscriber_type":"service","subscriber_id":"bank","status":"active",` +
		`"revision":1,"created_at":"2026-03-31T12:00:00Z"`
	for _, t := range []struct{ name, description, more string }{
		{SubscriptionCreated, "A person subscribed to events. The filter says to which.", `,"definition":` + string(definition) + `}`},
		{SubscriptionChanged, "The settings of a subscription were replaced.", `,"definition":` + string(definition) + `}`},
		{SubscriptionPaused, "A subscription delivers nothing until it is resumed.", `,"definition":` + string(definition) + `}`},
		{SubscriptionResumed, "A subscription delivers again.", `,"definition":` + string(definition) + `}`},
		{SubscriptionReset, "A subscription was moved: it delivers again what follows the positions, and never what it skipped.", `,"definition":` + string(definition) + `,"positions":{"4711":"42"}}`},
		{SubscriptionDeleted, "A subscription was deleted with its position and its dead letters.", `}`},
	} {
		r.EventType(builtin(t.name, t.description, subscriptionSchema, state+t.more))
	}
}

const subscriptionSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["subscription_uid", "subscription_id", "owner", "subscriber_type", "subscriber_id", "status", "revision", "created_at"],
  "properties": {
    "subscription_uid": {"type": "string", "minLength": 26, "maxLength": 26},
    "subscription_id": {"type": "string", "minLength": 1, "maxLength": 100},
    "owner": {"type": "string", "minLength": 1, "maxLength": 512, "description": "pseudonymous id of the person whose rights count"},
    "subscriber_type": {"type": "string", "maxLength": 100},
    "subscriber_id": {"type": "string", "maxLength": 100},
    "status": {"enum": ["active", "paused"]},
    "definition": {
      "type": "object",
      "additionalProperties": false,
      "required": ["filter", "settings"],
      "properties": {
        "filter": {"type": "object", "description": "which events; what is absent does not filter"},
        "settings": {"type": "object", "description": "how they are delivered; times in nanoseconds"},
        "moved": {"type": "object", "description": "where it was moved to last"}
      }
    },
    "positions": {
      "type": "object",
      "description": "of a reset: by partition the last sequence that is not delivered again",
      "additionalProperties": {"type": "string", "pattern": "^[0-9]{1,19}$"}
    },
    "revision": {"type": "integer", "minimum": 1},
    "created_at": {"type": "string", "format": "date-time"}
  }
}`

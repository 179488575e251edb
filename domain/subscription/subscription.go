package subscription

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Status says whether a subscription hands anything out.
type Status string

// The states of a subscription.
const (
	Active Status = "active"
	Paused Status = "paused" // by a person
	Parked Status = "parked" // by its breaker, after too many failures in a row
)

// Subscription is a reader with a memory: the service knows what it was handed, what
// it has dealt with and what it could not deal with.
type Subscription struct {
	UID            event.ID // of this incarnation; a subscription made again under the same id has another
	TenantID       string
	ID             string // chosen by who made it, unique in the tenant
	SubscriberType string
	SubscriberID   string
	Filter         Filter
	Settings       Settings
	Status         Status
	Owner          string // person id; what is delivered is what this person may read
	Revision       int64  // changes with every change by a person
	CreatedAt      time.Time
	UpdatedAt      time.Time
	ResetStart     *Start // by the last reset to anything but positions; nil: none. See Origin
	Failures       int    // in a row, over all legal entities
	LastFailure    Failure
}

// CurrentStart is where legal entities begin that join: where the last reset has moved the
// subscription to, else where it began. The definition stays as it was asked for, so
// that asking again finds it.
func (s *Subscription) CurrentStart() Start {
	if s.ResetStart != nil {
		return *s.ResetStart
	}
	return s.Settings.Start
}

// Failure is the newest failure of a subscription, the zero value if there was none.
type Failure struct {
	Code string
	At   time.Time
}

// Filter selects events. Parts that are empty select all; an event passes if it
// passes every part.
type Filter struct {
	EventTypes    []string         `json:"event_types,omitempty"`
	LegalEntities []string         `json:"legal_entities,omitempty"`
	Modules       []string         `json:"modules,omitempty"` // whose event types
	Divisions     []string         `json:"divisions,omitempty"`
	Tags          []string         `json:"tags,omitempty"` // any of them
	StreamTypes   []string         `json:"stream_types,omitempty"`
	Predicate     *event.Predicate `json:"predicate,omitempty"` // over the stored data
}

// Matches decides about an event of a legal entity that the filter covers. The module
// of a type is asked for only if modules are part of the filter.
func (f *Filter) Matches(e *event.Recorded, moduleOf func(eventType string) string) bool {
	return matchesAny(f.EventTypes, e.Type) &&
		(len(f.Modules) == 0 || slices.Contains(f.Modules, moduleOf(e.Type))) &&
		matchesAny(f.Divisions, e.Scope.Division) &&
		matchesAny(f.StreamTypes, e.Stream.Type) &&
		(len(f.Tags) == 0 || slices.ContainsFunc(f.Tags, func(t string) bool { return slices.Contains(e.Tags, t) })) &&
		(f.Predicate == nil || f.Predicate.Matches(e.Payload))
}

// Covers reports whether events of the legal entity may pass.
func (f *Filter) Covers(legalEntity string) bool { return matchesAny(f.LegalEntities, legalEntity) }

func matchesAny(wanted []string, have string) bool {
	return len(wanted) == 0 || slices.Contains(wanted, have)
}

// Webhook is the subscriber type of subscriptions that are sent to an endpoint.
const Webhook = "webhook"

// SubscriberTypes are the kinds of receivers that a subscription may have.
var SubscriberTypes = []string{"agent", "rule", "projection", Webhook, "service"}

const (
	maxFilterItems = 100
	maxFilterText  = 200
)

var identifier = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$`)

// ValidConsumer reports whether a text can name a consumer; "" is everybody who
// gives no name.
func ValidConsumer(name string) bool {
	return name == "" || identifier.MatchString(name) && shredding.PersonalPattern(name) == ""
}

// Check refuses a definition that is not well formed and fills in defaults. Faults:
// subscription.id_invalid, subscription.subscriber_invalid,
// subscription.filter_invalid, subscription.settings_invalid,
// subscription.setting_unsupported, pii.in_identifier.
func (s *Subscription) Check() error {
	if !identifier.MatchString(s.ID) {
		return fault.New(fault.Invalid, "subscription.id_invalid", "an id has 1 to 100 letters, digits, and _ . : - after the first; choose another").WithField("/id")
	}
	if !slices.Contains(SubscriberTypes, s.SubscriberType) {
		return fault.New(fault.Invalid, "subscription.subscriber_invalid", "subscriber_type is one of %s; correct it", strings.Join(SubscriberTypes, ", ")).WithField("/subscriber_type")
	}
	if !identifier.MatchString(s.SubscriberID) {
		return fault.New(fault.Invalid, "subscription.subscriber_invalid", "subscriber_id has 1 to 100 letters, digits, and _ . : - after the first; correct it").WithField("/subscriber_id")
	}
	for field, text := range map[string]string{"/id": s.ID, "/subscriber_id": s.SubscriberID} {
		if err := shredding.CheckIdentifier(field, text); err != nil {
			return err
		}
	}
	if err := s.Filter.check(); err != nil {
		return err
	}
	s.Settings.setDefaults(s.SubscriberType)
	return s.Settings.check()
}

func (f *Filter) check() error {
	for _, part := range [...]struct {
		field string
		items *[]string
	}{
		{"/event_types", &f.EventTypes}, {"/legal_entities", &f.LegalEntities}, {"/modules", &f.Modules},
		{"/divisions", &f.Divisions}, {"/tags", &f.Tags}, {"/stream_types", &f.StreamTypes},
	} {
		if *part.items != nil && len(*part.items) == 0 {
			return filterInvalid(part.field, "an empty list would select nothing; leave it out to select all")
		}
		if len(*part.items) > maxFilterItems {
			return filterInvalid(part.field, "a list has at most 100 items; make several subscriptions")
		}
		for _, item := range *part.items {
			if item == "" || len(item) > maxFilterText {
				return filterInvalid(part.field, "an item has 1 to 200 bytes; correct the list")
			}
		}
		items := slices.Clone(*part.items)
		slices.Sort(items)
		*part.items = slices.Compact(items) // the same filter, however it is written
	}
	return nil
}

func filterInvalid(field, detail string) error {
	return fault.New(fault.Invalid, "subscription.filter_invalid", detail).WithField(field)
}

// SameDefinition reports whether two subscriptions were asked for in the same words.
func (s *Subscription) SameDefinition(o *Subscription) bool {
	return s.TenantID == o.TenantID && s.ID == o.ID && s.SubscriberType == o.SubscriberType && s.SubscriberID == o.SubscriberID &&
		string(s.definition()) == string(o.definition())
}

func (s *Subscription) definition() []byte {
	b, err := json.Marshal(struct {
		F Filter
		S Settings
	}{s.Filter, s.Settings})
	if err != nil {
		return nil // texts, numbers and times always encode
	}
	return b
}

// LimitReached is the fault of a tenant that has as many subscriptions as it may.
func LimitReached(most int) error {
	return fault.New(fault.FailedPrecondition, "subscription.too_many",
		"the tenant has as many subscriptions as it may have, %d; delete one that nobody needs, or let an operator raise subscriptions.per_tenant", most)
}

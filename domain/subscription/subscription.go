package subscription

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Status says whether a subscription delivers.
type Status string

// The states of a subscription.
const (
	Active Status = "active"
	Paused Status = "paused" // by a person
	Parked Status = "parked" // by its breaker, after too many failures in a row
)

// Subscription is a persistent reader: the service stores which events it was delivered,
// acknowledged and refused.
type Subscription struct {
	UID            event.ID // differs for a subscription that is created again under the same id
	TenantID       string
	ID             string // chosen by its creator, unique in the tenant
	SubscriberType string
	SubscriberID   string
	Filter         Filter
	Settings       Settings
	Status         Status
	Owner          string // person id; only events that this person may read are delivered
	Revision       int64  // changes with every change by a person
	CreatedAt      time.Time
	UpdatedAt      time.Time
	ResetStart     *Start // by the last reset to anything but positions; nil: none. See Origin
	Failures       int    // in a row, over all legal entities
	LastFailure    Failure
}

// CurrentStart is where legal entities that join begin: at the last reset, else at the start
// of the settings. A reset leaves the settings unchanged, so that a repeated request to
// create the subscription finds the same definition.
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

// Filter selects events that match all its parts. An empty part matches every event. Durable
// subscriptions, webhooks and live feeds have the same filter.
type Filter struct {
	EventTypes    []string            `json:"event_types,omitempty"`
	LegalEntities []string            `json:"legal_entities,omitempty"`
	Modules       []string            `json:"modules,omitempty"` // whose event types
	Divisions     []string            `json:"divisions,omitempty"`
	Regions       []string            `json:"regions,omitempty"`
	Sites         []string            `json:"sites,omitempty"`
	Custom        map[string][]string `json:"custom,omitempty"` // values of custom scopes by name; each name has to match
	Tags          []string            `json:"tags,omitempty"`   // any of them
	StreamTypes   []string            `json:"stream_types,omitempty"`
	Streams       []string            `json:"streams,omitempty"`   // single ones, as type/id
	Predicate     *event.Predicate    `json:"predicate,omitempty"` // over the stored data
}

// Matches reports whether the filter selects an event of a legal entity that it covers. It calls
// moduleOf only if the filter names modules.
func (f *Filter) Matches(e *event.Recorded, moduleOf func(eventType string) string) bool {
	return matchesAny(f.EventTypes, e.Type) &&
		(len(f.Modules) == 0 || slices.Contains(f.Modules, moduleOf(e.Type))) &&
		matchesAny(f.Divisions, e.Scope.Division) &&
		matchesAny(f.Regions, e.Scope.Region) &&
		matchesAny(f.Sites, e.Scope.Site) &&
		matchesAny(f.StreamTypes, e.Stream.Type) &&
		(len(f.Streams) == 0 || slices.Contains(f.Streams, e.Stream.String())) &&
		(len(f.Tags) == 0 || slices.ContainsFunc(f.Tags, func(t string) bool { return slices.Contains(e.Tags, t) })) &&
		f.matchesCustom(e.Scope.Custom) &&
		(f.Predicate == nil || f.Predicate.Matches(e.Payload))
}

func (f *Filter) matchesCustom(scopes json.RawMessage) bool {
	if len(f.Custom) == 0 {
		return true
	}
	var have map[string]string
	if json.Unmarshal(scopes, &have) != nil { // or the event has none
		return false
	}
	for name, wanted := range f.Custom {
		if !slices.Contains(wanted, have[name]) {
			return false
		}
	}
	return true
}

// SelectsAll reports whether every event of the covered legal entities matches.
func (f *Filter) SelectsAll() bool {
	return f.Predicate == nil && len(f.Custom) == 0 &&
		!slices.ContainsFunc(f.lists(), func(l filterList) bool { return l.items != &f.LegalEntities && len(*l.items) > 0 })
}

// filterList is a list of a filter, with the pointer to it in a request.
type filterList struct {
	field string
	items *[]string
}

func (f *Filter) lists() []filterList {
	return []filterList{
		{"/event_types", &f.EventTypes}, {"/legal_entities", &f.LegalEntities}, {"/modules", &f.Modules}, {"/divisions", &f.Divisions}, {"/regions", &f.Regions},
		{"/sites", &f.Sites}, {"/tags", &f.Tags}, {"/stream_types", &f.StreamTypes}, {"/streams", &f.Streams},
	}
}

// Covers reports whether events of the legal entity may match.
func (f *Filter) Covers(legalEntity string) bool { return matchesAny(f.LegalEntities, legalEntity) }

func matchesAny(wanted []string, have string) bool {
	return len(wanted) == 0 || slices.Contains(wanted, have)
}

// Webhook is the subscriber type of subscriptions that are sent to an endpoint.
const Webhook = "webhook"

// subscriberTypes are the kinds of receivers that a subscription may have.
var subscriberTypes = []string{"agent", "rule", "projection", Webhook, "service"}

const (
	maxFilterItems = 100
	maxFilterText  = 200
	maxScopeNames  = 20
)

var identifier = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$`)

// ValidConsumer reports whether a text can name a consumer; "" is all consumers without a
// name.
func ValidConsumer(name string) bool {
	return name == "" || identifier.MatchString(name) && shredding.PersonalPattern(name) == ""
}

// Check refuses a definition that is not well formed and fills in defaults. Faults:
// subscription.id_invalid, subscription.subscriber_invalid,
// subscription.filter_invalid, subscription.settings_invalid,
// subscription.setting_unsupported, pii.in_identifier, pii.in_text.
func (s *Subscription) Check() error {
	if !identifier.MatchString(s.ID) {
		return fault.New(fault.Invalid, "subscription.id_invalid", "an id has 1 to 100 letters, digits, and _ . : - after the first; choose another").WithField("/id")
	}
	if !slices.Contains(subscriberTypes, s.SubscriberType) {
		return fault.New(fault.Invalid, "subscription.subscriber_invalid", "subscriber_type is one of %s; correct it", strings.Join(subscriberTypes, ", ")).WithField("/subscriber_type")
	}
	if !identifier.MatchString(s.SubscriberID) {
		return fault.New(fault.Invalid, "subscription.subscriber_invalid", "subscriber_id has 1 to 100 letters, digits, and _ . : - after the first; correct it").WithField("/subscriber_id")
	}
	for field, text := range map[string]string{"/id": s.ID, "/subscriber_id": s.SubscriberID} {
		if err := shredding.CheckIdentifier(field, text); err != nil {
			return err
		}
	}
	if err := s.Filter.Check(); err != nil {
		return err
	}
	s.Settings.setDefaults(s.SubscriberType)
	return s.Settings.check()
}

// Check refuses a filter that is not well formed, and sorts its lists, so that filters with the same
// items are equal. Faults: subscription.filter_invalid, pii.in_identifier, pii.in_text.
func (f *Filter) Check() (err error) {
	for _, l := range f.lists() {
		if *l.items, err = checkItems(l.field, *l.items); err != nil {
			return err
		}
	}
	if f.Custom, err = checkScopes(f.Custom); err != nil {
		return err
	}
	for _, s := range f.Streams {
		if _, err := event.ParseStreamID(s); err != nil {
			return filterInvalid("/streams", "a stream is its type, a slash and its id, such as gl.ledger/main; correct the list")
		}
	}
	if f.Predicate != nil {
		return shredding.CheckText("/predicate/value", strings.Trim(string(f.Predicate.Value), `"`))
	}
	return nil
}

// checkScopes checks the names and values of custom scopes.
func checkScopes(scopes map[string][]string) (map[string][]string, error) {
	if scopes == nil {
		return nil, nil
	}
	if len(scopes) == 0 {
		return nil, filterInvalid("/custom", "an empty filter would select nothing; leave it out to select all")
	}
	if len(scopes) > maxScopeNames {
		return nil, filterInvalid("/custom", "a filter names at most 20 custom scopes; make several subscriptions")
	}
	if _, err := checkItems("/custom", slices.Collect(maps.Keys(scopes))); err != nil {
		return nil, err
	}
	out := make(map[string][]string, len(scopes))
	for name, values := range scopes {
		if values == nil {
			values = []string{}
		}
		checked, err := checkItems("/custom/"+jsondoc.EscapeToken(name), values)
		if err != nil {
			return nil, err
		}
		out[name] = checked
	}
	return out, nil
}

// checkItems returns the items of a list in order, each once.
func checkItems(field string, items []string) ([]string, error) {
	if items != nil && len(items) == 0 {
		return nil, filterInvalid(field, "an empty list would select nothing; leave it out to select all")
	}
	if len(items) > maxFilterItems {
		return nil, filterInvalid(field, "a list has at most 100 items; make several subscriptions")
	}
	for _, item := range items {
		if item == "" || len(item) > maxFilterText {
			return nil, filterInvalid(field, "an item has 1 to 200 bytes; correct the list")
		}
		if err := shredding.CheckIdentifier(field, item); err != nil { // the administrative log keeps it for ever
			return nil, err
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(items))), nil
}

func filterInvalid(field, detail string) error {
	return fault.New(fault.Invalid, "subscription.filter_invalid", detail).WithField(field)
}

// Definition is the part of a subscription that is stored and recorded as one document.
type Definition struct {
	Filter   Filter   `json:"filter"`
	Settings Settings `json:"settings"`
	Moved    *Start   `json:"moved,omitempty"` // ResetStart
}

// Definition returns the document of a subscription.
func (s *Subscription) Definition() Definition { return Definition{s.Filter, s.Settings, s.ResetStart} }

// SetDefinition replaces what Definition returns.
func (s *Subscription) SetDefinition(d Definition) {
	s.Filter, s.Settings, s.ResetStart = d.Filter, d.Settings, d.Moved
}

// IsRecorded reports whether a stored subscription is as it was recorded last. Whether its
// breaker has opened is no part of the record.
func (s *Subscription) IsRecorded(r *Subscription) bool {
	stored, _ := json.Marshal(s.Definition()) // texts, numbers and times always encode
	recorded, _ := json.Marshal(r.Definition())
	return s.UID == r.UID && s.TenantID == r.TenantID && s.ID == r.ID && s.Owner == r.Owner && s.SubscriberType == r.SubscriberType && s.SubscriberID == r.SubscriberID &&
		(s.Status == Paused) == (r.Status == Paused) && s.CreatedAt.Equal(r.CreatedAt) && string(stored) == string(recorded)
}

// SameDefinition reports whether two subscriptions were requested with the same content.
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

// Changed is the fault of a caller that lost a race.
func Changed() error {
	return fault.New(fault.Conflict, "subscription.changed", "another request has changed the subscription; read it and try again")
}

// LimitReached is the fault of a tenant that has the allowed number of subscriptions.
func LimitReached(limit int) error {
	return fault.New(fault.FailedPrecondition, "subscription.too_many",
		"the tenant has the %d subscriptions that it may have; delete one that is not needed, or let an operator raise subscriptions.per_tenant", limit)
}

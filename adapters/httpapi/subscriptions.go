package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

var subscriptionHandlers = handlers{
	"createSubscription": withBody((*Server).createSubscription),
	"listSubscriptions":  (*Server).listSubscriptions,
	"getSubscription":    (*Server).getSubscription,
	"changeSubscription": withBody((*Server).changeSubscription),
	"deleteSubscription": (*Server).deleteSubscription,
	"pauseSubscription":  (*Server).pauseSubscription,
	"resumeSubscription": (*Server).resumeSubscription,
	"resetSubscription":  withBody((*Server).resetSubscription),
}

// The actions of subscriptions.
const (
	actionSubscriptionManage  = "subscriptions.manage"  // the caller's own
	actionSubscriptionOperate = "subscriptions.operate" // those of other owners too
	actionSubscriptionConsume = "subscriptions.consume"
)

// Subscriptions serves persistent subscriptions: subscriptions.Service.
type Subscriptions interface {
	Create(ctx context.Context, p ports.Principal, s subscription.Subscription) (made subscription.Subscription, created bool, err error)
	List(ctx context.Context, c subscriptions.Caller) ([]subscription.Subscription, error)
	Get(ctx context.Context, c subscriptions.Caller, id string) (subscriptions.Status, error)
	Change(ctx context.Context, c subscriptions.Caller, id string, s subscription.Settings) (subscription.Subscription, error)
	Pause(ctx context.Context, c subscriptions.Caller, id string) (subscription.Subscription, error)
	Resume(ctx context.Context, c subscriptions.Caller, id string) (subscription.Subscription, error)
	Reset(ctx context.Context, c subscriptions.Caller, id string, to subscription.Start) (subscription.Subscription, error)
	Delete(ctx context.Context, c subscriptions.Caller, id string) error
	Poll(ctx context.Context, p ports.Principal, q subscriptions.Poll) (subscriptions.Batch, error)
	Requeue(ctx context.Context, p ports.Principal, id string, list []subscriptions.Delivery) error
	Acknowledge(ctx context.Context, p ports.Principal, a subscriptions.Acknowledgement) (subscriptions.AnswerResult, error)
	Refuse(ctx context.Context, p ports.Principal, r subscriptions.Refusal) (subscriptions.AnswerResult, error)
	DeadLetters(ctx context.Context, c subscriptions.Caller, id string, q subscriptions.DeadLetterQuery) (subscriptions.DeadLetterPage, error)
	DeadLetterGroups(ctx context.Context, c subscriptions.Caller, id string) ([]ports.ParkedGroup, error)
	DeadLetter(ctx context.Context, c subscriptions.Caller, id string, eventID event.ID) (subscriptions.DeadLetter, error)
	Decisions(ctx context.Context, c subscriptions.Caller, id string, limit int) ([]ports.ParkedDecision, map[event.PartitionID]string, error)
	Replay(ctx context.Context, c subscriptions.Caller, id string, q subscriptions.DeadLetterQuery, reason string) (subscriptions.DeadLetterResult, error)
	Discard(ctx context.Context, c subscriptions.Caller, id string, q subscriptions.DeadLetterQuery, reason string) (subscriptions.DeadLetterResult, error)
	// Close makes waiting polls return without messages.
	Close()
}

// subscriptions returns the service, and the caller with the rights that it checks.
func (s *Server) subscriptions(ctx context.Context) (Subscriptions, subscriptions.Caller, error) {
	if s.config.Subscriptions == nil {
		return nil, subscriptions.Caller{}, fault.New(fault.FailedPrecondition, "subscription.not_served", "this server keeps no subscriptions; ask another one")
	}
	p := callOf(ctx).principal
	err := s.config.Access.Authorize(ctx, p, tenancy.Action{Name: actionSubscriptionOperate})
	if err != nil && fault.KindOf(err) != fault.Forbidden {
		return nil, subscriptions.Caller{}, err
	}
	return s.config.Subscriptions, subscriptions.Caller{Principal: p, Operator: err == nil}, nil
}

// createSubscription answers POST /api/subscriptions.
func (s *Server) createSubscription(ctx context.Context, _ request, body *api.NewSubscription) (response, error) {
	b := body
	sub := subscription.Subscription{
		ID: b.ID, SubscriberType: b.SubscriberType, SubscriberID: b.SubscriberID,
		Filter: subscription.Filter{
			EventTypes: b.EventTypes, LegalEntities: b.LegalEntities, Modules: b.Modules, Divisions: b.Divisions, Tags: b.Tags, StreamTypes: b.StreamTypes,
		},
	}
	var err error
	if b.Predicate != (api.SubscriptionPredicate{}) {
		if sub.Filter.Predicate, err = event.ParsePredicate(b.Predicate.Path, b.Predicate.Operator, b.Predicate.Value); err != nil {
			return nil, prefixField(err, "/predicate/")
		}
	}
	if sub.Settings, err = subscriptionSettings(&b.Settings); err != nil {
		return nil, err
	}
	if err := checkStart(&sub.Settings.Start); err != nil {
		return nil, err
	}
	warnings, err := s.checkSubscribed(ctx, &sub)
	if err != nil {
		return nil, err
	}
	service, _, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	made, created, err := service.Create(ctx, callOf(ctx).principal, sub)
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	out := subscriptionAnswer(&made)
	out.Warnings = warnings
	a, err := reply(status, out)
	a.replayed = !created
	return a, err
}

func prefixField(err error, prefix string) error {
	if f, ok := fault.As(err); ok && f.Field != "" {
		return f.WithField(prefix + f.Field)
	}
	return err
}

// checkSubscribed refuses event types that are not registered, modules that own none,
// and conditions or orders over personal fields, whose sealed values cannot be compared.
// It warns of an order by a field that no event type declares.
func (s *Server) checkSubscribed(ctx context.Context, sub *subscription.Subscription) (warnings []api.SubscriptionWarning, err error) {
	f := &sub.Filter
	if len(f.EventTypes) == 0 && len(f.Modules) == 0 && f.Predicate == nil && sub.Settings.KeyPath() == "" {
		return nil, nil
	}
	registered, err := s.config.Types.List(ctx)
	if err != nil {
		return nil, err
	}
	var key *event.Predicate
	if path := sub.Settings.KeyPath(); path != "" {
		if key, err = event.ParsePredicate(path, string(event.Exists), ""); err != nil {
			return nil, prefixField(err, "/settings/partition_by/")
		}
	}
	types, modules := map[string]bool{}, map[string]bool{}
	declared := key == nil
	for i := range registered {
		t := &registered[i]
		owner := s.config.Catalog.Owner(t.Type)
		if owner == "" {
			owner = t.Module
		}
		types[t.Type], modules[owner] = true, true
		if len(f.EventTypes) > 0 && !slices.Contains(f.EventTypes, t.Type) || len(f.Modules) > 0 && !slices.Contains(f.Modules, owner) {
			continue
		}
		declared = declared || t.Declares(slices.DeleteFunc(slices.Clone(key.Path), func(step string) bool { return step == event.EachElement }))
		for _, p := range t.PIIFields {
			if f.Predicate != nil && f.Predicate.Within(p.Path) {
				return nil, fault.New(fault.Invalid, "query.predicate_personal",
					"this field is personal in events of type %s, whose values are sealed and cannot be compared; choose another field, or name event_types in which it is not personal", t.Type).WithField("/predicate/path")
			}
			if key != nil && key.Within(p.Path) {
				return nil, fault.New(fault.Invalid, "subscription.key_personal",
					"this field is personal in events of type %s, whose values are sealed, so no order follows from it; choose another field, or name event_types in which it is not personal", t.Type).WithField("/settings/partition_by")
			}
		}
	}
	if slices.ContainsFunc(f.EventTypes, func(t string) bool { return !types[t] }) {
		return nil, unknownType("/event_types")
	}
	if slices.ContainsFunc(f.Modules, func(m string) bool { return !modules[m] }) {
		return nil, unknownModule("/modules")
	}
	if !declared {
		warnings = []api.SubscriptionWarning{{
			Code: "subscription.key_undeclared", Field: "/settings/partition_by",
			Detail: "no event type that is selected declares this field; events without it stand in the order of their stream. Correct the path unless the field is still to come",
		}}
	}
	return warnings, nil
}

// subscriptionSettings reads settings; what is left out has its default.
func subscriptionSettings(b *api.SubscriptionSettings) (subscription.Settings, error) {
	if b.ResolveLinks {
		return subscription.Settings{}, fault.New(fault.Invalid, "subscription.setting_unsupported",
			"there are no links between streams to resolve; leave resolve_links out, and use entity references and tags").WithField("/settings/resolve_links")
	}
	start, err := subscriptionStart(b.StartFrom, b.StartPositions, b.StartTime, b.StartCursor, "/settings/start_")
	if err != nil {
		return subscription.Settings{}, err
	}
	out := subscription.Settings{
		Start: start, ConsumerStrategy: subscription.Strategy(b.ConsumerStrategy), PartitionBy: b.PartitionBy,
		MessageTimeout: milliseconds(b.MessageTimeoutMs), RetryFirst: milliseconds(b.RetryFirstMs), RetryLongest: milliseconds(b.RetryLongestMs),
		CheckpointAfter: b.CheckpointAfter, MaxInFlight: b.MaxCheckpointCount,
	}
	out.MaxRetries = parseLimit(b.MaxRetryCount, subscription.NoRetries)
	out.BreakerAfter = parseLimit(b.BreakerAfter, subscription.NoBreaker)
	return out, nil
}

// parseLimit reads a limit of which 0 means none; an absent one is 0, the default. A
// negative number is moved past none, so that it is refused and not taken for none.
func parseLimit(n *int, none int) int {
	switch {
	case n == nil:
		return 0
	case *n == 0:
		return none
	case *n < 0:
		return none - 1
	default:
		return *n
	}
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// subscriptionStart reads a position. The prefix is that of the fields.
func subscriptionStart(from string, positions map[string]string, at, cursor, prefix string) (subscription.Start, error) {
	out := subscription.Start{From: subscription.Origin(from), Cursor: cursor}
	for code, text := range positions {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil || n == 0 {
			return out, fault.New(fault.Invalid, "subscription.position_invalid", "a position is a sequence such as \"42\" by legal entity; the first is 1").WithField(prefix + "positions")
		}
		if out.Positions == nil {
			out.Positions = map[string]event.Sequence{}
		}
		out.Positions[code] = event.Sequence(n)
	}
	if at != "" {
		t, ok := parseMoment(at, false)
		if !ok {
			return out, fault.New(fault.Invalid, "subscription.position_invalid", "this is a date such as 2026-03-31 or an RFC 3339 time; correct it").WithField(prefix + "time")
		}
		out.Time = t
	}
	return out, nil
}

// checkStart refuses a position that start_from does not use: without start_from the
// subscription would deliver the whole log.
func checkStart(s *subscription.Start) error {
	switch {
	case len(s.Positions) > 0 && s.From != subscription.Position:
		return fault.New(fault.Invalid, "subscription.settings_invalid", "positions go with start_from position; set it, or leave the positions out").WithField("/settings/start_positions")
	case !s.Time.IsZero() && s.From != subscription.AtTime:
		return fault.New(fault.Invalid, "subscription.settings_invalid", "a time goes with start_from time; set it, or leave the time out").WithField("/settings/start_time")
	}
	return nil
}

// listSubscriptions answers GET /api/subscriptions.
func (s *Server) listSubscriptions(ctx context.Context, _ request) (response, error) {
	service, caller, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	all, err := service.List(ctx, caller)
	if err != nil {
		return nil, err
	}
	out := api.SubscriptionList{Subscriptions: make([]api.Subscription, len(all))}
	for i := range all {
		out.Subscriptions[i] = subscriptionAnswer(&all[i])
	}
	return reply(http.StatusOK, out)
}

// getSubscription answers GET /api/subscriptions/{id}.
func (s *Server) getSubscription(ctx context.Context, r request) (response, error) {
	service, caller, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	found, err := service.Get(ctx, caller, r.path("id"))
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, subscriptionStatusAnswer(&found))
}

// changeSubscription answers PUT /api/subscriptions/{id}/settings.
func (s *Server) changeSubscription(ctx context.Context, r request, body *api.SubscriptionSettings) (response, error) {
	settings, err := subscriptionSettings(body)
	if err != nil {
		return nil, err
	}
	if settings.Start.From != "" || settings.Start.Positions != nil || !settings.Start.Time.IsZero() || settings.Start.Cursor != "" {
		return nil, fault.New(fault.Invalid, "subscription.settings_invalid", "where a subscription began does not change; POST .../reset moves it").WithField("/start_from")
	}
	service, caller, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	var warnings []api.SubscriptionWarning
	if settings.KeyPath() != "" {
		existing, err := service.Get(ctx, caller, r.path("id"))
		if err != nil {
			return nil, err
		}
		existing.Settings = settings
		if warnings, err = s.checkSubscribed(ctx, &existing.Subscription); err != nil {
			return nil, err
		}
	}
	changed, err := service.Change(ctx, caller, r.path("id"), settings)
	if err != nil {
		return nil, err
	}
	out := subscriptionAnswer(&changed)
	out.Warnings = warnings
	return reply(http.StatusOK, out)
}

// deleteSubscription answers DELETE /api/subscriptions/{id}.
func (s *Server) deleteSubscription(ctx context.Context, r request) (response, error) {
	service, caller, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	if err := service.Delete(ctx, caller, r.path("id")); err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.SubscriptionDeleted{ID: r.path("id"), Deleted: true})
}

// pauseSubscription answers POST /api/subscriptions/{id}/pause.
func (s *Server) pauseSubscription(ctx context.Context, r request) (response, error) {
	service, caller, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	return changedSubscription(service.Pause(ctx, caller, r.path("id")))
}

// resumeSubscription answers POST /api/subscriptions/{id}/resume.
func (s *Server) resumeSubscription(ctx context.Context, r request) (response, error) {
	service, caller, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	return changedSubscription(service.Resume(ctx, caller, r.path("id")))
}

// resetSubscription answers POST /api/subscriptions/{id}/reset.
func (s *Server) resetSubscription(ctx context.Context, r request, body *api.ResetSubscription) (response, error) {
	to, err := subscriptionStart(body.To, body.Positions, body.Time, body.Cursor, "/")
	if err != nil {
		return nil, err
	}
	known := slices.Contains([]subscription.Origin{subscription.Beginning, subscription.End, subscription.Position, subscription.AtTime, subscription.AtCursor}, to.From)
	if !known || len(to.Positions) > 0 != (to.From == subscription.Position) || to.Time.IsZero() == (to.From == subscription.AtTime) || (to.Cursor != "") != (to.From == subscription.AtCursor) {
		return nil, fault.New(fault.Invalid, "subscription.position_invalid", "to is beginning, end, position with positions, time with a time, or cursor with a cursor, and nothing else; correct it").WithField("/to")
	}
	service, caller, err := s.subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	return changedSubscription(service.Reset(ctx, caller, r.path("id"), to))
}

func changedSubscription(sub subscription.Subscription, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	return reply(http.StatusOK, subscriptionAnswer(&sub))
}

package httpapi

import (
	"context"
	"slices"
	"strconv"
	"strings"
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
	"listSubscriptions":  withCaller((*Server).listSubscriptions),
	"getSubscription":    withCaller((*Server).getSubscription),
	"changeSubscription": withBody((*Server).changeSubscription),
	"deleteSubscription": withCaller((*Server).deleteSubscription),
	"pauseSubscription":  withCaller((*Server).pauseSubscription),
	"resumeSubscription": withCaller((*Server).resumeSubscription),
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

// subscriptionCaller returns the caller with the rights that the service checks. It fails
// if a parameter of the request is malformed.
func (s *Server) subscriptionCaller(ctx context.Context, r *request) (subscriptions.Caller, error) {
	c := subscriptions.Caller{Principal: callOf(ctx).principal}
	if r.err != nil {
		return c, r.err
	}
	var err error
	c.Operator, err = s.operatesSubscriptions(ctx)
	return c, err
}

// withCaller makes a handler of one that takes the caller with its rights.
func withCaller(handle func(s *Server, ctx context.Context, r *request, caller subscriptions.Caller) (any, error)) handler {
	return func(s *Server, ctx context.Context, r *request) (any, error) {
		caller, err := s.subscriptionCaller(ctx, r)
		if err != nil {
			return nil, err
		}
		return handle(s, ctx, r, caller)
	}
}

// operatesSubscriptions reports whether the caller may operate subscriptions of other
// owners.
func (s *Server) operatesSubscriptions(ctx context.Context) (bool, error) {
	err := s.config.Access.Authorize(ctx, callOf(ctx).principal, tenancy.Action{Name: actionSubscriptionOperate})
	if err != nil && fault.KindOf(err) == fault.Forbidden {
		return false, nil
	}
	return err == nil, err
}

// createSubscription answers POST /api/subscriptions.
func (s *Server) createSubscription(ctx context.Context, _ *request, body *api.NewSubscription) (any, error) {
	sub := subscription.Subscription{
		ID: body.ID, SubscriberType: body.SubscriberType, SubscriberID: body.SubscriberID,
		Filter: subscription.Filter{
			EventTypes: body.EventTypes, LegalEntities: body.LegalEntities, Modules: body.Modules, Divisions: body.Divisions, Regions: body.Regions, Sites: body.Sites,
			Custom: body.Custom, Tags: body.Tags, StreamTypes: body.StreamTypes, Streams: body.Streams,
		},
	}
	var err error
	if p := body.Predicate; p != (api.SubscriptionPredicate{}) {
		if sub.Filter.Predicate, err = event.ParsePredicate(p.Path, p.Operator, p.Value); err != nil {
			return nil, prefixField(err, "/predicate/")
		}
	}
	if sub.Settings, err = parseSubscriptionSettings(&body.Settings); err != nil {
		return nil, err
	}
	if err := checkStart(&sub.Settings.Start); err != nil {
		return nil, err
	}
	warnings, err := s.checkSubscribed(ctx, &sub)
	if err != nil {
		return nil, err
	}
	made, created, err := s.config.Subscriptions.Create(ctx, callOf(ctx).principal, sub)
	if err != nil {
		return nil, err
	}
	out := subscriptionAnswer(made)
	out.Warnings = warnings
	return replyReplayed(createdStatus(created), out, !created)
}

func prefixField(err error, prefix string) error {
	if f, ok := fault.As(err); ok && f.Field != "" {
		return f.WithField(prefix + f.Field)
	}
	return err
}

// checkSubscribed refuses event types that the caller does not see or that are not registered,
// modules that own none, and conditions or orders over personal fields, whose sealed values cannot
// be compared.
// It warns of an order by a field that no event type declares.
func (s *Server) checkSubscribed(ctx context.Context, sub *subscription.Subscription) (warnings []api.SubscriptionWarning, err error) {
	f := &sub.Filter
	if len(f.EventTypes) == 0 && len(f.Modules) == 0 && f.Predicate == nil && sub.Settings.KeyPath() == "" {
		return nil, nil
	}
	registered, err := s.seenTypes(ctx)
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
		types[t.Type], modules[t.Module] = true, true
		if len(f.EventTypes) > 0 && !slices.Contains(f.EventTypes, t.Type) || len(f.Modules) > 0 && !slices.Contains(f.Modules, t.Module) {
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

// parseSubscriptionSettings reads settings. The service replaces absent ones by defaults.
func parseSubscriptionSettings(b *api.SubscriptionSettings) (subscription.Settings, error) {
	if b.ResolveLinks {
		return subscription.Settings{}, fault.New(fault.Invalid, "subscription.setting_unsupported",
			"there are no links between streams to resolve; leave resolve_links out, and use entity references and tags").WithField("/settings/resolve_links")
	}
	start, err := parseSubscriptionStart(b.StartFrom, b.StartPositions, b.StartTime, b.StartCursor, "/settings/start_")
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

// parseLimit converts a limit. For callers 0 means no limit; for the service 0 means the
// default, and the negative number none means no limit. A negative number of a caller becomes
// less than none, so that the service refuses it.
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

// parseSubscriptionStart reads where a subscription begins. Faults name fields with the prefix.
func parseSubscriptionStart(from string, positions map[string]string, at, cursor, prefix string) (subscription.Start, error) {
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
func (s *Server) listSubscriptions(ctx context.Context, _ *request, caller subscriptions.Caller) (any, error) {
	all, err := s.config.Subscriptions.List(ctx, caller)
	return api.SubscriptionList{Subscriptions: convert(all, subscriptionAnswer)}, err
}

// getSubscription answers GET /api/subscriptions/{id}.
func (s *Server) getSubscription(ctx context.Context, r *request, caller subscriptions.Caller) (any, error) {
	found, err := s.config.Subscriptions.Get(ctx, caller, r.path("id"))
	return subscriptionStatusAnswer(found), err
}

// changeSubscription answers PUT /api/subscriptions/{id}/settings.
func (s *Server) changeSubscription(ctx context.Context, r *request, body *api.SubscriptionSettings) (any, error) {
	settings, err := parseSubscriptionSettings(body)
	if err != nil {
		return nil, err
	}
	if settings.Start.From != "" || settings.Start.Positions != nil || !settings.Start.Time.IsZero() || settings.Start.Cursor != "" {
		return nil, fault.New(fault.Invalid, "subscription.settings_invalid", "where a subscription began does not change; POST .../reset moves it").WithField("/start_from")
	}
	caller, err := s.subscriptionCaller(ctx, r)
	if err != nil {
		return nil, err
	}
	var warnings []api.SubscriptionWarning
	if settings.KeyPath() != "" {
		existing, err := s.config.Subscriptions.Get(ctx, caller, r.path("id"))
		if err != nil {
			return nil, err
		}
		existing.Settings = settings
		if warnings, err = s.checkSubscribed(ctx, &existing.Subscription); err != nil {
			return nil, err
		}
	}
	changed, err := s.config.Subscriptions.Change(ctx, caller, r.path("id"), settings)
	out := subscriptionAnswer(changed)
	out.Warnings = warnings
	return out, err
}

// deleteSubscription answers DELETE /api/subscriptions/{id}.
func (s *Server) deleteSubscription(ctx context.Context, r *request, caller subscriptions.Caller) (any, error) {
	err := s.config.Subscriptions.Delete(ctx, caller, r.path("id"))
	return api.SubscriptionDeleted{ID: r.path("id"), Deleted: true}, err
}

// pauseSubscription answers POST /api/subscriptions/{id}/pause.
func (s *Server) pauseSubscription(ctx context.Context, r *request, caller subscriptions.Caller) (any, error) {
	sub, err := s.config.Subscriptions.Pause(ctx, caller, r.path("id"))
	return subscriptionAnswer(sub), err
}

// resumeSubscription answers POST /api/subscriptions/{id}/resume.
func (s *Server) resumeSubscription(ctx context.Context, r *request, caller subscriptions.Caller) (any, error) {
	sub, err := s.config.Subscriptions.Resume(ctx, caller, r.path("id"))
	return subscriptionAnswer(sub), err
}

// resetSubscription answers POST /api/subscriptions/{id}/reset.
func (s *Server) resetSubscription(ctx context.Context, r *request, body *api.ResetSubscription) (any, error) {
	to, err := parseSubscriptionStart(body.To, body.Positions, body.Time, body.Cursor, "/")
	if err != nil {
		return nil, err
	}
	known := slices.Contains([]subscription.Origin{subscription.Beginning, subscription.End, subscription.Position, subscription.AtTime, subscription.AtCursor}, to.From)
	if !known || len(to.Positions) > 0 != (to.From == subscription.Position) || to.Time.IsZero() == (to.From == subscription.AtTime) || (to.Cursor != "") != (to.From == subscription.AtCursor) {
		return nil, fault.New(fault.Invalid, "subscription.position_invalid", "to is beginning, end, position with positions, time with a time, or cursor with a cursor, and nothing else; correct it").WithField("/to")
	}
	caller, err := s.subscriptionCaller(ctx, r)
	if err != nil {
		return nil, err
	}
	sub, err := s.config.Subscriptions.Reset(ctx, caller, r.path("id"), to)
	return subscriptionAnswer(sub), err
}

// subscriptionAnswer is a definition with its state.
func subscriptionAnswer(s subscription.Subscription) api.Subscription {
	out := api.Subscription{
		ID: s.ID, SubscriberType: s.SubscriberType, SubscriberID: s.SubscriberID, Owner: s.Owner, Status: string(s.Status),
		EventTypes: s.Filter.EventTypes, LegalEntities: s.Filter.LegalEntities, Modules: s.Filter.Modules, Divisions: s.Filter.Divisions,
		Regions: s.Filter.Regions, Sites: s.Filter.Sites, Custom: s.Filter.Custom, Tags: s.Filter.Tags, StreamTypes: s.Filter.StreamTypes, Streams: s.Filter.Streams,
		Settings: settingsAnswer(&s.Settings), CreatedAt: timeText(s.CreatedAt), UpdatedAt: timeText(s.UpdatedAt),
		FailuresInARow: s.Failures, LastFailureCode: s.LastFailure.Code, LastFailureAt: optionalTime(s.LastFailure.At),
	}
	if p := s.Filter.Predicate; p != nil {
		out.Predicate = api.SubscriptionPredicate{Path: pathText(p.Path), Operator: string(p.Operator), Value: string(p.Value)}
	}
	return out
}

// pathText writes a predicate's path as it is read.
func pathText(steps []string) string {
	return "$" + strings.ReplaceAll("."+strings.Join(steps, "."), "."+event.EachElement, event.EachElement)
}

func settingsAnswer(s *subscription.Settings) api.SubscriptionSettings {
	retries, breaker := max(s.MaxRetries, 0), max(s.BreakerAfter, 0)
	out := api.SubscriptionSettings{
		StartFrom: string(s.Start.From), StartTime: optionalTime(s.Start.Time), StartCursor: s.Start.Cursor, MessageTimeoutMs: int(s.MessageTimeout.Milliseconds()),
		MaxRetryCount: &retries, BreakerAfter: &breaker, CheckpointAfter: s.CheckpointAfter, MaxCheckpointCount: s.MaxInFlight,
		ConsumerStrategy: string(s.ConsumerStrategy), PartitionBy: s.PartitionBy,
		RetryFirstMs: int(s.RetryFirst.Milliseconds()), RetryLongestMs: int(s.RetryLongest.Milliseconds()),
	}
	for code, n := range s.Start.Positions {
		if out.StartPositions == nil {
			out.StartPositions = map[string]string{}
		}
		out.StartPositions[code] = numberText(n)
	}
	return out
}

func subscriptionStatusAnswer(s subscriptions.Status) api.SubscriptionStatus {
	c := &s.Counts
	return api.SubscriptionStatus{
		Subscription: subscriptionAnswer(s.Subscription), LagEvents: int(s.LagEvents), LagSeconds: float32(s.LagAge.Seconds()),
		InFlight: s.InFlight, Waiting: s.Waiting, Parked: s.Parked,
		Statistics: api.SubscriptionStatistics{
			Delivered: int(c.Delivered), Acknowledged: int(c.Acknowledged), Retried: int(c.Retried), TimedOut: int(c.TimedOut),
			Parked: int(c.Parked), Skipped: int(c.Skipped), Discarded: int(c.Discarded), Replayed: int(c.Replayed),
		},
		Cursors: convert(s.Progress, func(p subscriptions.Progress) api.SubscriptionCursor {
			return api.SubscriptionCursor{
				LegalEntity: p.LegalEntity, ReadThrough: numberText(p.ReadThrough), Checkpoint: numberText(p.Checkpoint), Head: numberText(p.Head),
				LagEvents: int(p.LagEvents), LagSeconds: float32(p.LagAge.Seconds()), InFlight: p.InFlight, Waiting: p.Waiting, Parked: p.Parked,
				UpdatedAt: timeText(p.UpdatedAt),
			}
		}),
	}
}

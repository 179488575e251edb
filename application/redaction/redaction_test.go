package redaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/redaction"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

var (
	start  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	entity = ports.LegalEntity{Partition: 7, TenantID: "acme", Code: "A", TimeZone: "UTC"}
)

const (
	stored   = `{"data":{"name" : "Ada","phone":"1","email":{"$pii":"AQ","sub":"employee:E-1"},"done":"[REDACTED]"},"dimensions":{}}`
	expected = `{"data":{"name" : "[REDACTED]","phone":"[REDACTED]","email":{"$pii":"AQ","sub":"employee:E-1"},"done":"[REDACTED]"},"dimensions":{}}`
)

// redactionFixture is a log of one event, with its requests and redactions.
type redactionFixture struct {
	event      event.Recorded
	requests   []ports.RedactionRequest
	done       []ports.Redaction
	announced  map[string]redaction.Announcement // by stream
	redacted   int                               // calls of RedactPayload that changed the event
	appends    int
	failAppend error
}

func newRedactionFixture() (*redactionFixture, *redaction.Service) {
	ids := system.NewIDs()
	a := &redactionFixture{announced: map[string]redaction.Announcement{}}
	a.event = event.Recorded{Skeleton: event.Skeleton{Partition: 7, Sequence: 4, ID: ids.NewID(start)}, Salt: ids.NewSalt(), Payload: []byte(stored)}
	a.event.PayloadHash = event.HashPayload(a.event.Salt, a.event.Payload)
	return a, redaction.New(redaction.Config{Redactions: a, Events: a, Announcer: a, Clock: testkit.NewClock(start), IDs: ids})
}

func (a *redactionFixture) EventByID(_ context.Context, _ event.PartitionID, id event.ID) (event.Recorded, error) {
	if id != a.event.ID {
		return event.Recorded{}, fault.New(fault.NotFound, "event.not_found", "no")
	}
	return a.event, nil
}

func (a *redactionFixture) Events(_ context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	if q.After < a.event.Sequence && a.event.Sequence <= q.Until {
		return []event.Recorded{a.event}, nil
	}
	return []event.Recorded{}, nil
}

func (a *redactionFixture) EventsOfStream(_ context.Context, _ event.PartitionID, s event.StreamID, _ event.Version, _ int) ([]event.Recorded, error) {
	if _, ok := a.announced[s.String()]; ok {
		return make([]event.Recorded, 1), nil
	}
	return nil, nil
}

func (a *redactionFixture) Announce(_ context.Context, x redaction.Announcement) error {
	a.appends++
	if a.failAppend != nil {
		return a.failAppend
	}
	a.announced[x.Draft.Stream.String()] = x
	return nil
}

func (a *redactionFixture) RequestRedaction(_ context.Context, r ports.RedactionRequest) (ports.RedactionRequest, error) {
	r.RequestedAt = start
	a.requests = append(a.requests, r)
	return r, nil
}

func (a *redactionFixture) ApproveRedaction(_ context.Context, _ event.PartitionID, id event.ID, person string) (ports.RedactionRequest, error) {
	for i := range a.requests {
		if a.requests[i].ID == id {
			a.requests[i].ApprovedBy, a.requests[i].ApprovedAt = person, start
			return a.requests[i], nil
		}
	}
	return ports.RedactionRequest{}, errors.New("unknown")
}

func (a *redactionFixture) RedactionRequests(context.Context, event.PartitionID) ([]ports.RedactionRequest, error) {
	return a.requests, nil
}

func (a *redactionFixture) Redactions(context.Context, event.PartitionID) ([]ports.Redaction, error) {
	return a.done, nil
}

func (a *redactionFixture) RedactPayload(_ context.Context, r ports.RedactionRequest, to ports.RedactedPayload) (ports.Redaction, error) {
	if r.ApprovedBy == "" {
		return ports.Redaction{}, fault.New(fault.FailedPrecondition, "redaction.not_approved", "no")
	}
	a.redacted++
	a.event.Salt, a.event.Payload = to.Salt, to.Payload
	x := ports.Redaction{
		ID: r.ID, Partition: r.Partition, Sequence: r.Sequence, EventID: a.event.ID, Pointers: r.Pointers, Reason: r.Reason,
		RequestedBy: r.RequestedBy, ApprovedBy: r.ApprovedBy, OldPayloadHash: to.OldHash, NewPayloadHash: to.NewHash, RedactedAt: start,
	}
	a.done = append(a.done, x)
	return x, nil
}

func TestRun_RedactsApprovedRequest(t *testing.T) {
	t.Parallel()
	a, s := newRedactionFixture()
	ctx := t.Context()
	old := a.event
	r, err := s.Request(ctx, entity, a.event.ID, []string{"/data/name", "/data/phone"}, "migrated in clear", "p-1")
	require.NoError(t, err)
	require.EqualValues(t, 4, r.Sequence)
	_, err = s.Run(ctx, entity, r.ID)
	require.Equal(t, "redaction.not_approved", fault.CodeOf(err))
	require.Zero(t, a.appends)
	_, err = s.Approve(ctx, entity, r.ID, "p-2")
	require.NoError(t, err)
	x, err := s.Run(ctx, entity, r.ID)
	require.NoError(t, err)
	require.Equal(t, expected, string(a.event.Payload), "every other byte is unchanged")
	require.NotEqual(t, old.Salt, a.event.Salt)
	require.Equal(t, old.PayloadHash, x.OldPayloadHash)
	require.Equal(t, event.HashPayload(a.event.Salt, a.event.Payload), x.NewPayloadHash)

	announcement := a.announced["pii.redaction/"+r.ID.String()]
	require.Equal(t, "pii.payload.redacted", announcement.Draft.Type)
	require.Equal(t, "redaction:"+r.ID.String(), announcement.IdempotencyKey)
	require.Equal(t, concurrency.NoStream(), announcement.Stream.Expected)
	require.Equal(t, a.event.ID, announcement.Draft.CausedBy)
	var data map[string]any
	require.NoError(t, json.Unmarshal(announcement.Draft.Data.(json.RawMessage), &data))
	for name, want := range map[string]any{
		"redaction_id": r.ID.String(), "event_id": a.event.ID.String(), "sequence": 4.0, "pointers": []any{"/data/name", "/data/phone"}, "reason": "migrated in clear",
		"requested_by": "p-1", "approved_by": "p-2",
	} {
		require.Equal(t, want, data[name], name)
	}
	require.Len(t, data["old_payload_hash"], 64)
	require.Len(t, data["new_payload_hash"], 64)
	require.Len(t, data, 9)

	_, err = s.Run(ctx, entity, r.ID)
	require.NoError(t, err)
	require.Equal(t, 1, a.redacted, "once")
	require.Equal(t, 1, a.appends, "once")
	_, err = s.Run(ctx, entity, a.event.ID)
	require.Equal(t, "redaction.not_found", fault.CodeOf(err))
}

// TestRun_CrashBeforeEvent: Run and Repair append the event that a crash kept from the log.
func TestRun_CrashBeforeEvent(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*redaction.Service, event.ID) error{
		"run": func(s *redaction.Service, id event.ID) error { _, err := s.Run(t.Context(), entity, id); return err },
		"repair": func(s *redaction.Service, _ event.ID) error {
			n, err := s.Repair(t.Context(), entity)
			require.Equal(t, 1, n)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, s := newRedactionFixture()
			r, err := s.Request(t.Context(), entity, a.event.ID, []string{"/data/name"}, "x", "p-1")
			require.NoError(t, err)
			_, err = s.Approve(t.Context(), entity, r.ID, "p-2")
			require.NoError(t, err)
			a.failAppend = errors.New("crash")
			_, err = s.Run(t.Context(), entity, r.ID)
			require.ErrorIs(t, err, a.failAppend)
			states, err := s.List(t.Context(), entity)
			require.NoError(t, err)
			require.NotNil(t, states[0].Redaction)
			require.False(t, states[0].Announced)

			a.failAppend = nil
			require.NoError(t, again(s, r.ID))
			require.Equal(t, 1, a.redacted)
			require.Len(t, a.announced, 1)
			states, err = s.List(t.Context(), entity)
			require.NoError(t, err)
			require.True(t, states[0].Announced)
			n, err := s.Repair(t.Context(), entity)
			require.NoError(t, err)
			require.Zero(t, n)

			// Another process has appended the event: the stream exists.
			a.announced = map[string]redaction.Announcement{}
			a.failAppend = fault.New(fault.Conflict, "append.wrong_expected_version", "x")
			_, err = s.Run(t.Context(), entity, r.ID)
			require.NoError(t, err)
		})
	}
}

func TestRequest_Refusals(t *testing.T) {
	t.Parallel()
	a, s := newRedactionFixture()
	for code, pointers := range map[string][]string{
		"redaction.pointer_invalid": {"/data/nothing"}, "redaction.sealed": {"/data/email"}, "redaction.repeated": {"/data/done"},
	} {
		_, err := s.Request(t.Context(), entity, a.event.ID, pointers, "x", "p-1")
		require.Equal(t, code, fault.CodeOf(err))
		require.NotContains(t, err.Error(), "Ada")
	}
	_, err := s.Request(t.Context(), entity, a.event.ID, []string{"/data/name", "/data/name"}, "x", "p-1")
	require.Equal(t, "redaction.repeated", fault.CodeOf(err))
	_, err = s.Request(t.Context(), entity, a.event.ID, []string{"/data/name"}, "ada@example.org", "p-1")
	require.Equal(t, "redaction.invalid", fault.CodeOf(err))
	// Pointers are kept for ever, in the redaction and in the event.
	a.event.Payload = []byte(`{"data":{"mails":{"ada@example.org":{"ok":true},"+49~130 901820":1}}}`)
	for _, p := range []string{"/data/mails/ada@example.org/ok", "/data/mails/ada@example.org"} {
		_, err = s.Request(t.Context(), entity, a.event.ID, []string{p}, "x", "p-1")
		require.Equal(t, "redaction.pointer_personal", fault.CodeOf(err), p)
		require.NotContains(t, err.Error(), "ada")
	}
	_, err = s.Request(t.Context(), entity, a.event.ID, []string{"/data/mails/+49~0130 901820"}, "x", "p-1")
	require.NoError(t, err, "not a phone number")
	a.requests = nil
	_, err = s.Request(t.Context(), entity, a.event.ID, []string{"/data/mails"}, "x", "p-1")
	require.NoError(t, err)
	a.requests = nil
	_, err = s.Request(t.Context(), entity, event.ID{}, []string{"/data/name"}, "x", "p-1")
	require.Equal(t, "event.not_found", fault.CodeOf(err))
	require.Empty(t, a.requests)
}

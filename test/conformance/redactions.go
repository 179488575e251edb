package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// The payload of the event of a RedactionStore, and the same with "[REDACTED]" at RedactedPointers.
const (
	PlainPayload    = `{"data":{"name" : "Ada","amount":1.50,"lines":[{"note":"call Ada"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"},"parts":[{"prices":[-2]}]},"dimensions":{},"entity_refs":[]}`
	RedactedPayload = `{"data":{"name" : "[REDACTED]","amount":1.50,"lines":[{"note":"[REDACTED]"},{"note":"x"}],"email":{"$pii":"AQ","sub":"employee:E-1"},"parts":[{"prices":[-2]}]},"dimensions":{},"entity_refs":[]}`
)

// RedactedPointers lead to the values that RedactedPayload lacks.
func RedactedPointers() []string { return []string{"/data/name", "/data/lines/0/note"} }

// RedactionStore is a store of requests beside a log that holds one event with PlainPayload.
type RedactionStore struct {
	Redactions ports.Redactions
	Events     ports.EventReader
	Snapshots  SnapshotStore
	Intents    ports.IntentReader
	ReadModels Store // whose read models are checked
	Event      event.Recorded
	TenantID   string // of the event's legal entity
}

// SnapshotStore stores the snapshots of entities and streams.
type SnapshotStore interface {
	ports.EntitySnapshots
	ports.StreamSnapshots
}

// NewRequest is a request of p-1 that is not stored.
func (s RedactionStore) NewRequest(pointers ...string) ports.RedactionRequest {
	return ports.RedactionRequest{
		ID: ulid.Make(), Partition: s.Event.Partition, Sequence: s.Event.Sequence, EventID: s.Event.ID, Pointers: pointers,
		Reason: "migrated in clear", RequestedBy: "p-1", Scope: event.HashPayload(s.Event.Salt, s.Event.Payload), Preview: []byte(`{"event_type":"x"}`),
	}
}

// Requested stores a request.
func (s RedactionStore) Requested(t *testing.T, pointers ...string) ports.RedactionRequest {
	t.Helper()
	r, err := s.Redactions.AddRedaction(t.Context(), s.NewRequest(pointers...))
	require.NoError(t, err)
	return r
}

// Approved stores a request that p-2 approves.
func (s RedactionStore) Approved(t *testing.T, pointers ...string) ports.RedactionRequest {
	t.Helper()
	r := s.Requested(t, pointers...)
	r, err := s.Redactions.ApproveRedaction(t.Context(), r.Partition, r.ID, "p-2", r.Scope)
	require.NoError(t, err)
	return r
}

// Replacement is a payload in place of the one with a hash.
func Replacement(old event.Hash, payload string) ports.RedactedPayload {
	to := ports.RedactedPayload{OldHash: old, Salt: event.Salt(ulid.Make()), Payload: []byte(payload)}
	to.NewHash = event.HashPayload(to.Salt, to.Payload)
	return to
}

// RunRedactions checks ports.Redactions. newStore makes a store for one sub-test.
func RunRedactions(t *testing.T, newStore func(t *testing.T) RedactionStore) {
	t.Helper()
	for _, c := range []struct {
		name  string
		check func(t *testing.T, s RedactionStore)
	}{
		{"request goes to completed", redactionPath},
		{"every step may be repeated", redactionRepeats},
		{"request needs a second person", redactionTwoPersons},
		{"request ends before it is carried out", redactionEnds},
		{"only what was approved is redacted", redactionScope},
		{"stored values that may not be redacted are refused", redactionValues},
		{"a second redaction goes on from the first", redactionChain},
		{"snapshots of redacted events are deleted and not accepted again", redactionSnapshots},
		{"rows from before a redaction are neither recomputed nor copied", redactionRows},
		{"one of many approvers approves", redactionRaceApprovers},
		{"approval or withdrawal wins", redactionRaceWithdrawal},
		{"one of many workers redacts", redactionRaceWorkers},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t, newStore(t)) })
	}
}

func (s RedactionStore) replacement() ports.RedactedPayload {
	return Replacement(event.HashPayload(s.Event.Salt, s.Event.Payload), RedactedPayload)
}

func (s RedactionStore) stored(t *testing.T) event.Recorded {
	t.Helper()
	e, err := s.Events.EventByID(t.Context(), s.Event.Partition, s.Event.ID)
	require.NoError(t, err)
	return e
}

func (s RedactionStore) read(t *testing.T, id event.ID) ports.RedactionRequest {
	t.Helper()
	r, err := s.Redactions.RedactionRequest(t.Context(), s.TenantID, id)
	require.NoError(t, err)
	return r
}

func requireRedactionFault(t *testing.T, code string, err error) {
	t.Helper()
	require.Equal(t, "redaction."+code, fault.CodeOf(err), "%v", err)
	require.NotContains(t, fmt.Sprintf("%+v", err), "Ada")
}

func redactionPath(t *testing.T, s RedactionStore) {
	ctx := t.Context()
	r := s.Requested(t, RedactedPointers()...)
	require.Equal(t, shredding.RedactionPreviewed, r.State)
	require.Equal(t, 1, r.Revision)
	require.Equal(t, s.TenantID, r.TenantID)
	require.Equal(t, s.Event.ID, r.EventID)
	require.JSONEq(t, `{"event_type":"x"}`, string(r.Preview))
	require.Equal(t, r, s.read(t, r.ID))
	work, err := s.Redactions.RedactionWork(ctx, 10)
	require.NoError(t, err)
	require.Empty(t, work, "it waits for a person")

	r, err = s.Redactions.ApproveRedaction(ctx, r.Partition, r.ID, "p-2", r.Scope)
	require.NoError(t, err)
	require.Equal(t, []any{shredding.RedactionApproved, "p-2", 2}, []any{r.State, r.ApprovedBy, r.Revision})
	require.False(t, r.ApprovedAt.Before(r.RequestedAt))
	work, err = s.Redactions.RedactionWork(ctx, 10)
	require.NoError(t, err)
	require.Equal(t, []ports.RedactionRequest{r}, work)

	attempts, err := s.Redactions.NoteRedactionFailure(ctx, r.Partition, r.ID, "x.y")
	require.NoError(t, err)
	require.Equal(t, 1, attempts)
	require.Equal(t, "x.y", s.read(t, r.ID).LastError)

	to := s.replacement()
	done, err := s.Redactions.RedactPayload(ctx, r, to)
	require.NoError(t, err)
	require.Equal(t, []any{r.ID, s.Event.ID, to.OldHash, to.NewHash, "p-1", "p-2"}, []any{done.ID, done.EventID, done.OldPayloadHash, done.NewPayloadHash, done.RequestedBy, done.ApprovedBy})
	r = s.read(t, r.ID)
	require.Equal(t, []any{shredding.RedactionRedacted, 3, 0, ""}, []any{r.State, r.Revision, r.Attempts, r.LastError})
	got := s.stored(t)
	require.Equal(t, RedactedPayload, string(got.Payload), "byte for byte")
	require.Equal(t, to.Salt, got.Salt)
	require.Equal(t, s.Event.Skeleton, got.Skeleton)
	require.Equal(t, []event.Redaction{{RequestID: r.ID, Pointers: RedactedPointers(), At: done.RedactedAt}}, got.Redactions, "readers are told")

	for _, state := range []shredding.RedactionState{shredding.RedactionAnnounced, shredding.RedactionRebuilt, shredding.RedactionCompleted} {
		r.State = state
		if state == shredding.RedactionRebuilt {
			r.Results = []byte(`{"to_rebuild":[]}`)
		}
		r, err = s.Redactions.MoveRedaction(ctx, r)
		require.NoError(t, err, state)
		require.Equal(t, state, r.State)
	}
	require.JSONEq(t, `{"to_rebuild":[]}`, string(r.Results))
	require.False(t, r.CompletedAt.IsZero())
	for _, state := range shredding.RedactionStates() {
		next := r
		next.State = state
		_, err := s.Redactions.MoveRedaction(ctx, next)
		requireRedactionFault(t, "move_refused", err)
	}
	list, err := s.Redactions.RedactionRequests(ctx, r.TenantID, []shredding.RedactionState{shredding.RedactionCompleted}, 10)
	require.NoError(t, err)
	require.Equal(t, []ports.RedactionRequest{r}, list)
	list, err = s.Redactions.RedactionRequests(ctx, "another tenant", nil, 10)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = s.Redactions.RedactionRequest(ctx, "another tenant", r.ID)
	requireRedactionFault(t, "not_found", err)
	records, err := s.Redactions.Redactions(ctx, r.Partition)
	require.NoError(t, err)
	done.Request = &ports.RedactionGrounds{State: r.State, Sequence: r.Sequence, EventID: r.EventID, Pointers: r.Pointers, RequestedBy: "p-1", ApprovedBy: "p-2"}
	require.Equal(t, []ports.Redaction{done}, records)
}

func redactionRepeats(t *testing.T, s RedactionStore) {
	ctx := t.Context()
	n := s.NewRequest(RedactedPointers()...)
	r, err := s.Redactions.AddRedaction(ctx, n)
	require.NoError(t, err)
	again, err := s.Redactions.AddRedaction(ctx, n)
	require.NoError(t, err)
	require.Equal(t, r, again)
	n.Reason = "another"
	_, err = s.Redactions.AddRedaction(ctx, n)
	requireRedactionFault(t, "duplicate", err)

	r, err = s.Redactions.ApproveRedaction(ctx, r.Partition, r.ID, "p-2", r.Scope)
	require.NoError(t, err)
	again, err = s.Redactions.ApproveRedaction(ctx, r.Partition, r.ID, "p-2", r.Scope)
	require.NoError(t, err)
	require.Equal(t, r, again)

	to := s.replacement()
	done, err := s.Redactions.RedactPayload(ctx, r, to)
	require.NoError(t, err)
	same, err := s.Redactions.RedactPayload(ctx, r, Replacement(to.NewHash, RedactedPayload))
	require.NoError(t, err)
	require.Equal(t, done, same)
	require.Equal(t, to.Salt, s.stored(t).Salt)

	r = s.read(t, r.ID)
	r.State = shredding.RedactionAnnounced
	moved, err := s.Redactions.MoveRedaction(ctx, r)
	require.NoError(t, err)
	again, err = s.Redactions.MoveRedaction(ctx, r)
	require.NoError(t, err)
	require.Equal(t, moved, again)
	r.State = shredding.RedactionRebuilt
	_, err = s.Redactions.MoveRedaction(ctx, r)
	requireRedactionFault(t, "changed", err)
}

func redactionTwoPersons(t *testing.T, s RedactionStore) {
	ctx := t.Context()
	r := s.Requested(t, RedactedPointers()...)
	for _, person := range []string{"p-1", "P-1"} {
		_, err := s.Redactions.ApproveRedaction(ctx, r.Partition, r.ID, person, r.Scope)
		requireRedactionFault(t, "same_person", err)
		rejected := r
		rejected.State, rejected.EndedBy, rejected.EndReason = shredding.RedactionRejected, person, "no"
		_, err = s.Redactions.MoveRedaction(ctx, rejected)
		requireRedactionFault(t, "same_person", err)
	}
	for _, person := range []string{"", "p-1 ", "p\t1"} {
		_, err := s.Redactions.ApproveRedaction(ctx, r.Partition, r.ID, person, r.Scope)
		requireRedactionFault(t, "invalid", err)
	}
	_, err := s.Redactions.RedactPayload(ctx, r, s.replacement())
	requireRedactionFault(t, "not_approved", err)
	for _, state := range []shredding.RedactionState{shredding.RedactionApproved, shredding.RedactionRedacted, shredding.RedactionAnnounced, shredding.RedactionCompleted} {
		next := r
		next.State = state
		_, err := s.Redactions.MoveRedaction(ctx, next)
		requireRedactionFault(t, "move_refused", err)
	}
	_, err = s.Redactions.ApproveRedaction(ctx, r.Partition, ulid.Make(), "p-2", r.Scope)
	requireRedactionFault(t, "not_found", err)
	_, err = s.Redactions.RedactPayload(ctx, s.NewRequest(RedactedPointers()...), s.replacement())
	requireRedactionFault(t, "not_found", err)
	require.Equal(t, s.Event, s.stored(t))

	for _, change := range []func(*ports.RedactionRequest){
		func(r *ports.RedactionRequest) { r.Reason = "" }, func(r *ports.RedactionRequest) { r.RequestedBy = "" },
		func(r *ports.RedactionRequest) { r.RequestedBy = "p-1 " }, func(r *ports.RedactionRequest) { r.Pointers = []string{} },
	} {
		n := s.NewRequest(RedactedPointers()...)
		change(&n)
		_, err := s.Redactions.AddRedaction(ctx, n)
		requireRedactionFault(t, "invalid", err)
	}
	n := s.NewRequest(RedactedPointers()...)
	n.Sequence = 99
	_, err = s.Redactions.AddRedaction(ctx, n)
	requireRedactionFault(t, "event_not_found", err)
	_, err = s.Redactions.AddRedaction(ctx, s.NewRequest("/entity_refs/0"))
	requireRedactionFault(t, "pointer_invalid", err)
}

func redactionEnds(t *testing.T, s RedactionStore) {
	ctx := t.Context()
	for _, c := range []struct {
		state    shredding.RedactionState
		approved bool
	}{
		{shredding.RedactionRejected, false}, {shredding.RedactionWithdrawn, false}, {shredding.RedactionRefused, false},
		{shredding.RedactionWithdrawn, true}, {shredding.RedactionExpired, true}, {shredding.RedactionRefused, true},
	} {
		r := s.Requested(t, RedactedPointers()...)
		if c.approved {
			r = s.Approved(t, RedactedPointers()...)
		}
		r.State, r.EndedBy, r.EndReason = c.state, "p-3", "no need"
		ended, err := s.Redactions.MoveRedaction(ctx, r)
		require.NoError(t, err, c.state)
		require.Equal(t, []any{c.state, "p-3", "no need"}, []any{ended.State, ended.EndedBy, ended.EndReason})
		_, err = s.Redactions.ApproveRedaction(ctx, r.Partition, r.ID, "p-2", r.Scope)
		requireRedactionFault(t, "move_refused", err)
		_, err = s.Redactions.RedactPayload(ctx, r, s.replacement())
		requireRedactionFault(t, "not_approved", err)
	}
	r := s.Approved(t, RedactedPointers()...)
	r.State = shredding.RedactionRejected
	r.EndedBy = "p-3"
	_, err := s.Redactions.MoveRedaction(ctx, r)
	requireRedactionFault(t, "move_refused", err)
	require.Equal(t, s.Event, s.stored(t))
}

func redactionScope(t *testing.T, s RedactionStore) {
	ctx := t.Context()
	r := s.Requested(t, RedactedPointers()...)
	_, err := s.Redactions.ApproveRedaction(ctx, r.Partition, r.ID, "p-2", event.Hash{1})
	requireRedactionFault(t, "scope_changed", err)

	r = s.Approved(t, RedactedPointers()...)
	refused := func(code string, r ports.RedactionRequest, to ports.RedactedPayload) {
		t.Helper()
		_, err := s.Redactions.RedactPayload(ctx, r, to)
		requireRedactionFault(t, code, err)
	}
	other := r
	other.Pointers = []string{"/data/name"}
	refused("scope_changed", other, s.replacement())
	to := s.replacement()
	to.OldHash[0]++
	refused("scope_changed", r, to)
	to = s.replacement()
	to.NewHash[0]++
	refused("payload_refused", r, to)
	to = s.replacement()
	to.Salt, to.NewHash = s.Event.Salt, event.HashPayload(s.Event.Salt, to.Payload)
	refused("payload_refused", r, to)
	for _, payload := range []string{
		PlainPayload,
		string(bytes.Replace([]byte(RedactedPayload), []byte("1.50"), []byte("9.50"), 1)),
		string(bytes.Replace([]byte(RedactedPayload), []byte(`"x"`), []byte(`"[REDACTED]"`), 1)),
		`{}`,
	} {
		refused("payload_refused", r, Replacement(to.OldHash, payload))
	}
	require.Equal(t, s.Event, s.stored(t))

	// A new preview takes the approval away.
	r = s.read(t, r.ID)
	r.State, r.Preview = shredding.RedactionPreviewed, []byte(`{"event_type":"y"}`)
	r.Scope[0]++
	back, err := s.Redactions.MoveRedaction(ctx, r)
	require.NoError(t, err)
	require.Equal(t, []any{shredding.RedactionPreviewed, "", r.Scope}, []any{back.State, back.ApprovedBy, back.Scope})
	require.JSONEq(t, `{"event_type":"y"}`, string(back.Preview))
	refused("not_approved", back, s.replacement())
}

func redactionValues(t *testing.T, s RedactionStore) {
	for pointer, code := range map[string]string{
		"/data/nothing": "pointer_invalid", "/data/lines/2": "pointer_invalid", "/data/name/x": "pointer_invalid",
		"/data/amount": "not_redactable", "/data/email": "sealed",
		// A number inside of the value is removed with it.
		"/data/parts": "not_redactable", "/data/parts/0": "not_redactable", "/data/parts/0/prices": "not_redactable", "/data/parts/0/prices/0": "not_redactable",
	} {
		to := s.replacement()
		if payload, err := jsondoc.Splice(nil, s.Event.Payload, pointer, []byte(shredding.Redacted)); err == nil {
			to = Replacement(to.OldHash, string(payload))
		}
		_, err := s.Redactions.RedactPayload(t.Context(), s.Approved(t, pointer), to)
		requireRedactionFault(t, code, err)
	}
	require.Equal(t, s.Event, s.stored(t))
}

func redactionChain(t *testing.T, s RedactionStore) {
	ctx := t.Context()
	late := s.Approved(t, "/data/lines/1/note")
	first, err := s.Redactions.RedactPayload(ctx, s.Approved(t, RedactedPointers()...), s.replacement())
	require.NoError(t, err)
	payload := string(bytes.Replace([]byte(RedactedPayload), []byte(`"x"`), []byte(`"[REDACTED]"`), 1))
	_, err = s.Redactions.RedactPayload(ctx, late, Replacement(first.NewPayloadHash, payload))
	requireRedactionFault(t, "scope_changed", err)

	s.Event = s.stored(t)
	second, err := s.Redactions.RedactPayload(ctx, s.Approved(t, "/data/lines/1/note"), Replacement(first.NewPayloadHash, payload))
	require.NoError(t, err)
	require.Equal(t, first.NewPayloadHash, second.OldPayloadHash)
	got := s.stored(t)
	require.Equal(t, payload, string(got.Payload))
	require.Len(t, got.Redactions, 2)
	require.Equal(t, []event.ID{first.ID, second.ID}, []event.ID{got.Redactions[0].RequestID, got.Redactions[1].RequestID})
}

// redactionSnapshots saves states of before and after the redacted event, one that was folded
// before the redaction and is saved after it, and one that is put back past the port.
func redactionSnapshots(t *testing.T, s RedactionStore) {
	ctx, at := t.Context(), s.Event.Sequence
	entity := func(asOf event.Sequence) ports.EntitySnapshot {
		return ports.EntitySnapshot{
			Partition: s.Event.Partition, EntityType: "invoice", EntityID: "1", AsOf: asOf, Version: asOf, Fold: "1", EventCount: 1, CreatedAt: time.Now(),
			State: json.RawMessage(`{"name":"Ada"}`), MAC: bytes.Repeat([]byte{1}, 32),
		}
	}
	stream := func(id event.StreamID, v event.Version, internal bool) ports.StreamSnapshot {
		return ports.StreamSnapshot{
			ID: ulid.Make(), Partition: s.Event.Partition, Stream: id, Internal: internal, Version: v, StateType: "x", SchemaVersion: 1, CreatedAt: time.Now(),
			State: json.RawMessage(`{"name":"Ada"}`), MAC: bytes.Repeat([]byte{1}, 32),
		}
	}
	redactions := func(want uint64, asOf event.Sequence, v event.Version) {
		n, err := s.Snapshots.EntityRedactions(ctx, s.Event.Partition, asOf)
		require.NoError(t, err)
		require.Equal(t, want, n)
		n, err = s.Snapshots.StreamRedactions(ctx, s.Event.Partition, s.Event.Stream, v)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	ofIntent := func(want bool, first event.Sequence, count int) {
		redacted, err := s.Intents.HasRedactions(ctx, &intent.Intent{Partition: s.Event.Partition, FirstSequence: first, EventCount: count})
		require.NoError(t, err)
		require.Equal(t, want, redacted)
	}
	_, epoch, err := s.Snapshots.EntitySnapshots(ctx, s.Event.Partition, "invoice", "1")
	require.NoError(t, err)
	for n := range event.Sequence(3) {
		kept, err := s.Snapshots.SaveEntitySnapshot(ctx, entity(at-1+n), epoch)
		require.NoError(t, err)
		require.True(t, kept)
	}
	other := event.StreamID{Type: "other", ID: "1"}
	for _, n := range []ports.StreamSnapshot{
		stream(s.Event.Stream, s.Event.StreamVersion, false), stream(s.Event.Stream, s.Event.StreamVersion, true), stream(other, 1, false),
	} {
		_, _, err := s.Snapshots.SaveStreamSnapshot(ctx, n, epoch)
		require.NoError(t, err)
	}
	redactions(0, at, s.Event.StreamVersion)
	ofIntent(false, 1, int(at))
	_, err = s.Redactions.RedactPayload(ctx, s.Approved(t, RedactedPointers()...), s.replacement())
	require.NoError(t, err)
	redactions(0, at-1, s.Event.StreamVersion-1)
	redactions(1, at, s.Event.StreamVersion)
	ofIntent(true, 1, int(at))
	ofIntent(true, at, 1)
	ofIntent(false, at+1, 2)
	ofIntent(false, 1, int(at-1))
	ofIntent(false, 0, 0) // one that wrote no events

	left, now, err := s.Snapshots.EntitySnapshots(ctx, s.Event.Partition, "invoice", "1")
	require.NoError(t, err)
	require.NotEqual(t, epoch, now)
	require.Len(t, left, 1)
	require.Equal(t, at-1, left[0].AsOf, "of before the event")
	require.False(t, left[0].Outdated)
	for _, internal := range []bool{false, true} {
		_, _, err = s.Snapshots.StreamSnapshot(ctx, s.Event.Partition, s.Event.Stream, internal, 0)
		require.Equal(t, "snapshot.not_found", fault.CodeOf(err))
	}
	untouched, _, err := s.Snapshots.StreamSnapshot(ctx, s.Event.Partition, other, false, 0)
	require.NoError(t, err, "another stream")
	require.False(t, untouched.Outdated)

	kept, err := s.Snapshots.SaveEntitySnapshot(ctx, entity(at+3), epoch)
	require.NoError(t, err)
	require.False(t, kept, "folded before the redaction")
	_, _, err = s.Snapshots.SaveStreamSnapshot(ctx, stream(s.Event.Stream, 9, true), epoch)
	require.Equal(t, "snapshot.superseded", fault.CodeOf(err))

	kept, err = s.Snapshots.SaveEntitySnapshot(ctx, entity(at+3), now) // has the count of before
	require.NoError(t, err)
	require.True(t, kept)
	_, _, err = s.Snapshots.SaveStreamSnapshot(ctx, stream(s.Event.Stream, 9, true), now)
	require.NoError(t, err)
	left, _, err = s.Snapshots.EntitySnapshots(ctx, s.Event.Partition, "invoice", "1")
	require.NoError(t, err)
	require.True(t, left[0].Outdated)
	back, _, err := s.Snapshots.StreamSnapshot(ctx, s.Event.Partition, s.Event.Stream, true, 0)
	require.NoError(t, err)
	require.True(t, back.Outdated)
}

// redactionRows redacts an event whose values are in rows that a recomputation has read, in a
// snapshot, and in the rows that a later snapshot would copy.
func redactionRows(t *testing.T, s RedactionStore) {
	ctx, p, name := t.Context(), s.Event.Partition, s.TenantID+"/redacted"
	add := func(version int, role projection.Role) {
		n := projection.Projection{Name: name, Version: version, Code: 1, Role: role, Scope: p, Status: projection.Running}
		if role == projection.Active {
			n.Scope = 0
		}
		_, err := s.ReadModels.AddProjection(ctx, n)
		require.NoError(t, err)
	}
	work := func(version int) ports.ProjectionWork {
		return ports.ProjectionWork{Projection: name, Version: version, Partition: p}
	}
	advance := func() {
		_, _, err := s.ReadModels.Advance(ctx, ports.ProjectionAdvance{ProjectionWork: work(1), Limit: 100}, onRows(func(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
			return s.ReadModels.StoreProjectionRows(ctx, tx, b, []ports.ProjectionRow{{Key: "a", State: json.RawMessage(`{"name":"Ada"}`), Sequence: 1}}, nil)
		}))
		require.NoError(t, err)
	}
	part := func(version, to int) ports.SnapshotCopy {
		return ports.SnapshotCopy{Projection: name, Version: version, Partition: p, Tables: rowTables, To: to, Authenticate: AuthenticatePart("secret")}
	}
	save := func(version int) (rows uint64, usable bool) {
		add(version, projection.Saving)
		require.NoError(t, s.ReadModels.PlanSnapshot(ctx, name, version, 1))
		done, err := s.ReadModels.SavePart(ctx, part(version, 0))
		require.NoError(t, err)
		require.True(t, done)
		require.NoError(t, s.ReadModels.FinishSnapshot(ctx, name, version, 3, "ada"))
		return s.snapshotPart(t, name, version)
	}
	recompute := func(since ports.RowPosition) error {
		r := ports.RowRecompute{ProjectionWork: work(1), Keys: []string{"a"}, Since: since, ReadThrough: since.Sequence, Limit: 1, By: "ada"}
		_, err := s.ReadModels.RecomputeRows(ctx, r, func() (ports.ProjectionHandler, func() map[string]ports.ProjectionRow) {
			return onRows(func(context.Context, ports.ProjectionTx, ports.ProjectionBatch) error { return nil }), func() map[string]ports.ProjectionRow {
				return map[string]ports.ProjectionRow{"a": {Key: "a", State: json.RawMessage(`{}`), Sequence: 1}}
			}
		})
		return err
	}
	add(1, projection.Active)
	advance()
	before, _, err := s.ReadModels.RowPosition(ctx, work(1))
	require.NoError(t, err)
	rows, usable := save(2)
	require.Equal(t, []any{uint64(1), true}, []any{rows, usable})
	_, err = s.Redactions.RedactPayload(ctx, s.Approved(t, RedactedPointers()...), s.replacement())
	require.NoError(t, err)

	require.Equal(t, projection.CodeChanged, fault.CodeOf(recompute(before)))
	after, _, err := s.ReadModels.RowPosition(ctx, work(1))
	require.NoError(t, err)
	require.Equal(t, before.Redactions+1, after.Redactions)
	_, usable = s.snapshotPart(t, name, 2)
	require.False(t, usable)
	add(3, projection.Building)
	_, err = s.ReadModels.RestorePart(ctx, part(2, 3))
	require.NoError(t, err)
	_, begun, err := s.ReadModels.RowPosition(ctx, work(3))
	require.NoError(t, err)
	require.False(t, begun, "it begins with the log")
	rows, usable = save(4)
	require.Equal(t, []any{uint64(0), false}, []any{rows, usable}, "the rows are from before the redaction")
	require.NoError(t, recompute(after))

	_, err = s.ReadModels.Reset(ctx, ports.ProjectionOperation{ProjectionWork: work(1), By: "ada"}, forgetRows{s.ReadModels})
	require.NoError(t, err)
	advance()
	rows, usable = save(5)
	require.Equal(t, []any{uint64(1), true}, []any{rows, usable})
}

// snapshotPart is what a snapshot has of the partition.
func (s RedactionStore) snapshotPart(t *testing.T, name string, version int) (rows uint64, usable bool) {
	t.Helper()
	parts, err := s.ReadModels.SnapshotParts(t.Context(), name)
	require.NoError(t, err)
	for _, part := range parts {
		if part.Version == version {
			return part.Rows, part.Usable
		}
	}
	require.Fail(t, "there is no such part")
	return 0, false
}

// forgetRows resets rows of custom projections.
type forgetRows struct{ rows ports.ProjectionRows }

// Reset implements ports.ProjectionResetter.
func (f forgetRows) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return f.rows.ForgetProjectionRows(ctx, tx, b)
}

func redactionRaceApprovers(t *testing.T, s RedactionStore) {
	for range 10 {
		r := s.Requested(t, RedactedPointers()...)
		won := 0
		for _, err := range race(8, func(i int) error {
			_, err := s.Redactions.ApproveRedaction(t.Context(), r.Partition, r.ID, fmt.Sprintf("p-%d", i+2), r.Scope)
			return err
		}) {
			if err == nil {
				won++
			} else {
				requireRedactionFault(t, "move_refused", err)
			}
		}
		require.Equal(t, 1, won)
		require.Equal(t, 2, s.read(t, r.ID).Revision)
	}
}

func redactionRaceWithdrawal(t *testing.T, s RedactionStore) {
	for range 20 {
		r := s.Requested(t, RedactedPointers()...)
		errs := race(2, func(i int) (err error) {
			if i == 0 {
				_, err = s.Redactions.ApproveRedaction(t.Context(), r.Partition, r.ID, "p-2", r.Scope)
				return err
			}
			w := r
			w.State, w.EndedBy, w.EndReason = shredding.RedactionWithdrawn, "p-1", "wrong"
			_, err = s.Redactions.MoveRedaction(t.Context(), w)
			return err
		})
		switch s.read(t, r.ID).State {
		case shredding.RedactionApproved:
			require.NoError(t, errs[0])
			requireRedactionFault(t, "changed", errs[1])
		case shredding.RedactionWithdrawn:
			require.NoError(t, errs[1])
			requireRedactionFault(t, "move_refused", errs[0])
			_, err := s.Redactions.RedactPayload(t.Context(), r, s.replacement())
			requireRedactionFault(t, "not_approved", err)
		default:
			t.Fatal("neither of the two moved the request")
		}
	}
}

func redactionRaceWorkers(t *testing.T, s RedactionStore) {
	r := s.Approved(t, RedactedPointers()...)
	records := make([]ports.Redaction, 8)
	for _, err := range race(len(records), func(i int) (err error) {
		records[i], err = s.Redactions.RedactPayload(t.Context(), r, s.replacement())
		return err
	}) {
		require.NoError(t, err)
	}
	for _, record := range records {
		require.Equal(t, records[0], record)
	}
	require.Len(t, s.stored(t).Redactions, 1)
}

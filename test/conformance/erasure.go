package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

func newRequest(id ports.SubjectKeyID) ports.ErasureRequest {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return ports.ErasureRequest{
		ID: event.ID(ulid.Make()), TenantID: keyTenant, Subject: id.Subject, Partitions: []event.PartitionID{id.Partition},
		Basis: shredding.GDPRArticle17, Reason: "asked by letter", RequestedBy: "p-officer", RequestedAt: now, DueOn: event.DateOf(now).AddDays(30),
	}
}

var scopeOfRequest = event.Hash{1, 2, 3}

// requested adds a request and reads it back.
func (f *keyFixture) requested(t *testing.T, r ports.ErasureRequest) ports.ErasureRequest {
	t.Helper()
	require.NoError(t, f.eraser.AddErasure(t.Context(), r))
	stored, err := f.eraser.Erasure(t.Context(), r.TenantID, r.ID)
	require.NoError(t, err)
	return stored
}

func (f *keyFixture) move(t *testing.T, r ports.ErasureRequest, to shredding.ErasureState) ports.ErasureRequest {
	t.Helper()
	r.State = to
	moved, err := f.eraser.MoveErasure(t.Context(), r)
	require.NoError(t, err, "to %s", to)
	require.Equal(t, to, moved.State)
	require.Equal(t, r.Revision+1, moved.Revision)
	return moved
}

func (f *keyFixture) previewed(t *testing.T, id ports.SubjectKeyID) ports.ErasureRequest {
	t.Helper()
	r := f.requested(t, newRequest(id))
	r.Preview, r.Scope = json.RawMessage(`{"events": 3}`), scopeOfRequest
	return f.move(t, r, shredding.ErasurePreviewed)
}

func (f *keyFixture) approved(t *testing.T, id ports.SubjectKeyID) ports.ErasureRequest {
	t.Helper()
	r, err := f.eraser.ApproveErasure(t.Context(), f.previewed(t, id).ID, "p-controller", scopeOfRequest, time.Now())
	require.NoError(t, err)
	require.Equal(t, shredding.ErasureApproved, r.State)
	return r
}

// fenced is a request that has set the fence of one key.
func (f *keyFixture) fenced(t *testing.T, id ports.SubjectKeyID) ports.ErasureRequest {
	t.Helper()
	r := f.approved(t, id)
	r.Classes = []ports.ErasureClass{{Class: id.Class, Erased: true}}
	fenced, err := f.eraser.FenceErasure(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, shredding.ErasureFenced, fenced.State)
	return fenced
}

func (f *keyFixture) destroyed(t *testing.T, r ports.ErasureRequest) (ports.Destruction, ports.ErasureRequest) {
	t.Helper()
	d, moved, err := f.eraser.DestroyErasure(t.Context(), r.ID, nil)
	require.NoError(t, err)
	require.Equal(t, shredding.ErasureDestroyed, moved.State)
	return d, moved
}

// at brings a new request to a state.
func (f *keyFixture) at(t *testing.T, state shredding.ErasureState, id ports.SubjectKeyID) ports.ErasureRequest {
	t.Helper()
	switch state {
	case shredding.ErasureRequested:
		return f.requested(t, newRequest(id))
	case shredding.ErasurePreviewed:
		return f.previewed(t, id)
	case shredding.ErasureApproved:
		return f.approved(t, id)
	case shredding.ErasureFenced:
		return f.fenced(t, id)
	case shredding.ErasureDestroyed:
		_, r := f.destroyed(t, f.fenced(t, id))
		return r
	case shredding.ErasureRejected, shredding.ErasureWithdrawn:
		return f.move(t, f.previewed(t, id), state)
	case shredding.ErasureExpired:
		return f.move(t, f.approved(t, id), state)
	case shredding.ErasureRefused:
		r, err := f.eraser.RefuseErasure(t.Context(), f.fenced(t, id), "legal hold")
		require.NoError(t, err)
		return r
	}
	d, r := f.destroyed(t, f.fenced(t, id))
	require.NoError(t, f.eraser.SaveReceipt(t.Context(), d.Receipt, NoteOf(r, d), true))
	for r.State != state {
		next, ok := r.State.Next()
		require.True(t, ok)
		r = f.move(t, r, next)
	}
	return r
}

// byAct are the states that only their own method reaches.
var byAct = []shredding.ErasureState{shredding.ErasureApproved, shredding.ErasureFenced, shredding.ErasureDestroyed}

var erasureTests = map[string]func(*testing.T, *keyFixture){
	"request is stored and listed": func(t *testing.T, f *keyFixture) {
		r := newRequest(subjectKeyID(2, "employee:E-1", 0))
		r.Partitions, r.AllEntities = []event.PartitionID{2, 5}, true
		got := f.requested(t, r)
		require.WithinDuration(t, time.Now(), got.UpdatedAt, time.Minute)
		want := r
		want.State, want.Revision, want.UpdatedAt = shredding.ErasureRequested, 1, got.UpdatedAt
		require.Equal(t, want, got)
		_, err := f.eraser.Erasure(t.Context(), "another", r.ID)
		requireRefused(t, fault.NotFound, "erasure.not_found", err)
		other := newRequest(subjectKeyID(2, "employee:E-2", 0))
		other.RequestedAt = r.RequestedAt.Add(time.Second)
		f.requested(t, other)
		for _, c := range []struct {
			tenant string
			states []shredding.ErasureState
			limit  int
			want   []event.ID
		}{
			{keyTenant, nil, 0, []event.ID{other.ID, r.ID}},
			{"", []shredding.ErasureState{shredding.ErasureRequested}, 1, []event.ID{other.ID}},
			{keyTenant, []shredding.ErasureState{shredding.ErasureApproved}, 0, nil},
			{"another", nil, 0, nil},
		} {
			list, err := f.eraser.Erasures(t.Context(), c.tenant, c.states, c.limit)
			require.NoError(t, err)
			var ids []event.ID
			for _, r := range list {
				ids = append(ids, r.ID)
			}
			require.Equal(t, c.want, ids)
		}
	},
	"requests to follow": func(t *testing.T, f *keyFixture) {
		today := event.DateOf(time.Now())
		yesterday := today.AddDays(-1)
		refused := func(n int, classes ...ports.ErasureClass) event.ID {
			r := f.previewed(t, subjectKeyID(2, fmt.Sprintf("employee:E-%d", n), 0))
			r.Classes = classes
			refused, err := f.eraser.RefuseErasure(t.Context(), r, "retention")
			require.NoError(t, err)
			return refused.ID
		}
		var want []event.ID
		for n := range 3 {
			want = append(want, refused(n, ports.ErasureClass{Class: 0, Erased: true}, ports.ErasureClass{Class: 1, Refused: "retention", Until: &yesterday}))
		}
		refused(3, ports.ErasureClass{Class: 1, Refused: "retention", Until: &today})
		refused(4, ports.ErasureClass{Class: 1, Refused: "legal_hold"})
		refused(5)
		f.previewed(t, subjectKeyID(2, "employee:E-6", 0))
		slices.SortFunc(want, func(a, b event.ID) int { return bytes.Compare(a[:], b[:]) })
		var got []event.ID
		for after := (event.ID{}); ; {
			page, err := f.eraser.ErasuresToFollow(t.Context(), today, after, 2)
			require.NoError(t, err)
			for _, r := range page {
				after = r.ID
				got = append(got, r.ID)
			}
			if len(page) < 2 {
				break
			}
		}
		require.Equal(t, want, got)
	},
	"every step is recorded": func(t *testing.T, f *keyFixture) {
		r := f.at(t, shredding.ErasureCompleted, subjectKeyID(2, "employee:E-1", 0))
		steps, err := f.eraser.ErasureSteps(t.Context(), r.TenantID, r.ID)
		require.NoError(t, err)
		var states []shredding.ErasureState
		for i, s := range steps {
			states = append(states, s.State)
			require.WithinDuration(t, time.Now(), s.At, time.Minute)
			require.True(t, i == 0 || !s.At.Before(steps[i-1].At))
		}
		require.Equal(t, shredding.ErasureStates()[:11], states)
		again := f.approved(t, subjectKeyID(3, "employee:E-2", 0))
		_, err = f.eraser.NoteErasureFailure(t.Context(), again.ID, "erasure.held")
		require.NoError(t, err)
		again = f.move(t, again, shredding.ErasurePreviewed)
		steps, err = f.eraser.ErasureSteps(t.Context(), "", again.ID)
		require.NoError(t, err)
		require.Len(t, steps, 4)
		require.Equal(t, shredding.ErasurePreviewed, steps[3].State)
		require.Equal(t, 1, steps[3].Attempts)
		for tenant, id := range map[string]event.ID{"another": r.ID, keyTenant: event.ID(ulid.Make())} {
			steps, err = f.eraser.ErasureSteps(t.Context(), tenant, id)
			require.NoError(t, err)
			require.Empty(t, steps)
		}
	},
	"subject has one open request": func(t *testing.T, f *keyFixture) {
		first := newRequest(subjectKeyID(2, "employee:E-1", 0))
		stored := f.requested(t, first)
		require.NoError(t, f.eraser.AddErasure(t.Context(), first), "a repeat")
		changed := first
		changed.Reason = "another"
		requireRefused(t, fault.Conflict, "erasure.changed", f.eraser.AddErasure(t.Context(), changed))
		second := newRequest(subjectKeyID(3, "employee:E-1", 0))
		err := f.eraser.AddErasure(t.Context(), second)
		requireRefused(t, fault.Conflict, "erasure.duplicate", err)
		problem, _ := fault.As(err)
		require.Equal(t, first.ID.String(), problem.Attributes["request_id"])
		f.move(t, stored, shredding.ErasureWithdrawn)
		require.NoError(t, f.eraser.AddErasure(t.Context(), second))
	},
	"store checks every move": func(t *testing.T, f *keyFixture) {
		for _, from := range shredding.ErasureStates() {
			for i, to := range shredding.ErasureStates() {
				id := subjectKeyID(event.PartitionID(1+i), "employee:"+string(from)+"-"+string(to), 0)
				if from == shredding.ErasureDestroyed && to == shredding.ErasureReceipted {
					continue // wants a receipt, below
				}
				r := f.at(t, from, id)
				r.State, r.Scope = to, scopeOfRequest
				_, err := f.eraser.MoveErasure(t.Context(), r)
				refusedByFence := from == shredding.ErasureFenced && to == shredding.ErasureRefused
				if from.CanBecome(to) && !slices.Contains(byAct, to) && !refusedByFence {
					require.NoError(t, err, "%s to %s", from, to)
					continue
				}
				requireRefused(t, fault.FailedPrecondition, "erasure.move_refused", err)
			}
		}
	},
	"change of another revision is refused": func(t *testing.T, f *keyFixture) {
		r := f.requested(t, newRequest(subjectKeyID(2, "employee:E-1", 0)))
		r.State, r.Scope, r.Preview = shredding.ErasurePreviewed, scopeOfRequest, json.RawMessage(`{"a": 1}`)
		first, err := f.eraser.MoveErasure(t.Context(), r)
		require.NoError(t, err)
		again, err := f.eraser.MoveErasure(t.Context(), r)
		require.NoError(t, err, "a repeat")
		require.Equal(t, first, again)
		r.Preview = json.RawMessage(`{"a": 2}`)
		_, err = f.eraser.MoveErasure(t.Context(), r)
		requireRefused(t, fault.Conflict, "erasure.changed", err)
		require.JSONEq(t, `{"a": 1}`, string(first.Preview))
	},
	"failures are counted until the next step": func(t *testing.T, f *keyFixture) {
		r := f.previewed(t, subjectKeyID(2, "employee:E-1", 0))
		for want := 1; want <= 3; want++ {
			n, err := f.eraser.NoteErasureFailure(t.Context(), r.ID, "kms.unavailable")
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		stored, err := f.eraser.Erasure(t.Context(), keyTenant, r.ID)
		require.NoError(t, err)
		require.Equal(t, "kms.unavailable", stored.LastError)
		require.Equal(t, r.Revision, stored.Revision)
		r, err = f.eraser.ApproveErasure(t.Context(), r.ID, "p-controller", scopeOfRequest, time.Now())
		require.NoError(t, err)
		require.Zero(t, r.Attempts)
		require.Empty(t, r.LastError)
		_, err = f.eraser.NoteErasureFailure(t.Context(), event.ID{1}, "x")
		requireRefused(t, fault.NotFound, "erasure.not_found", err)
	},
	"another person approves the previewed scope": func(t *testing.T, f *keyFixture) {
		r := f.previewed(t, subjectKeyID(2, "employee:E-1", 0))
		approve := func(person string, scope event.Hash) (ports.ErasureRequest, error) {
			return f.eraser.ApproveErasure(t.Context(), r.ID, person, scope, time.Now())
		}
		for _, person := range []string{r.RequestedBy, ""} {
			_, err := approve(person, scopeOfRequest)
			requireRefused(t, fault.Forbidden, "erasure.same_person", err)
		}
		_, err := approve("p-controller", event.Hash{9})
		requireRefused(t, fault.FailedPrecondition, "erasure.scope_changed", err)
		done, err := approve("p-controller", scopeOfRequest)
		require.NoError(t, err)
		require.Equal(t, "p-controller", done.ApprovedBy)
		again, err := approve("p-controller", scopeOfRequest)
		require.NoError(t, err)
		require.Equal(t, done, again, "one approval")
		_, err = approve("p-third", scopeOfRequest)
		requireRefused(t, fault.FailedPrecondition, "erasure.move_refused", err)
		// A new scope wants a new approval.
		done.Scope = event.Hash{7}
		back := f.move(t, done, shredding.ErasurePreviewed)
		require.Empty(t, back.ApprovedBy)
		_, err = approve("p-controller", scopeOfRequest)
		requireRefused(t, fault.FailedPrecondition, "erasure.scope_changed", err)
		_, err = approve("p-controller", event.Hash{7})
		require.NoError(t, err)
	},
	"fence refuses new keys of the subject": func(t *testing.T, f *keyFixture) {
		key := f.mint(t, subjectKeyID(2, "employee:E-1", 0))
		r := f.fenced(t, key.SubjectKeyID)
		got := f.read(t, key.SubjectKeyID)
		require.Equal(t, shredding.KeyFenced, got.State)
		require.Equal(t, key.Versions, got.Versions, "what is sealed opens still")
		for _, version := range []uint32{1, 2} {
			_, err := f.node.MintSubjectKey(t.Context(), keyTenant, minted(key.SubjectKeyID, key.Reference, version, 1))
			requireRefused(t, fault.Gone, "pii.subject_erased", err)
		}
		require.Equal(t, shredding.KeyAbsent, f.read(t, subjectKeyID(2, "employee:E-1", 1)).State, "another class is not fenced")
		f.mint(t, subjectKeyID(2, "employee:E-1", 1))
		// A refusal opens it again; another request may fence it again.
		r, err := f.eraser.RefuseErasure(t.Context(), r, "legal hold")
		require.NoError(t, err)
		require.Equal(t, "legal hold", r.EndReason)
		require.Equal(t, shredding.KeyActive, f.read(t, key.SubjectKeyID).State)
		f.fenced(t, key.SubjectKeyID)
		require.Equal(t, shredding.KeyFenced, f.read(t, key.SubjectKeyID).State)
	},
	"repeated fence is compared with the revision": func(t *testing.T, f *keyFixture) {
		r := f.approved(t, subjectKeyID(2, "employee:E-1", 0))
		_, err := f.eraser.FenceErasure(t.Context(), r)
		requireRefused(t, fault.FailedPrecondition, "erasure.move_refused", err) // nothing is erased
		r.Classes = []ports.ErasureClass{{Class: 0, Erased: true}, {Class: 1, Refused: "retention"}}
		fenced, err := f.eraser.FenceErasure(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, r.Classes, fenced.Classes)
		again, err := f.eraser.FenceErasure(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, fenced, again)
		r.Revision--
		_, err = f.eraser.FenceErasure(t.Context(), r)
		requireRefused(t, fault.Conflict, "erasure.changed", err)
		_, err = f.eraser.RefuseErasure(t.Context(), r, "x")
		requireRefused(t, fault.Conflict, "erasure.changed", err)
	},
	"legal hold refuses fence and destruction": func(t *testing.T, f *keyFixture) {
		id := subjectKeyID(2, "employee:E-1", 0)
		yesterday := event.DateOf(time.Now().UTC()).AddDays(-1)
		today := event.DateOf(time.Now().UTC().Add(time.Hour)) // which does not end in the middle of the test
		hold := func(p event.PartitionID, until *event.Date) ports.LegalHold {
			h := ports.LegalHold{
				ID: event.ID(ulid.Make()), TenantID: keyTenant, Subject: id.Subject, Partition: p, Reason: "litigation", PlacedBy: "p-legal",
				PlacedAt: time.Now().UTC().Truncate(time.Microsecond), Until: until,
			}
			require.NoError(t, f.eraser.PlaceHold(t.Context(), h))
			require.NoError(t, f.eraser.PlaceHold(t.Context(), h), "a repeat")
			return h
		}
		release := func(h ports.LegalHold) {
			at := time.Now().UTC().Truncate(time.Microsecond)
			for range 2 {
				got, err := f.eraser.ReleaseHold(t.Context(), keyTenant, h.ID, "p-legal", at)
				require.NoError(t, err)
				h.ReleasedBy, h.ReleasedAt = "p-legal", at
				require.Equal(t, h, got)
			}
		}
		hold(3, nil)         // another partition
		hold(2, &yesterday)  // over
		h := hold(2, &today) // this day still
		key := f.mint(t, id)
		r := f.approved(t, id)
		r.Classes = []ports.ErasureClass{{Class: 0, Erased: true}}
		_, err := f.eraser.FenceErasure(t.Context(), r)
		requireRefused(t, fault.FailedPrecondition, "erasure.held", err)
		require.Equal(t, shredding.KeyActive, f.read(t, id).State)
		list, err := f.eraser.Holds(t.Context(), keyTenant, id.Subject, today)
		require.NoError(t, err)
		require.Len(t, list, 2)
		release(h)
		r, err = f.eraser.FenceErasure(t.Context(), r)
		require.NoError(t, err)
		all := hold(0, nil) // all of the tenant
		_, _, err = f.eraser.DestroyErasure(t.Context(), r.ID, nil)
		requireRefused(t, fault.FailedPrecondition, "erasure.held", err)
		require.Equal(t, key.Versions, f.read(t, id).Versions)
		release(all)
		f.destroyed(t, r)
		_, err = f.eraser.ReleaseHold(t.Context(), "another", all.ID, "p", time.Now())
		requireRefused(t, fault.NotFound, "erasure.not_found", err)
	},
	"one of many moves a request": func(t *testing.T, f *keyFixture) {
		for round := range races {
			r := f.previewed(t, subjectKeyID(2, fmt.Sprintf("employee:E-%d", round), 0))
			oneWinner(t, race(6, func(i int) error {
				moved := r
				moved.State, moved.EndedBy = shredding.ErasureRejected, string(rune('a'+i))
				_, err := f.eraser.MoveErasure(t.Context(), moved)
				return err
			}), "erasure.changed")
		}
	},
}

package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

var destructionTests = map[string]func(*testing.T, *keyFixture){
	"every version is destroyed": func(t *testing.T, f *keyFixture) {
		key := f.mint(t, subjectKeyID(2, "employee:E-1", 0))
		key, err := f.node.MintSubjectKey(t.Context(), keyTenant, minted(key.SubjectKeyID, key.Reference, 2, 1))
		require.NoError(t, err)
		other := f.mint(t, subjectKeyID(2, "employee:E-2", 0))
		r := f.fenced(t, key.SubjectKeyID)
		d, done := f.destroyed(t, r)
		require.Equal(t, []ports.DestroyedKey{{
			Partition: 2, Class: 0, Reference: key.Reference, Fingerprints: []shredding.Fingerprint{key.Versions[0].Fingerprint, key.Versions[1].Fingerprint},
		}}, d.Keys)
		require.Equal(t, []any{uint64(1), int64(1), true, event.Hash{}}, []any{d.Receipt, d.Generation, d.PreviousKnown, d.PreviousHash})
		require.Equal(t, []any{d.Receipt, d.Generation, d.DestroyedAt}, []any{done.Receipt, done.Generation, done.DestroyedAt})

		got := f.read(t, key.SubjectKeyID)
		require.Equal(t, ports.SubjectKey{SubjectKeyID: key.SubjectKeyID, Reference: key.Reference, State: shredding.KeyDestroyed}, got)
		require.Equal(t, other, f.read(t, other.SubjectKeyID))
		for _, version := range []uint32{1, 3} {
			_, err := f.node.MintSubjectKey(t.Context(), keyTenant, minted(key.SubjectKeyID, key.Reference, version, 1))
			requireRefused(t, fault.Gone, "pii.subject_erased", err)
		}
		again, doneAgain, err := f.eraser.DestroyErasure(t.Context(), r.ID, nil)
		require.NoError(t, err)
		require.Equal(t, d, again, "the first destruction again")
		require.Equal(t, done, doneAgain)
		newest, err := f.node.ReportNode(t.Context(), "n", 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, newest)
	},
	"check that fails destroys nothing": func(t *testing.T, f *keyFixture) {
		key := f.mint(t, subjectKeyID(2, "employee:E-1", 0))
		r := f.fenced(t, key.SubjectKeyID)
		before := f.read(t, key.SubjectKeyID)
		refuse := func(context.Context) error {
			return fault.New(fault.FailedPrecondition, "test.refused", "something was recorded")
		}
		_, _, err := f.eraser.DestroyErasure(t.Context(), r.ID, refuse)
		require.Equal(t, "test.refused", fault.CodeOf(err))
		require.Equal(t, before, f.read(t, key.SubjectKeyID))
		d, _ := f.destroyed(t, r)
		require.EqualValues(t, 1, d.Receipt, "the refused one took no number")
		_, _, err = f.eraser.DestroyErasure(t.Context(), r.ID, refuse)
		require.NoError(t, err, "a repetition checks nothing")
	},
	"key of an erased unknown subject is never minted": func(t *testing.T, f *keyFixture) {
		r := newRequest(subjectKeyID(2, "employee:E-9", 0))
		r.Partitions = []event.PartitionID{2, 3}
		r = f.requested(t, r)
		r.Scope = scopeOfRequest
		r = f.move(t, r, shredding.ErasurePreviewed)
		r, err := f.eraser.ApproveErasure(t.Context(), r.ID, "p-controller", scopeOfRequest, r.UpdatedAt)
		require.NoError(t, err)
		r.Classes = []ports.ErasureClass{{Class: 2, Erased: true}, {Class: 0, Erased: true}, {Class: 1}}
		r, err = f.eraser.FenceErasure(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, shredding.KeyFenced, f.read(t, subjectKeyID(3, "employee:E-9", 2)).State)
		d, _ := f.destroyed(t, r)
		require.Len(t, d.Keys, 4)
		for i, k := range d.Keys {
			require.Equal(t, []any{event.PartitionID(2 + i/2), shredding.KeyClass(i % 2 * 2)}, []any{k.Partition, k.Class}, "by partition and class")
			require.Empty(t, k.Fingerprints)
			id := subjectKeyID(k.Partition, "employee:E-9", k.Class)
			require.Equal(t, k.Reference, f.read(t, id).Reference)
			_, err := f.node.MintSubjectKey(t.Context(), keyTenant, minted(id, uuid.NewString(), 1, 1))
			requireRefused(t, fault.Gone, "pii.subject_erased", err)
		}
		f.mint(t, subjectKeyID(2, "employee:E-9", 1))
	},
	"only fenced requests destroy": func(t *testing.T, f *keyFixture) {
		for _, state := range []shredding.ErasureState{shredding.ErasureRequested, shredding.ErasurePreviewed, shredding.ErasureApproved, shredding.ErasureRefused, shredding.ErasureExpired} {
			key := f.mint(t, subjectKeyID(2, "employee:"+string(state), 0))
			r := f.at(t, state, key.SubjectKeyID)
			_, _, err := f.eraser.DestroyErasure(t.Context(), r.ID, nil)
			requireRefused(t, fault.FailedPrecondition, "erasure.move_refused", err)
			require.Equal(t, key.Versions, f.read(t, key.SubjectKeyID).Versions)
		}
		_, _, err := f.eraser.DestroyErasure(t.Context(), event.ID{1}, nil)
		requireRefused(t, fault.NotFound, "erasure.not_found", err)
	},
	"request waits until its receipt is exported": func(t *testing.T, f *keyFixture) {
		d, r := f.destroyed(t, f.fenced(t, subjectKeyID(2, "employee:E-1", 0)))
		next := r
		next.State = shredding.ErasureReceipted
		refused := func() {
			_, err := f.eraser.MoveErasure(t.Context(), next)
			requireRefused(t, fault.FailedPrecondition, "erasure.move_refused", err)
		}
		refused()
		require.NoError(t, f.eraser.SaveReceipt(t.Context(), d.Receipt, []byte("note"), false))
		refused()
		requireRefused(t, fault.Internal, "erasure.receipt_changed", f.eraser.SaveReceipt(t.Context(), d.Receipt, []byte("other"), true))
		requireRefused(t, fault.NotFound, "erasure.not_found", f.eraser.SaveReceipt(t.Context(), 99, []byte("note"), true))
		for range 2 {
			require.NoError(t, f.eraser.SaveReceipt(t.Context(), d.Receipt, []byte("note"), true))
		}
		f.move(t, r, shredding.ErasureReceipted)
	},
	"receipts are numbered without gaps": func(t *testing.T, f *keyFixture) {
		const n = 8
		var requests []ports.ErasureRequest
		for i := range n {
			requests = append(requests, f.fenced(t, f.mint(t, subjectKeyID(2, fmt.Sprintf("employee:E-%d", i), 0)).SubjectKeyID))
		}
		_, _, err := f.eraser.DestroyErasure(t.Context(), event.ID{1}, nil) // takes no number
		require.Error(t, err)
		for _, err := range race(2*n, func(i int) error {
			_, _, err := f.eraser.DestroyErasure(context.WithoutCancel(t.Context()), requests[i/2].ID, nil)
			return err
		}) {
			require.NoError(t, err)
		}
		receipts, err := f.eraser.Receipts(t.Context(), 1, 0)
		require.NoError(t, err)
		require.Len(t, receipts, n)
		var previous event.Hash
		for i, r := range receipts {
			require.EqualValues(t, i+1, r.Number)
			d, _, err := f.eraser.DestroyErasure(t.Context(), r.RequestID, nil)
			require.NoError(t, err)
			require.Equal(t, r.Number, d.Receipt)
			require.EqualValues(t, i+1, d.Generation)
			require.True(t, d.PreviousKnown)
			require.Equal(t, previous, d.PreviousHash)
			if i+2 < n {
				later, _, err := f.eraser.DestroyErasure(t.Context(), receipts[i+2].RequestID, nil)
				require.NoError(t, err)
				require.False(t, later.PreviousKnown)
			}
			note := fmt.Appendf(nil, "note %d", i)
			require.NoError(t, f.eraser.SaveReceipt(t.Context(), r.Number, note, true))
			previous = sha256.Sum256(note)
		}
		page, err := f.eraser.Receipts(t.Context(), 3, 2)
		require.NoError(t, err)
		require.Equal(t, []ports.ErasureReceipt{
			{Number: 3, RequestID: receipts[2].RequestID, TenantID: keyTenant, Note: []byte("note 2"), Exported: true},
			{Number: 4, RequestID: receipts[3].RequestID, TenantID: keyTenant, Note: []byte("note 3"), Exported: true},
		}, page)
	},
	"mint and destruction race": func(t *testing.T, f *keyFixture) {
		for i := range 20 {
			id := subjectKeyID(2, fmt.Sprintf("employee:E-%d", i), 0)
			r := f.approved(t, id)
			r.Classes = []ports.ErasureClass{{Class: 0, Erased: true}}
			ctx := context.WithoutCancel(t.Context())
			errs := race(2, func(i int) error {
				if i == 0 {
					_, err := f.node.MintSubjectKey(ctx, keyTenant, minted(id, uuid.NewString(), 1, 1))
					return err
				}
				if _, err := f.eraser.FenceErasure(ctx, r); err != nil {
					return err
				}
				_, _, err := f.eraser.DestroyErasure(ctx, r.ID, nil)
				return err
			})
			require.NoError(t, errs[1])
			if errs[0] != nil {
				requireRefused(t, fault.Gone, "pii.subject_erased", errs[0])
			}
			got := f.read(t, id)
			require.Equal(t, shredding.KeyDestroyed, got.State)
			require.Empty(t, got.Versions)
		}
	},
	"replay destroys by fingerprint": func(t *testing.T, f *keyFixture) {
		node, eraser := f.harness.New(t)
		backup := &keyFixture{harness: f.harness, node: node, eraser: eraser}
		backup.activate(t, 1)
		id, later := subjectKeyID(2, "employee:E-1", 0), subjectKeyID(2, "employee:E-2", 0)
		key := minted(id, uuid.NewString(), 1, 1)
		for _, s := range []*keyFixture{f, backup} {
			_, err := s.node.MintSubjectKey(t.Context(), keyTenant, key)
			require.NoError(t, err)
			s.mint(t, later)
		}
		r := f.fenced(t, id)
		d, _ := f.destroyed(t, r)
		receipt := ports.ErasureReceipt{Number: d.Receipt, RequestID: r.ID, TenantID: keyTenant, Note: []byte("note"), Exported: true}
		keys := []ports.ReplayKey{
			{Partition: 2, Class: 0, Subject: id.Subject, Fingerprints: d.Keys[0].Fingerprints},
			{Partition: 2, Class: 0, Subject: later.Subject, Fingerprints: []shredding.Fingerprint{{1}}}, // of a key before the stored one
			{Partition: 9, Class: 1, Subject: "employee:E-9"},
		}
		signals := backup.listen(t)
		for range 2 {
			require.NoError(t, backup.eraser.ReplayErasure(t.Context(), receipt, keys))
		}
		signals.wait(t, key.Reference, 1)
		require.Equal(t, shredding.KeyDestroyed, backup.read(t, id).State)
		require.Equal(t, shredding.KeyDestroyed, backup.read(t, subjectKeyID(9, "employee:E-9", 1)).State)
		kept := backup.read(t, later)
		require.Equal(t, shredding.KeyFenced, kept.State)
		require.Len(t, kept.Versions, 1)
		receipts, err := backup.eraser.Receipts(t.Context(), 1, 0)
		require.NoError(t, err)
		require.Equal(t, []ports.ErasureReceipt{receipt}, receipts)
		newest, err := backup.node.ReportNode(t.Context(), "n", 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, newest)

		// The store has the receipt, and a key that it names: the key is destroyed all the same.
		again := []ports.ReplayKey{{Partition: 2, Class: 0, Subject: later.Subject, Fingerprints: []shredding.Fingerprint{kept.Versions[0].Fingerprint}}}
		for range 2 {
			require.NoError(t, backup.eraser.ReplayErasure(t.Context(), receipt, again))
		}
		signals.wait(t, kept.Reference, 1)
		gone := backup.read(t, later)
		require.Equal(t, shredding.KeyDestroyed, gone.State)
		require.Empty(t, gone.Versions)
		newest, err = backup.node.ReportNode(t.Context(), "n", 0)
		require.NoError(t, err)
		require.EqualValues(t, 2, newest, "once")

		other := receipt
		other.Note = []byte("other")
		requireRefused(t, fault.Internal, "erasure.receipt_changed", backup.eraser.ReplayErasure(t.Context(), other, keys))
		other.RequestID = event.ID{5}
		requireRefused(t, fault.Internal, "erasure.receipt_changed", backup.eraser.ReplayErasure(t.Context(), other, keys))
		other.Number, other.RequestID = 7, receipt.RequestID
		requireRefused(t, fault.Internal, "erasure.receipt_changed", backup.eraser.ReplayErasure(t.Context(), other, keys))
		// A store with another receipt under the number destroys the keys all the same.
		changed := backup.mint(t, subjectKeyID(2, "employee:E-4", 0))
		other.Number, other.RequestID = 1, event.ID{5}
		requireRefused(t, fault.Internal, "erasure.receipt_changed", backup.eraser.ReplayErasure(t.Context(), other, []ports.ReplayKey{
			{Partition: 2, Class: 0, Subject: changed.Subject, Fingerprints: []shredding.Fingerprint{changed.Versions[0].Fingerprint}},
		}))
		require.Equal(t, shredding.KeyDestroyed, backup.read(t, changed.SubjectKeyID).State)
		// The next one takes the next number.
		next, _ := backup.destroyed(t, backup.fenced(t, subjectKeyID(2, "employee:E-3", 0)))
		require.EqualValues(t, 2, next.Receipt)
		require.True(t, next.PreviousKnown)
		require.Equal(t, event.Hash(sha256.Sum256([]byte("note"))), next.PreviousHash)
	},
	"erasures, mints and rotations race": func(t *testing.T, f *keyFixture) {
		// Rotations wrap the keys of persons again while they are minted, get new versions
		// and are erased. No operation blocks for ever, and destroyed keys stay destroyed.
		const persons = 12
		ctx := context.WithoutCancel(t.Context())
		var ids []ports.SubjectKeyID
		var requests []ports.ErasureRequest
		for i := range persons {
			id := f.mint(t, subjectKeyID(2, fmt.Sprintf("employee:E-%d", i), 0)).SubjectKeyID
			r := f.approved(t, id)
			r.Classes = []ports.ErasureClass{{Class: 0, Erased: true}}
			ids, requests = append(ids, id), append(requests, r)
		}
		done := make(chan struct{})
		var rotating, wg sync.WaitGroup
		errs := make([]error, 2*persons)
		var rotated error
		rotating.Go(func() {
			for epoch := uint32(1); rotated == nil; epoch++ {
				if rotated = f.eraser.AddKEK(ctx, ports.KEK{TenantID: keyTenant, Epoch: epoch + 1, KeyID: kekOf(epoch + 1)}); rotated == nil {
					rotated = f.eraser.ActivateKEK(ctx, keyTenant, epoch+1)
				}
				for rotated == nil {
					var page []ports.WrappedRow
					if page, rotated = f.eraser.WrappedWith(ctx, keyTenant, epoch, 5); len(page) == 0 {
						break
					}
					_, rotated = f.eraser.SaveRewrapped(ctx, keyTenant, epoch, epoch+1, page)
				}
				if rotated == nil {
					rotated = f.eraser.CloseKEK(ctx, keyTenant, epoch, ports.KEKDeleting)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
		for i, id := range ids {
			wg.Go(func() { // new versions until it is erased
				for {
					got, err := f.node.SubjectKeys(ctx, []ports.SubjectKeyID{id})
					if err != nil || got[0].State == shredding.KeyDestroyed {
						errs[i] = err
						return
					}
					if got[0].State == shredding.KeyFenced {
						continue
					}
					kek, err := f.node.ActiveKEK(ctx, keyTenant)
					if err == nil {
						_, err = f.node.MintSubjectKey(ctx, keyTenant, minted(id, got[0].Reference, got[0].Active+1, kek.Epoch))
					}
					if err != nil && fault.CodeOf(err) != "keys.epoch_closed" && fault.CodeOf(err) != "pii.subject_erased" {
						errs[i] = err
						return
					}
				}
			})
			wg.Go(func() {
				if _, errs[persons+i] = f.eraser.FenceErasure(ctx, requests[i]); errs[persons+i] == nil {
					_, _, errs[persons+i] = f.eraser.DestroyErasure(ctx, requests[i].ID, nil)
				}
			})
		}
		wg.Wait()
		close(done)
		rotating.Wait()
		require.NoError(t, rotated)
		for _, err := range errs {
			require.NoError(t, err)
		}
		keks, err := f.eraser.KEKs(t.Context(), keyTenant)
		require.NoError(t, err)
		for _, kek := range keks {
			left, err := f.eraser.CountWrappedWith(t.Context(), keyTenant, kek.Epoch)
			require.NoError(t, err)
			require.Zero(t, left, "nothing came back")
		}
		for _, id := range ids {
			require.Equal(t, shredding.KeyDestroyed, f.read(t, id).State)
		}
	},
	"eviction waits for every node": func(t *testing.T, f *keyFixture) {
		// A caller's clock that is ahead does not end the wait.
		_, err := f.node.ReportNode(t.Context(), "n", 0)
		require.NoError(t, err)
		d, r := f.destroyed(t, f.fenced(t, f.mint(t, subjectKeyID(2, "employee:E-1", 0)).SubjectKeyID))
		require.NoError(t, f.eraser.SaveReceipt(t.Context(), d.Receipt, []byte("note"), true))
		r = f.move(t, f.move(t, r, shredding.ErasureReceipted), shredding.ErasureAnnounced)
		early := r
		early.State, early.EvictedAt = shredding.ErasureEvicted, time.Now().Add(time.Hour).Truncate(time.Microsecond)
		_, err = f.eraser.MoveErasure(t.Context(), early)
		requireRefused(t, fault.FailedPrecondition, "erasure.move_refused", err)
		_, err = f.node.ReportNode(t.Context(), "n", d.Generation)
		require.NoError(t, err)
		f.move(t, r, shredding.ErasureEvicted)
	},
	"key of another tenant is kept": func(t *testing.T, f *keyFixture) {
		key := f.mint(t, subjectKeyID(2, "employee:E-1", 1))
		r := newRequest(key.SubjectKeyID)
		r.TenantID = "rival" // it names a partition of another tenant
		r = f.requested(t, r)
		r.Preview, r.Scope = json.RawMessage(`{}`), scopeOfRequest
		r = f.move(t, r, shredding.ErasurePreviewed)
		r, err := f.eraser.ApproveErasure(t.Context(), r.ID, "p-controller", scopeOfRequest, time.Now())
		require.NoError(t, err)
		r.Classes = []ports.ErasureClass{{Class: 0, Erased: true}}
		_, err = f.eraser.FenceErasure(t.Context(), r)
		requireRefused(t, fault.Internal, "keys.request_invalid", err)
		r.Classes[0].Class = 1
		_, err = f.eraser.FenceErasure(t.Context(), r)
		requireRefused(t, fault.Internal, "keys.request_invalid", err)
		receipt := ports.ErasureReceipt{Number: 1, RequestID: r.ID, TenantID: "rival", Note: []byte("note"), Exported: true}
		requireRefused(t, fault.Internal, "keys.request_invalid", f.eraser.ReplayErasure(t.Context(), receipt, []ports.ReplayKey{
			{Partition: 2, Class: 1, Subject: key.Subject, Fingerprints: []shredding.Fingerprint{key.Versions[0].Fingerprint}},
		}))
		require.Equal(t, shredding.KeyActive, f.read(t, key.SubjectKeyID).State)
	},
	"replay moves its request forward": func(t *testing.T, f *keyFixture) {
		// The store comes from a backup that is older than the destruction. The keys are
		// destroyed, so the request can only move forward, in whichever state the backup has it.
		until := event.MustDate("2031-12-31")
		for i, state := range []shredding.ErasureState{shredding.ErasureRequested, shredding.ErasurePreviewed, shredding.ErasureApproved, shredding.ErasureFenced} {
			key := f.mint(t, subjectKeyID(2, "employee:"+string(state), 0))
			r := newRequest(key.SubjectKeyID)
			r.Partitions = []event.PartitionID{2, 7} // more than was erased
			r = f.requested(t, r)
			if state != shredding.ErasureRequested {
				r.Preview, r.Scope, r.Classes = json.RawMessage(`{}`), scopeOfRequest, []ports.ErasureClass{{Class: 0, Erased: true}, {Class: 1, Refused: "retention", Until: &until}, {Class: 2, Erased: true}}
				r = f.move(t, r, shredding.ErasurePreviewed)
			}
			if state == shredding.ErasureApproved || state == shredding.ErasureFenced {
				var err error
				r, err = f.eraser.ApproveErasure(t.Context(), r.ID, "p-controller", scopeOfRequest, time.Now())
				require.NoError(t, err)
			}
			if state == shredding.ErasureFenced {
				var err error
				r, err = f.eraser.FenceErasure(t.Context(), r)
				require.NoError(t, err)
			}
			receipt := ports.ErasureReceipt{Number: uint64(i + 1), RequestID: r.ID, TenantID: keyTenant, Note: []byte("note"), Exported: true}
			print := key.Versions[0].Fingerprint
			for range 2 {
				require.NoError(t, f.eraser.ReplayErasure(t.Context(), receipt, []ports.ReplayKey{
					{Partition: 2, Class: 0, Subject: key.Subject, Fingerprints: []shredding.Fingerprint{print}},
					{Partition: 2, Class: 2, Subject: key.Subject},
				}))
			}
			for _, end := range []shredding.ErasureState{shredding.ErasureRejected, shredding.ErasureWithdrawn, shredding.ErasureExpired, shredding.ErasureRefused} {
				ended := r
				ended.State = end
				_, err := f.eraser.MoveErasure(t.Context(), ended)
				require.Error(t, err, "%s to %s", state, end)
			}
			_, err := f.eraser.RefuseErasure(t.Context(), r, "legal_hold")
			requireRefused(t, fault.Conflict, "erasure.changed", err)
			require.Equal(t, shredding.KeyDestroyed, f.read(t, key.SubjectKeyID).State)

			d, done := f.destroyed(t, r)
			require.Len(t, d.Keys, 2)
			require.EqualValues(t, i+1, d.Receipt)
			require.EqualValues(t, i+1, done.Receipt)
			require.Equal(t, d.Generation, done.Generation)
			require.Equal(t, r.Revision+1, done.Revision)
			require.False(t, done.DestroyedAt.IsZero())
			require.Equal(t, []event.PartitionID{2}, done.Partitions, "what the receipt names")
			kept := ports.ErasureClass{Class: 1}
			if state != shredding.ErasureRequested {
				kept.Refused, kept.Until = "retention", &until
			}
			require.Equal(t, []ports.ErasureClass{{Class: 0, Erased: true}, kept, {Class: 2, Erased: true}}, done.Classes)
			f.move(t, done, shredding.ErasureReceipted)
		}
	},
	"replay takes over the fence of another request": func(t *testing.T, f *keyFixture) {
		// Another request for the person has set the fence. It is refused after the replay,
		// which has taken the fence over: the fence stays.
		key := f.mint(t, subjectKeyID(2, "employee:E-1", 0))
		r := f.fenced(t, key.SubjectKeyID)
		receipt := ports.ErasureReceipt{Number: 1, RequestID: event.ID{9}, TenantID: keyTenant, Note: []byte("note"), Exported: true}
		require.NoError(t, f.eraser.ReplayErasure(t.Context(), receipt, []ports.ReplayKey{
			{Partition: 2, Class: 0, Subject: key.Subject, Fingerprints: []shredding.Fingerprint{{1}}}, // of a key before the stored one
		}))
		_, err := f.eraser.RefuseErasure(t.Context(), r, "legal_hold")
		require.NoError(t, err)
		require.Equal(t, shredding.KeyFenced, f.read(t, key.SubjectKeyID).State)
	},
	"replayed request is destroyed with its first receipt": func(t *testing.T, f *keyFixture) {
		key := f.mint(t, subjectKeyID(2, "employee:E-1", 0))
		r := f.fenced(t, key.SubjectKeyID)
		receipt := ports.ErasureReceipt{Number: 1, RequestID: r.ID, TenantID: keyTenant, Note: []byte("note"), Exported: true}
		require.NoError(t, f.eraser.ReplayErasure(t.Context(), receipt, []ports.ReplayKey{
			{Partition: 2, Class: 0, Subject: "employee:E-1", Fingerprints: []shredding.Fingerprint{key.Versions[0].Fingerprint}},
		}))
		d, done := f.destroyed(t, r)
		require.EqualValues(t, 1, d.Receipt)
		require.EqualValues(t, 1, d.Generation, "destroyed once")
		require.Equal(t, []ports.DestroyedKey{{Partition: 2, Class: 0, Reference: key.Reference, Fingerprints: []shredding.Fingerprint{key.Versions[0].Fingerprint}}}, d.Keys)
		f.move(t, done, shredding.ErasureReceipted)
	},
	"fingerprints are listed by receipt": func(t *testing.T, f *keyFixture) {
		var want []ports.ReceiptFingerprints
		for i := range 3 {
			key := f.mint(t, subjectKeyID(2, fmt.Sprintf("employee:E-%d", i), 0))
			d, _ := f.destroyed(t, f.fenced(t, key.SubjectKeyID)) // not signed
			want = append(want, ports.ReceiptFingerprints{Number: d.Receipt, Fingerprints: []shredding.Fingerprint{key.Versions[0].Fingerprint}})
		}
		d, _ := f.destroyed(t, f.fenced(t, subjectKeyID(2, "employee:unknown", 0)))
		want = append(want, ports.ReceiptFingerprints{Number: d.Receipt})
		for _, c := range []struct {
			from  uint64
			limit int
			want  []ports.ReceiptFingerprints
		}{{1, 0, want}, {1, 2, want[:2]}, {3, 10, want[2:]}, {5, 10, []ports.ReceiptFingerprints{}}} {
			got, err := f.eraser.DestroyedFingerprints(t.Context(), c.from, c.limit)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		}
	},
}

package keyrotation_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/keyrotation"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// newFixtureWithKeys makes one KEK and n keys of persons, after the erasure of one more.
func newFixtureWithKeys(t *testing.T, n int) *rotationFixture {
	t.Helper()
	r := newRotationFixture()
	require.NoError(t, r.service().EnsureKEK(t.Context(), tenant))
	r.mintKeys(t, n+1)
	r.erase(0)
	return r
}

// requireRotated requires that no key is wrapped with the old KEK, that every surviving key opens
// and is unchanged, that one new KEK was made, and that the deletion of the old one is scheduled.
func (r *rotationFixture) requireRotated(t *testing.T, survivors int) {
	t.Helper()
	require.Len(t, r.keks, 2)
	require.Equal(t, []ports.KEKState{ports.KEKDeleting, ports.KEKActive}, []ports.KEKState{r.keks[0].State, r.keks[1].State})
	require.Len(t, r.keys, 2, "one new key in the key service")
	require.Equal(t, ports.KeyPendingDeletion, r.keys[r.keks[0].KeyID].State)
	require.Empty(t, r.wrappedWith(tenant, 1))
	require.Len(t, r.wrappedWith(tenant, 2), survivors)
	r.requireOpen(t)
	var manifests int
	for name := range r.exports {
		if strings.HasSuffix(name, "/manifest.json") {
			manifests++
		}
	}
	require.Equal(t, 1, manifests, "older exports are removed")
	note := string(r.exports[keyrotation.NoticeName(tenant, 1)])
	require.Contains(t, note, "backbone/epoch-notice/v1\ntenant acme\nended epoch 1\n")
	require.Contains(t, note, "covers erasure receipts to 1\n")
}

func (r *rotationFixture) requireOpen(t *testing.T) {
	t.Helper()
	for _, k := range r.rows {
		plain, err := r.Unwrap(t.Context(), k.KEK, k.Wrapped, ports.Bound(k.Partition, k.Reference, k.Version))
		require.NoError(t, err)
		require.NoError(t, plain.Use(func(dek []byte) error {
			if k.dek != nil && !bytes.Equal(k.dek, dek) {
				return fmt.Errorf("key %s is another key now", k.Reference)
			}
			return nil
		}))
	}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	const survivors = 2*keyrotation.PageSize + 7
	r := newFixtureWithKeys(t, survivors)
	var seen []keyrotation.Step
	out, err := r.service().Rotate(t.Context(), tenant, func(s keyrotation.Step) { seen = append(seen, s) })
	require.NoError(t, err)
	r.requireRotated(t, survivors)
	require.Equal(t, keyrotation.Outcome{
		TenantID: tenant, Ended: 1, Active: 2, Rewrapped: survivors, Export: 1, Covers: 1, DeletionAt: r.clock.Now().AddDate(0, 0, 7),
	}, out)
	require.True(t, slices.IsSortedFunc(seen, func(a, b keyrotation.Step) int { return a.Number - b.Number }))
	require.Contains(t, seen, keyrotation.Step{TenantID: tenant, Number: 3, Title: "Wrapping the keys again", Done: survivors, Total: survivors})

	// A later run marks the KEK as deleted once the key service has deleted it.
	r.advance(7 * 24 * time.Hour)
	out, err = r.service().Rotate(t.Context(), tenant, nil)
	require.NoError(t, err)
	require.Equal(t, ports.KEKDeleted, r.keks[0].State)
	require.EqualValues(t, 3, out.Active)
	require.EqualValues(t, 2, out.Export)
	r.requireOpen(t)
}

// TestRotate_CrashAtEveryCall: the process dies at each call to a port, before or after the call
// takes effect, and the next run finishes.
func TestRotate_CrashAtEveryCall(t *testing.T) {
	t.Parallel()
	const survivors = 12
	calls := 0
	{
		r := newFixtureWithKeys(t, survivors)
		r.calls, r.names = 0, nil
		_, err := r.service().Rotate(t.Context(), tenant, nil)
		require.NoError(t, err)
		calls = r.calls
		require.Greater(t, calls, 40)
	}
	for _, after := range []bool{false, true} {
		for at := 1; at <= calls; at++ {
			r := newFixtureWithKeys(t, survivors)
			*r.faultInjector = faultInjector{failAt: at, after: after}
			_, err := r.service().Rotate(t.Context(), tenant, nil)
			where := fmt.Sprintf("call %d of %d (%s), after: %t", at, calls, r.names[len(r.names)-1], after)
			require.ErrorIs(t, err, errCrash, where)
			*r.faultInjector = faultInjector{}
			r.requireOpen(t) // keys open between the runs too

			finished := r.keks[0].State == ports.KEKDeleting
			if finished { // only the deletion is left: the nightly job does it without a new epoch
				require.NoError(t, r.service().Night(t.Context(), keyrotation.Nightly{}), where)
			} else {
				_, err = r.service().Rotate(t.Context(), tenant, nil)
				require.NoError(t, err, where)
			}
			r.requireRotated(t, survivors)
		}
	}
}

func TestRotate_AgainAfterErasureDuringInterruption(t *testing.T) {
	t.Parallel()
	r := newFixtureWithKeys(t, 5)
	calls := 0
	for i, name := range func() []string {
		probe := newFixtureWithKeys(t, 5)
		probe.names = nil
		_, err := probe.service().Rotate(t.Context(), tenant, nil)
		require.NoError(t, err)
		return probe.names
	}() {
		if name == "SaveRewrapped" {
			calls = i + 1
		}
	}
	*r.faultInjector = faultInjector{failAt: calls, after: true}
	_, err := r.service().Rotate(t.Context(), tenant, nil)
	require.ErrorIs(t, err, errCrash)
	*r.faultInjector = faultInjector{}
	// The erased key was wrapped with the new KEK: the new epoch does not cover the erasure.
	r.erase(0)
	out, err := r.service().Rotate(t.Context(), tenant, nil)
	require.NoError(t, err)
	require.EqualValues(t, 3, out.Active)
	require.EqualValues(t, 2, out.Covers)
	require.Contains(t, string(r.exports[keyrotation.NoticeName(tenant, 1)]), "receipts to 1\n")
	require.Contains(t, string(r.exports[keyrotation.NoticeName(tenant, 2)]), "receipts to 2\n")
	r.requireOpen(t)
}

// TestRotate_RestoredDatabaseIsRefused: the epochs of a restored database are outdated, and its
// keys have to be restored first.
func TestRotate_RestoredDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	r := newFixtureWithKeys(t, 3)
	r.gateError = fault.New(fault.Unavailable, "pii.receipts_behind", "restored; replay")
	_, err := r.service().Rotate(t.Context(), tenant, nil)
	require.ErrorIs(t, err, r.gateError)
	require.ErrorIs(t, r.service().Night(t.Context(), keyrotation.Nightly{}), r.gateError)
	require.Len(t, r.keks, 1)
	r.gateError = nil
	require.NoError(t, r.service().Night(t.Context(), keyrotation.Nightly{}))
	r.requireRotated(t, 3)
}

func TestEnsureKEK_Concurrent(t *testing.T) {
	t.Parallel()
	r := newRotationFixture()
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			if err := r.service().EnsureKEK(t.Context(), tenant); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	require.Len(t, r.keks, 1)
	require.Equal(t, ports.KEKActive, r.keks[0].State)
	require.Len(t, r.keys, 1)

	_, err := r.service().Rotate(t.Context(), "unknown", nil)
	require.Equal(t, "keys.kek_missing", fault.CodeOf(err))
}

func TestRotate_UnreadableKeyKeepsOldEpoch(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(r *rotationFixture){
		"unwraps to another key": func(r *rotationFixture) { r.rows[3].Fingerprint[0] ^= 1 },
		"does not unwrap":        func(r *rotationFixture) { r.rows[3].Wrapped = []byte("nonsense") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixtureWithKeys(t, 20)
			breakIt(r)
			_, err := r.service().Rotate(t.Context(), tenant, nil)
			require.Error(t, err)
			require.Equal(t, ports.KEKDraining, r.keks[0].State)
			require.Equal(t, ports.KeyEnabled, r.keys[r.keks[0].KeyID].State)
		})
	}
}

func TestRotate_DamagedExportKeepsOldEpoch(t *testing.T) {
	t.Parallel()
	r := newFixtureWithKeys(t, 20)
	exports := &lossyExportStore{exportStore: exportStore{r}}
	s := testkit.Must(keyrotation.New(keyrotation.Config{
		Keys: r, Recovery: r, KMS: r, DataKeys: r, Exports: exports, Receipts: r, Notary: r, Clock: r.clock, AliasPrefix: "alias/backbone/test",
		Limits: keyrotation.Limits{DeletionDays: 7, Workers: 8},
	}))
	for _, how := range []func([]byte) []byte{
		func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		func(b []byte) []byte { return b[:len(b)-1] },
		nil,
	} {
		exports.change = how
		_, err := s.Rotate(t.Context(), tenant, nil)
		require.Equal(t, "keys.export_damaged", fault.CodeOf(err))
		require.Equal(t, ports.KEKDraining, r.keks[0].State)
	}
	_, err := r.service().Rotate(t.Context(), tenant, nil)
	require.NoError(t, err)
	r.requireRotated(t, 20)
}

func TestRestore_ReplacesKeysOfDeletedKEK(t *testing.T) {
	t.Parallel()
	r := newFixtureWithKeys(t, 30)
	backupKEKs, backupRows := slices.Clone(r.keks), slices.Clone(r.rows)
	r.erase(0)
	_, err := r.service().Rotate(t.Context(), tenant, nil)
	require.NoError(t, err)
	want := slices.Clone(r.rows)
	r.advance(8 * 24 * time.Hour)

	r.keks, r.rows = backupKEKs, backupRows
	erased := backupRows[0]
	_, err = r.Unwrap(t.Context(), erased.KEK, erased.Wrapped, ports.Bound(erased.Partition, erased.Reference, 1))
	require.Equal(t, "kms.key_not_found", fault.CodeOf(err))
	out, err := r.service().Restore(t.Context(), 0, nil)
	require.NoError(t, err)
	require.EqualValues(t, len(want), out.Keys)
	require.Len(t, out.Dead, 1)
	for _, k := range r.rows {
		_, err := r.Unwrap(t.Context(), k.KEK, k.Wrapped, ports.Bound(k.Partition, k.Reference, 1))
		if k.Reference == erased.Reference {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
	}
	again, err := r.service().Restore(t.Context(), 0, nil)
	require.NoError(t, err)
	require.Zero(t, again.Keys)
	_, err = r.service().Restore(t.Context(), 99, nil)
	require.Equal(t, "keys.export_missing", fault.CodeOf(err))
	require.NotContains(t, err.Error(), "--list", "there is no such flag")
}

func TestNightly_RotatesOncePerInstallation(t *testing.T) {
	t.Parallel()
	r := newFixtureWithKeys(t, 5)
	require.NoError(t, r.service().EnsureKEK(t.Context(), "other"))
	night := keyrotation.Nightly{At: 2 * time.Hour, MaximumAge: 365 * 24 * time.Hour}
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			if err := r.service().Night(t.Context(), night); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	due, err := r.service().Due(t.Context(), night.MaximumAge)
	require.NoError(t, err)
	require.Empty(t, due)
	require.NotNil(t, r.kek(tenant, 2))
	require.Nil(t, r.kek("other", 2), "no person of that tenant was erased")

	r.erase(0)
	require.NoError(t, r.service().Night(t.Context(), night))
	require.Nil(t, r.kek(tenant, 3), "the job ran in this night already")
	r.advance(24 * time.Hour)
	require.NoError(t, r.service().Night(t.Context(), night))
	require.NotNil(t, r.kek(tenant, 3))

	r.advance(366 * 24 * time.Hour)
	require.NoError(t, r.service().Night(t.Context(), night))
	require.NotNil(t, r.kek("other", 2), "the KEK has reached its maximum age")
	for name := range r.exports {
		require.False(t, strings.HasPrefix(name, "nightly/2026"), name)
	}
}

// TestNightly_TakesOverFromDeadNode: another node continues an hour after the claim.
func TestNightly_TakesOverFromDeadNode(t *testing.T) {
	t.Parallel()
	r := newFixtureWithKeys(t, 5)
	*r.faultInjector = faultInjector{failAt: 12}
	require.Error(t, r.service().Night(t.Context(), keyrotation.Nightly{}))
	*r.faultInjector = faultInjector{}
	require.NoError(t, r.service().Night(t.Context(), keyrotation.Nightly{}))
	require.NotEqual(t, ports.KEKDeleting, r.keks[0].State, "the node that claimed the night may still run")
	r.advance(time.Hour)
	require.NoError(t, r.service().Night(t.Context(), keyrotation.Nightly{}))
	r.requireRotated(t, 5)
}

// TestRotate_NoticeAfterRestore ends an epoch that has a notice of another KEK, from before the
// database was restored.
func TestRotate_NoticeAfterRestore(t *testing.T) {
	t.Parallel()
	r := newFixtureWithKeys(t, 3)
	earlier := []byte("backbone/epoch-notice/v1\ntenant acme\nended epoch 1\nkey another\n")
	r.exports[keyrotation.NoticeName(tenant, 1)] = earlier
	for range 2 { // the second rotation continues the deletion of the first KEK
		_, err := r.service().Rotate(t.Context(), tenant, nil)
		require.NoError(t, err)
		require.Equal(t, earlier, r.exports[keyrotation.NoticeName(tenant, 1)])
		require.Contains(t, string(r.exports["epochs/acme/1/ended-2.note"]), "\nkey "+r.keks[0].KeyID+"\n")
		require.NotContains(t, r.exports, "epochs/acme/1/ended-3.note")
	}
}

// TestRotate_NoticeAfterCancelledDeletion: an operator of the key service cancels the deletion of
// a KEK. It is scheduled again for a later day, and the notices do not end with the first one.
func TestRotate_NoticeAfterCancelledDeletion(t *testing.T) {
	t.Parallel()
	r := newFixtureWithKeys(t, 3)
	rotate := func() {
		t.Helper()
		_, err := r.service().Rotate(t.Context(), tenant, nil)
		require.NoError(t, err)
	}
	destroyedAt := func() string {
		return "\nkey destroyed at " + r.keys[r.keks[0].KeyID].DeletionAt.UTC().Format(time.RFC3339) + "\n"
	}
	rotate()
	first, earlier := string(r.exports[keyrotation.NoticeName(tenant, 1)]), destroyedAt()
	require.Contains(t, first, earlier)
	r.advance(5 * 24 * time.Hour)
	r.keys[r.keks[0].KeyID].State = ports.KeyDisabled // cancelled
	r.advance(3 * 24 * time.Hour)
	for range 2 {
		rotate()
		require.NotEqual(t, earlier, destroyedAt())
		require.Equal(t, first, string(r.exports[keyrotation.NoticeName(tenant, 1)]))
		require.Contains(t, string(r.exports["epochs/acme/1/ended-2.note"]), destroyedAt())
	}
	r.advance(7 * 24 * time.Hour)
	rotate()
	require.Equal(t, ports.KEKDeleted, r.keks[0].State)
	require.NotContains(t, r.exports, "epochs/acme/1/ended-3.note", "the last notice tells the time")
}

// TestNewRefusesMissingLimits checks that a limit which the caller left out is no default.
func TestNewRefusesMissingLimits(t *testing.T) {
	t.Parallel()
	_, err := keyrotation.New(keyrotation.Config{Limits: keyrotation.Limits{DeletionDays: 7}})
	require.ErrorContains(t, err, "Workers")
}

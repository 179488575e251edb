package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// secret stores a tenant secret under the active epoch.
func (f *keyFixture) secret(t *testing.T, purpose string) ports.TenantSecret {
	t.Helper()
	m := minted(ports.SubjectKeyID{}, uuid.NewString(), 1, f.epoch(t))
	s, err := f.node.SaveTenantSecret(t.Context(), ports.TenantSecret{TenantID: keyTenant, Purpose: purpose, Reference: m.Reference, WrappedKey: m.WrappedKey})
	require.NoError(t, err)
	return s
}

func (f *keyFixture) count(t *testing.T, epoch uint32) int64 {
	t.Helper()
	n, err := f.eraser.CountWrappedWith(t.Context(), keyTenant, epoch)
	require.NoError(t, err)
	return n
}

// rewrap wraps all rows of an epoch again.
func (f *keyFixture) rewrap(t *testing.T, from, to uint32) int64 {
	t.Helper()
	rows, err := f.eraser.WrappedWith(t.Context(), keyTenant, from, 0)
	require.NoError(t, err)
	for i := range rows {
		rows[i].Wrapped = append([]byte("again "), rows[i].Wrapped...)
	}
	n, err := f.eraser.SaveRewrapped(t.Context(), keyTenant, from, to, rows)
	require.NoError(t, err)
	return n
}

func (f *keyFixture) export(t *testing.T) [][]byte {
	t.Helper()
	var lines [][]byte
	require.NoError(t, f.eraser.ExportKeys(t.Context(), func(line []byte) error {
		require.NotContains(t, string(line), "\n")
		lines = append(lines, slices.Clone(line))
		return nil
	}))
	return lines
}

func exported(lines [][]byte) ports.ExportedLines {
	return func(yield func([]byte) bool) error {
		for _, line := range lines {
			if !yield(line) {
				return nil
			}
		}
		return nil
	}
}

func kekStates(keks []ports.KEK) string {
	out := ""
	for _, k := range keks {
		out += fmt.Sprintf("%s/%d/%s=%s ", k.TenantID, k.Epoch, k.KeyID, k.State)
	}
	return out
}

var rotationTests = map[string]func(*testing.T, *keyFixture){
	"epochs follow each other": func(t *testing.T, f *keyFixture) {
		add := func(tenant string, epoch uint32, id string) error {
			return f.eraser.AddKEK(t.Context(), ports.KEK{TenantID: tenant, Epoch: epoch, KeyID: id})
		}
		require.NoError(t, add(keyTenant, 1, kekOf(1)), "a repeat")
		requireRefused(t, fault.Conflict, "keys.epoch_taken", add(keyTenant, 1, "other"))
		requireRefused(t, fault.Conflict, "keys.epoch_taken", add(keyTenant, 3, "other"))
		require.NoError(t, add(keyTenant, 2, kekOf(2)))
		require.NoError(t, add("zeta", 1, "z"))
		requireRefused(t, fault.NotFound, "keys.epoch_missing", f.eraser.ActivateKEK(t.Context(), keyTenant, 9))
		for range 2 {
			require.NoError(t, f.eraser.ActivateKEK(t.Context(), keyTenant, 2))
		}
		requireRefused(t, fault.FailedPrecondition, "keys.move_refused", f.eraser.ActivateKEK(t.Context(), keyTenant, 1))
		require.NoError(t, add(keyTenant, 3, kekOf(3)))
		requireRefused(t, fault.FailedPrecondition, "keys.move_refused", f.eraser.ActivateKEK(t.Context(), keyTenant, 3)) // 1 still drains
		all, err := f.eraser.KEKs(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, "acme/1/kek-1=draining acme/2/kek-2=active acme/3/kek-3=pending zeta/1/z=pending ", kekStates(all))
		own, err := f.eraser.KEKs(t.Context(), "zeta")
		require.NoError(t, err)
		require.Equal(t, "zeta/1/z=pending ", kekStates(own))
	},
	"epoch closes when it is empty": func(t *testing.T, f *keyFixture) {
		closeTo := func(epoch uint32, to ports.KEKState) error {
			return f.eraser.CloseKEK(t.Context(), keyTenant, epoch, to)
		}
		f.mint(t, subjectKeyID(2, "employee:E-1", 0))
		requireRefused(t, fault.FailedPrecondition, "keys.move_refused", closeTo(1, ports.KEKDeleting)) // active
		f.activate(t, 2)
		requireRefused(t, fault.FailedPrecondition, "keys.epoch_in_use", closeTo(1, ports.KEKDeleting))
		requireRefused(t, fault.FailedPrecondition, "keys.move_refused", closeTo(1, ports.KEKDeleted))
		require.EqualValues(t, 1, f.rewrap(t, 1, 2))
		for _, to := range []ports.KEKState{ports.KEKDeleting, ports.KEKDeleting, ports.KEKDeleted, ports.KEKDeleted} {
			require.NoError(t, closeTo(1, to))
		}
		requireRefused(t, fault.FailedPrecondition, "keys.move_refused", closeTo(1, ports.KEKDeleting))
		requireRefused(t, fault.NotFound, "keys.epoch_missing", closeTo(9, ports.KEKDeleting))
	},
	"re-wrapping keeps keys and skips destroyed ones": func(t *testing.T, f *keyFixture) {
		first := f.mint(t, subjectKeyID(2, "employee:E-1", 0))
		both, err := f.node.MintSubjectKey(t.Context(), keyTenant, minted(first.SubjectKeyID, first.Reference, 2, 1))
		require.NoError(t, err)
		gone := f.mint(t, subjectKeyID(2, "employee:E-2", 0))
		secret := f.secret(t, "fingerprint")
		require.EqualValues(t, 4, f.count(t, 1))
		f.activate(t, 2)
		page, err := f.eraser.WrappedWith(t.Context(), keyTenant, 1, 3)
		require.NoError(t, err)
		require.Len(t, page, 3)
		sample, err := f.eraser.SampleKeys(t.Context(), keyTenant, 1, 10)
		require.NoError(t, err)
		require.Len(t, sample, 4)
		rows, err := f.eraser.WrappedWith(t.Context(), keyTenant, 1, 0)
		require.NoError(t, err)
		require.ElementsMatch(t, []ports.WrappedRow{
			{Partition: 2, Reference: both.Reference, WrappedKey: both.Versions[0]}, {Partition: 2, Reference: both.Reference, WrappedKey: both.Versions[1]},
			{Partition: 2, Reference: gone.Reference, WrappedKey: gone.Versions[0]}, {Reference: secret.Reference, WrappedKey: secret.WrappedKey},
		}, rows)
		require.ElementsMatch(t, rows, sample)

		f.destroyed(t, f.fenced(t, gone.SubjectKeyID))
		for i := range rows {
			rows[i].Wrapped = append([]byte("again "), rows[i].Wrapped...)
		}
		_, err = f.eraser.SaveRewrapped(t.Context(), keyTenant, 2, 1, rows)
		requireRefused(t, fault.Conflict, "keys.epoch_closed", err)
		n, err := f.eraser.SaveRewrapped(t.Context(), keyTenant, 1, 2, rows)
		require.NoError(t, err)
		require.EqualValues(t, 3, n)
		n, err = f.eraser.SaveRewrapped(t.Context(), keyTenant, 1, 2, rows)
		require.NoError(t, err)
		require.Zero(t, n)
		require.Zero(t, f.count(t, 1))
		require.EqualValues(t, 3, f.count(t, 2))
		require.Empty(t, f.read(t, gone.SubjectKeyID).Versions)
		for i, v := range f.read(t, first.SubjectKeyID).Versions {
			want := both.Versions[i]
			want.Epoch, want.KEK, want.Wrapped = 2, kekOf(2), append([]byte("again "), want.Wrapped...)
			require.Equal(t, want, v)
		}
		stored, err := f.node.TenantSecret(t.Context(), keyTenant, "fingerprint")
		require.NoError(t, err)
		require.EqualValues(t, 2, stored.Epoch)
	},
	"sampling an export changes nothing": func(t *testing.T, f *keyFixture) {
		for i := range 5 {
			f.mint(t, subjectKeyID(2, fmt.Sprintf("employee:E-%d", i), 0))
		}
		f.secret(t, "fingerprint")
		lines := f.export(t)
		before, err := f.eraser.WrappedWith(t.Context(), keyTenant, 1, 0)
		require.NoError(t, err)
		f.destroyed(t, f.fenced(t, subjectKeyID(2, "employee:E-0", 0)))
		rows, total, err := f.eraser.SampleExport(t.Context(), exported(lines), keyTenant, 1, 100)
		require.NoError(t, err)
		require.EqualValues(t, 6, total)
		require.ElementsMatch(t, before, rows)
		rows, total, err = f.eraser.SampleExport(t.Context(), exported(lines), keyTenant, 1, 2)
		require.NoError(t, err)
		require.EqualValues(t, 6, total)
		require.Len(t, rows, 2)
		rows, total, err = f.eraser.SampleExport(t.Context(), exported(lines), keyTenant, 7, 2)
		require.NoError(t, err)
		require.Zero(t, total)
		require.Empty(t, rows)
		require.EqualValues(t, 5, f.count(t, 1), "the store is as it was")
		keks, err := f.eraser.ExportedKEKs(t.Context(), exported(lines))
		require.NoError(t, err)
		require.Equal(t, "acme/1/kek-1=active ", kekStates(keks))
		_, _, err = f.eraser.SampleExport(t.Context(), exported([][]byte{[]byte("{")}), keyTenant, 1, 1)
		requireRefused(t, fault.Invalid, "keys.export_damaged", err)
		stop := fault.New(fault.Unavailable, "test.stopped", "stopped")
		_, err = f.eraser.RestoreKeys(t.Context(), func(func([]byte) bool) error { return stop }, nil)
		require.Equal(t, "test.stopped", fault.CodeOf(err))
	},
	"restored keys replace those of dead epochs": func(t *testing.T, f *keyFixture) {
		// A backup is an export restored into an empty store.
		kept, gone := f.mint(t, subjectKeyID(2, "employee:E-1", 0)), f.mint(t, subjectKeyID(2, "employee:E-2", 0))
		f.secret(t, "fingerprint")
		node, eraser := f.harness.New(t)
		backup := &keyFixture{harness: f.harness, node: node, eraser: eraser}
		n, err := eraser.RestoreKeys(t.Context(), exported(f.export(t)), nil)
		require.NoError(t, err)
		require.EqualValues(t, 3, n)
		require.Equal(t, kept, backup.read(t, kept.SubjectKeyID))
		require.Equal(t, "acme/1/kek-1=active ", kekStates(testkit.Must(eraser.KEKs(t.Context(), ""))))

		// Then one is erased, the epoch changes, another version and another key come.
		f.destroyed(t, f.fenced(t, gone.SubjectKeyID))
		f.activate(t, 2)
		require.EqualValues(t, 2, f.rewrap(t, 1, 2))
		require.NoError(t, f.eraser.CloseKEK(t.Context(), keyTenant, 1, ports.KEKDeleting))
		_, err = f.node.MintSubjectKey(t.Context(), keyTenant, minted(kept.SubjectKeyID, kept.Reference, 2, 2))
		require.NoError(t, err)
		added := f.mint(t, subjectKeyID(2, "employee:E-3", 0))
		lines := f.export(t)

		dead := []ports.KEK{{TenantID: keyTenant, Epoch: 1}}
		n, err = eraser.RestoreKeys(t.Context(), exported(lines), dead)
		require.NoError(t, err)
		require.EqualValues(t, 4, n) // two versions, a new key, the secret
		require.Equal(t, f.read(t, kept.SubjectKeyID), backup.read(t, kept.SubjectKeyID))
		require.Equal(t, added, backup.read(t, added.SubjectKeyID))
		require.Equal(t, "acme/1/kek-1=deleting acme/2/kek-2=active ", kekStates(testkit.Must(eraser.KEKs(t.Context(), ""))))
		require.Equal(t, testkit.Must(f.node.TenantSecret(t.Context(), keyTenant, "fingerprint")), testkit.Must(node.TenantSecret(t.Context(), keyTenant, "fingerprint")))
		old := backup.read(t, gone.SubjectKeyID)
		require.Equal(t, shredding.KeyActive, old.State, "the receipts are replayed afterwards")
		require.EqualValues(t, 1, old.Versions[0].Epoch, "and no key opens it until then")
		n, err = eraser.RestoreKeys(t.Context(), exported(lines), dead)
		require.NoError(t, err)
		require.Zero(t, n, "repeated")

		// Rows of live epochs stay, and what is destroyed stays destroyed.
		backup.destroyed(t, backup.fenced(t, added.SubjectKeyID))
		again, err := node.MintSubjectKey(context.WithoutCancel(t.Context()), keyTenant, minted(kept.SubjectKeyID, kept.Reference, 3, 2))
		require.NoError(t, err)
		_, err = eraser.RestoreKeys(t.Context(), exported(lines), dead)
		require.NoError(t, err)
		require.Equal(t, again, backup.read(t, kept.SubjectKeyID))
		require.Equal(t, shredding.KeyDestroyed, backup.read(t, added.SubjectKeyID).State)
		require.Empty(t, backup.read(t, added.SubjectKeyID).Versions)
	},
}

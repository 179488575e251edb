package keyrotation_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/keyrotation"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

const tenant = "acme"

var errCrash = errors.New("the process died")

// faultInjector lets the process die at one of the calls to all ports, before or after the call
// takes effect: that call and all later ones fail.
type faultInjector struct {
	mu     sync.Mutex
	failAt int // number of the call; 0: never
	after  bool
	calls  int
	dead   bool
	names  []string
}

// injectAround runs f unless the process dies before it, and drops its result if the process dies
// after it.
func injectAround[T any](t *faultInjector, name string, f func() (T, error)) (T, error) {
	t.mu.Lock()
	t.calls++
	t.names = append(t.names, name)
	wasDead := t.dead
	t.dead = wasDead || t.failAt != 0 && t.calls == t.failAt
	dies := t.dead && !wasDead
	t.mu.Unlock()
	var zero T
	if wasDead || dies && !t.after {
		return zero, errCrash
	}
	out, err := f()
	if dies {
		return zero, errCrash
	}
	return out, err
}

func inject(t *faultInjector, name string, f func() error) error {
	_, err := injectAround(t, name, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// rotationFixture is a key store, a key service and an export store in memory.
type rotationFixture struct {
	ports.ErasureReceipts // nil: only Receipts is called
	*faultInjector
	clock *testkit.Clock

	mu        sync.Mutex
	keks      []ports.KEK
	rows      []storedKey
	receipts  []ports.ErasureReceipt
	gateError error // what the gate returns
	exports   map[string][]byte
	keys      map[string]*managedKey // by id
	aliases   map[string]string
}

// storedKey is a wrapped key with the data key that unwrapping it must return.
type storedKey struct {
	ports.WrappedRow
	Tenant string
	dek    []byte
}

type managedKey struct {
	ports.ManagedKey
	deleted bool
}

func newRotationFixture() *rotationFixture {
	return &rotationFixture{
		faultInjector: &faultInjector{}, clock: testkit.NewClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
		exports: map[string][]byte{}, keys: map[string]*managedKey{}, aliases: map[string]string{},
	}
}

func (r *rotationFixture) service() *keyrotation.Service {
	return testkit.Must(keyrotation.New(keyrotation.Config{
		Keys: r, Recovery: r, KMS: r, DataKeys: r, Exports: exportStore{r}, Receipts: r, Notary: r, Clock: r.clock,
		Gate:        func(context.Context) error { return r.gateError },
		AliasPrefix: "alias/backbone/test", Limits: keyrotation.Limits{DeletionDays: 7, Workers: 1}, Node: "node-1",
	}))
}

// mintKeys makes n keys under the active KEK.
func (r *rotationFixture) mintKeys(t *testing.T, n int) {
	t.Helper()
	i := slices.IndexFunc(r.keks, func(k ports.KEK) bool { return k.State == ports.KEKActive })
	require.GreaterOrEqual(t, i, 0)
	kek := r.keks[i]
	for range n {
		reference := rand.Text()
		partition := event.PartitionID(1 + len(r.rows)%3)
		made, err := r.Generate(t.Context(), kek.KeyID, ports.Bound(partition, reference, 1))
		require.NoError(t, err)
		k := storedKey{Tenant: kek.TenantID, WrappedRow: ports.WrappedRow{Partition: partition, Reference: reference, WrappedKey: ports.WrappedKey{Version: 1, Epoch: kek.Epoch, KEK: kek.KeyID, Wrapped: made.Wrapped}}}
		require.NoError(t, made.Plain.Use(func(dek []byte) error { k.dek = bytes.Clone(dek); return nil }))
		k.Fingerprint, err = shredding.Key{DEK: made.Plain}.Fingerprint()
		require.NoError(t, err)
		r.rows = append(r.rows, k)
	}
}

// erase destroys a key and adds a receipt.
func (r *rotationFixture) erase(i int) {
	r.rows = slices.Delete(r.rows, i, i+1)
	r.receipts = append(r.receipts, ports.ErasureReceipt{Number: uint64(len(r.receipts) + 1), TenantID: tenant})
}

// --- key store ---

func (r *rotationFixture) lock() func() { r.mu.Lock(); return r.mu.Unlock }

func (r *rotationFixture) KEKs(_ context.Context, tenantID string) ([]ports.KEK, error) {
	return injectAround(r.faultInjector, "KEKs", func() ([]ports.KEK, error) {
		defer r.lock()()
		var out []ports.KEK
		for _, k := range r.keks {
			if tenantID == "" || k.TenantID == tenantID {
				out = append(out, k)
			}
		}
		return out, nil
	})
}

func (r *rotationFixture) AddKEK(_ context.Context, k ports.KEK) error {
	return inject(r.faultInjector, "AddKEK", func() error {
		defer r.lock()()
		newest := uint32(0)
		for _, have := range r.keks {
			if have.TenantID == k.TenantID {
				newest = max(newest, have.Epoch)
			}
		}
		if k.Epoch != newest+1 {
			return fault.New(fault.Conflict, "keys.epoch_taken", "taken; list the keys")
		}
		r.keks = append(r.keks, k)
		return nil
	})
}

func (r *rotationFixture) kek(tenantID string, epoch uint32) *ports.KEK {
	for i := range r.keks {
		if r.keks[i].TenantID == tenantID && r.keks[i].Epoch == epoch {
			return &r.keks[i]
		}
	}
	return nil
}

func (r *rotationFixture) ActivateKEK(_ context.Context, tenantID string, epoch uint32) error {
	return inject(r.faultInjector, "ActivateKEK", func() error {
		defer r.lock()()
		k := r.kek(tenantID, epoch)
		if k.State != ports.KEKPending {
			return nil
		}
		for i := range r.keks {
			if r.keks[i].TenantID == tenantID && r.keks[i].State == ports.KEKActive {
				r.keks[i].State = ports.KEKDraining
			}
		}
		k.State = ports.KEKActive
		return nil
	})
}

func (r *rotationFixture) wrappedWith(tenantID string, epoch uint32) []ports.WrappedRow {
	var out []ports.WrappedRow
	for _, k := range r.rows {
		if k.Tenant == tenantID && k.Epoch == epoch {
			out = append(out, k.WrappedRow)
		}
	}
	return out
}

func (r *rotationFixture) WrappedWith(_ context.Context, tenantID string, epoch uint32, limit int) ([]ports.WrappedRow, error) {
	return injectAround(r.faultInjector, "WrappedWith", func() ([]ports.WrappedRow, error) {
		defer r.lock()()
		rows := r.wrappedWith(tenantID, epoch)
		return rows[:min(len(rows), limit)], nil
	})
}

func (r *rotationFixture) CountWrappedWith(_ context.Context, tenantID string, epoch uint32) (int64, error) {
	return injectAround(r.faultInjector, "CountWrappedWith", func() (int64, error) {
		defer r.lock()()
		return int64(len(r.wrappedWith(tenantID, epoch))), nil
	})
}

func (r *rotationFixture) SaveRewrapped(_ context.Context, tenantID string, from, _ uint32, rows []ports.WrappedRow) (int64, error) {
	return injectAround(r.faultInjector, "SaveRewrapped", func() (int64, error) {
		defer r.lock()()
		var changed int64
		for _, next := range rows {
			for i := range r.rows {
				if k := &r.rows[i]; k.Tenant == tenantID && k.Epoch == from && k.Reference == next.Reference && k.Version == next.Version {
					k.WrappedRow = next
					changed++
				}
			}
		}
		return changed, nil
	})
}

func (r *rotationFixture) CloseKEK(_ context.Context, tenantID string, epoch uint32, to ports.KEKState) error {
	return inject(r.faultInjector, "CloseKEK", func() error {
		defer r.lock()()
		if len(r.wrappedWith(tenantID, epoch)) > 0 {
			return fault.New(fault.FailedPrecondition, "keys.epoch_in_use", "rows are left; rotate")
		}
		k := r.kek(tenantID, epoch)
		if k.State != ports.KEKDeleted {
			k.State = to
		}
		return nil
	})
}

func (r *rotationFixture) SampleKeys(_ context.Context, tenantID string, epoch uint32, n int) ([]ports.WrappedRow, error) {
	return injectAround(r.faultInjector, "SampleKeys", func() ([]ports.WrappedRow, error) {
		defer r.lock()()
		rows := r.wrappedWith(tenantID, epoch)
		return rows[:min(len(rows), n)], nil
	})
}

type exportLine struct {
	KEK    *ports.KEK
	Row    *ports.WrappedRow
	Tenant string
}

func (r *rotationFixture) ExportKeys(_ context.Context, yield func([]byte) error) error {
	return inject(r.faultInjector, "ExportKeys", func() error {
		defer r.lock()()
		for _, k := range r.keks {
			text, _ := json.Marshal(exportLine{KEK: &k})
			if err := yield(text); err != nil {
				return err
			}
		}
		for _, k := range r.rows {
			text, _ := json.Marshal(exportLine{Row: &k.WrappedRow, Tenant: k.Tenant})
			if err := yield(text); err != nil {
				return err
			}
		}
		return nil
	})
}

func parseLines(lines ports.ExportedLines) (out []exportLine, err error) {
	err = lines(func(text []byte) bool {
		var l exportLine
		if json.Unmarshal(text, &l) != nil {
			return false
		}
		out = append(out, l)
		return true
	})
	return out, err
}

func (r *rotationFixture) SampleExport(_ context.Context, lines ports.ExportedLines, tenantID string, epoch uint32, n int) (rows []ports.WrappedRow, total int64, err error) {
	rows, err = injectAround(r.faultInjector, "SampleExport", func() (rows []ports.WrappedRow, err error) {
		parsed, err := parseLines(lines)
		for _, l := range parsed {
			if l.Row != nil && l.Tenant == tenantID && l.Row.Epoch == epoch {
				rows = append(rows, *l.Row)
			}
		}
		return rows, err
	})
	return rows[:min(len(rows), n)], int64(len(rows)), err
}

func (r *rotationFixture) ExportedKEKs(_ context.Context, lines ports.ExportedLines) ([]ports.KEK, error) {
	parsed, err := parseLines(lines)
	var out []ports.KEK
	for _, l := range parsed {
		if l.KEK != nil {
			out = append(out, *l.KEK)
		}
	}
	return out, err
}

func (r *rotationFixture) RestoreKeys(_ context.Context, lines ports.ExportedLines, dead []ports.KEK) (int64, error) {
	parsed, err := parseLines(lines)
	if err != nil {
		return 0, err
	}
	isDead := func(epoch uint32) bool {
		return slices.ContainsFunc(dead, func(k ports.KEK) bool { return k.Epoch == epoch })
	}
	var taken int64
	for _, l := range parsed {
		switch {
		case l.KEK != nil && r.kek(l.KEK.TenantID, l.KEK.Epoch) == nil:
			r.keks = append(r.keks, *l.KEK)
		case l.Row != nil:
			i := slices.IndexFunc(r.rows, func(k storedKey) bool { return k.Reference == l.Row.Reference })
			if i < 0 {
				r.rows = append(r.rows, storedKey{Tenant: l.Tenant, WrappedRow: *l.Row})
				taken++
			} else if isDead(r.rows[i].Epoch) {
				r.rows[i].WrappedRow = *l.Row
				taken++
			}
		}
	}
	for i := range r.keks {
		if isDead(r.keks[i].Epoch) {
			r.keks[i].State = ports.KEKDeleting
		}
	}
	return taken, nil
}

func (r *rotationFixture) Receipts(_ context.Context, from uint64, limit int) ([]ports.ErasureReceipt, error) {
	return injectAround(r.faultInjector, "Receipts", func() ([]ports.ErasureReceipt, error) {
		out := r.receipts[min(int(from-1), len(r.receipts)):]
		return out[:min(len(out), limit)], nil
	})
}

// --- key service ---

func wrap(keyID string, bound ports.EncryptionContext, dek []byte) []byte {
	return fmt.Appendf(nil, "%s|%v|%s", keyID, bound, hex.EncodeToString(dek))
}

func unwrap(keyID string, bound ports.EncryptionContext, wrapped []byte) ([]byte, error) {
	text, ok := strings.CutPrefix(string(wrapped), fmt.Sprintf("%s|%v|", keyID, bound))
	if !ok {
		return nil, fault.New(fault.Invalid, "kms.ciphertext_invalid", "another context; restore the row")
	}
	return hex.DecodeString(text)
}

func (r *rotationFixture) checkUsable(keyID string) error {
	switch k := r.keys[keyID]; {
	case k == nil || k.deleted:
		return fault.New(fault.NotFound, "kms.key_not_found", "deleted; restore")
	case k.State != ports.KeyEnabled:
		return fault.New(fault.FailedPrecondition, "kms.key_pending_deletion", "scheduled; use another")
	}
	return nil
}

func (r *rotationFixture) Generate(_ context.Context, keyID string, bound ports.EncryptionContext) (ports.DataKey, error) {
	dek := make([]byte, shredding.DEKSize)
	_, _ = rand.Read(dek)
	return ports.DataKey{Wrapped: wrap(keyID, bound, dek), Plain: shredding.NewSecret(dek)}, r.checkUsable(keyID)
}

func (r *rotationFixture) Unwrap(_ context.Context, keyID string, wrapped []byte, bound ports.EncryptionContext) (shredding.Secret, error) {
	return injectAround(r.faultInjector, "Unwrap", func() (shredding.Secret, error) {
		defer r.lock()()
		if err := r.checkUsable(keyID); err != nil {
			return shredding.Secret{}, err
		}
		dek, err := unwrap(keyID, bound, wrapped)
		return shredding.NewSecret(dek), err
	})
}

func (r *rotationFixture) Create(_ context.Context, alias string, purpose ports.KeyPurpose) (ports.ManagedKey, error) {
	return injectAround(r.faultInjector, "Create", func() (ports.ManagedKey, error) {
		defer r.lock()()
		if id := r.aliases[alias]; id != "" && !r.keys[id].deleted {
			return r.keys[id].ManagedKey, nil
		}
		k := ports.ManagedKey{ID: fmt.Sprintf("key-%d", len(r.keys)+1), Purpose: purpose, State: ports.KeyEnabled, CreatedAt: r.clock.Now()}
		r.keys[k.ID], r.aliases[alias] = &managedKey{ManagedKey: k}, k.ID
		return k, nil
	})
}

func (r *rotationFixture) Describe(_ context.Context, key string) (ports.ManagedKey, error) {
	return injectAround(r.faultInjector, "Describe", func() (ports.ManagedKey, error) {
		defer r.lock()()
		if k := r.keys[key]; k != nil && !k.deleted {
			return k.ManagedKey, nil
		}
		return ports.ManagedKey{}, fault.New(fault.NotFound, "kms.key_not_found", "deleted; restore")
	})
}

func (r *rotationFixture) ReWrap(_ context.Context, from, to string, wrapped []byte, bound ports.EncryptionContext) ([]byte, error) {
	return injectAround(r.faultInjector, "ReWrap", func() ([]byte, error) {
		defer r.lock()()
		if err := errors.Join(r.checkUsable(from), r.checkUsable(to)); err != nil {
			return nil, err
		}
		dek, err := unwrap(from, bound, wrapped)
		return wrap(to, bound, dek), err
	})
}

func (r *rotationFixture) ScheduleDeletion(_ context.Context, keyID string, days int) (time.Time, error) {
	return injectAround(r.faultInjector, "ScheduleDeletion", func() (time.Time, error) {
		defer r.lock()()
		k := r.keys[keyID]
		if k == nil || k.deleted {
			return time.Time{}, fault.New(fault.NotFound, "kms.key_not_found", "deleted; restore")
		}
		if k.State != ports.KeyPendingDeletion {
			k.State, k.DeletionAt = ports.KeyPendingDeletion, r.clock.Now().AddDate(0, 0, days)
		}
		return k.DeletionAt, nil
	})
}

// advance advances the clock, and the key service destroys the keys that are due.
func (r *rotationFixture) advance(d time.Duration) {
	r.clock.Advance(d)
	now := r.clock.Now()
	for _, k := range r.keys {
		if k.State == ports.KeyPendingDeletion && !now.Before(k.DeletionAt) {
			k.deleted = true
		}
	}
}

func (r *rotationFixture) SignNote(_ context.Context, text []byte) ([]byte, error) {
	return injectAround(r.faultInjector, "SignNote", func() ([]byte, error) { return append(bytes.Clone(text), "\n— test AAAA\n"...), nil })
}

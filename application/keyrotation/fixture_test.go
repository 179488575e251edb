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

// trap fails one call of all calls to all ports, before or after it took effect.
type trap struct {
	mu     sync.Mutex
	at     int // 0: never
	after  bool
	calls  int
	sprung bool
	names  []string
}

// call runs f unless the process died before it, and forgets its answer if the
// process died after it.
func call[T any](t *trap, name string, f func() (T, error)) (T, error) {
	t.mu.Lock()
	t.calls++
	t.names = append(t.names, name)
	hit := t.sprung || t.at != 0 && t.calls == t.at
	first := hit && !t.sprung
	t.sprung = hit
	t.mu.Unlock()
	var zero T
	if hit && (!first || !t.after) {
		return zero, errCrash
	}
	out, err := f()
	if hit {
		return zero, errCrash
	}
	return out, err
}

func run(t *trap, name string, f func() error) error {
	_, err := call(t, name, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// rig is a key store, a key service and an export store in memory.
type rig struct {
	*trap
	clock *testkit.Clock

	mu       sync.Mutex
	keks     []ports.KEK
	rows     []row
	receipts []ports.ErasureReceipt
	behind   error // what the gate says
	exports  map[string][]byte
	keys     map[string]*managed // by id
	aliases  map[string]string
}

// row is a wrapped key, and the data key that must come out of it.
type row struct {
	ports.WrappedRow
	Tenant string
	dek    []byte
}

type managed struct {
	ports.ManagedKey
	deleted bool
}

func newRig() *rig {
	return &rig{
		trap: &trap{}, clock: testkit.NewClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
		exports: map[string][]byte{}, keys: map[string]*managed{}, aliases: map[string]string{},
	}
}

func (r *rig) service() *keyrotation.Service {
	return keyrotation.New(keyrotation.Config{
		Keys: r, Recovery: r, KMS: r, DataKeys: r, Exports: exports{r}, Receipts: r, Notary: r, Clock: r.clock,
		Gate:        func(context.Context) error { return r.behind },
		AliasPrefix: "alias/backbone/test", Workers: 1, Node: "node-1",
	})
}

// mint makes n keys under the active KEK.
func (r *rig) mint(t *testing.T, n int) {
	t.Helper()
	i := slices.IndexFunc(r.keks, func(k ports.KEK) bool { return k.State == ports.KEKActive })
	require.GreaterOrEqual(t, i, 0)
	kek := r.keks[i]
	for range n {
		reference := rand.Text()
		partition := event.PartitionID(1 + len(r.rows)%3)
		made, err := r.Generate(t.Context(), kek.KeyID, ports.Bound(partition, reference, 1))
		require.NoError(t, err)
		k := row{Tenant: kek.TenantID, WrappedRow: ports.WrappedRow{Partition: partition, Reference: reference, WrappedKey: ports.WrappedKey{Version: 1, Epoch: kek.Epoch, KEK: kek.KeyID, Wrapped: made.Wrapped}}}
		require.NoError(t, made.Plain.Use(func(dek []byte) error { k.dek = bytes.Clone(dek); return nil }))
		k.Fingerprint, err = shredding.Key{DEK: made.Plain}.Fingerprint()
		require.NoError(t, err)
		r.rows = append(r.rows, k)
	}
}

// erase destroys a key and numbers the receipt.
func (r *rig) erase(i int) {
	r.rows = slices.Delete(r.rows, i, i+1)
	r.receipts = append(r.receipts, ports.ErasureReceipt{Number: uint64(len(r.receipts) + 1), TenantID: tenant})
}

// --- key store ---

func (r *rig) lock() func() { r.mu.Lock(); return r.mu.Unlock }

func (r *rig) KEKs(_ context.Context, tenantID string) ([]ports.KEK, error) {
	return call(r.trap, "KEKs", func() ([]ports.KEK, error) {
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

func (r *rig) AddKEK(_ context.Context, k ports.KEK) error {
	return run(r.trap, "AddKEK", func() error {
		defer r.lock()()
		newest := uint32(0)
		for _, have := range r.keks {
			if have.TenantID == k.TenantID {
				newest = max(newest, have.Epoch)
			}
		}
		if k.Epoch != newest+1 {
			return fault.New(fault.Conflict, "keys.epoch_taken", "taken; look again")
		}
		r.keks = append(r.keks, k)
		return nil
	})
}

func (r *rig) kek(tenantID string, epoch uint32) *ports.KEK {
	for i := range r.keks {
		if r.keks[i].TenantID == tenantID && r.keks[i].Epoch == epoch {
			return &r.keks[i]
		}
	}
	return nil
}

func (r *rig) ActivateKEK(_ context.Context, tenantID string, epoch uint32) error {
	return run(r.trap, "ActivateKEK", func() error {
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

func (r *rig) wrappedWith(tenantID string, epoch uint32) []ports.WrappedRow {
	var out []ports.WrappedRow
	for _, k := range r.rows {
		if k.Tenant == tenantID && k.Epoch == epoch {
			out = append(out, k.WrappedRow)
		}
	}
	return out
}

func (r *rig) WrappedWith(_ context.Context, tenantID string, epoch uint32, limit int) ([]ports.WrappedRow, error) {
	return call(r.trap, "WrappedWith", func() ([]ports.WrappedRow, error) {
		defer r.lock()()
		rows := r.wrappedWith(tenantID, epoch)
		return rows[:min(len(rows), limit)], nil
	})
}

func (r *rig) CountWrappedWith(_ context.Context, tenantID string, epoch uint32) (int64, error) {
	return call(r.trap, "CountWrappedWith", func() (int64, error) {
		defer r.lock()()
		return int64(len(r.wrappedWith(tenantID, epoch))), nil
	})
}

func (r *rig) SaveRewrapped(_ context.Context, tenantID string, from, _ uint32, rows []ports.WrappedRow) (int64, error) {
	return call(r.trap, "SaveRewrapped", func() (int64, error) {
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

func (r *rig) CloseKEK(_ context.Context, tenantID string, epoch uint32, to ports.KEKState) error {
	return run(r.trap, "CloseKEK", func() error {
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

func (r *rig) SampleKeys(_ context.Context, tenantID string, epoch uint32, n int) ([]ports.WrappedRow, error) {
	return call(r.trap, "SampleKeys", func() ([]ports.WrappedRow, error) {
		defer r.lock()()
		rows := r.wrappedWith(tenantID, epoch)
		return rows[:min(len(rows), n)], nil
	})
}

type line struct {
	KEK    *ports.KEK
	Row    *ports.WrappedRow
	Tenant string
}

func (r *rig) ExportKeys(_ context.Context, yield func([]byte) error) error {
	return run(r.trap, "ExportKeys", func() error {
		defer r.lock()()
		for _, k := range r.keks {
			text, _ := json.Marshal(line{KEK: &k})
			if err := yield(text); err != nil {
				return err
			}
		}
		for _, k := range r.rows {
			text, _ := json.Marshal(line{Row: &k.WrappedRow, Tenant: k.Tenant})
			if err := yield(text); err != nil {
				return err
			}
		}
		return nil
	})
}

func parse(lines ports.ExportedLines) (out []line, err error) {
	err = lines(func(text []byte) bool {
		var l line
		if json.Unmarshal(text, &l) != nil {
			return false
		}
		out = append(out, l)
		return true
	})
	return out, err
}

func (r *rig) SampleExport(_ context.Context, lines ports.ExportedLines, tenantID string, epoch uint32, n int) (rows []ports.WrappedRow, total int64, err error) {
	rows, err = call(r.trap, "SampleExport", func() (rows []ports.WrappedRow, err error) {
		parsed, err := parse(lines)
		for _, l := range parsed {
			if l.Row != nil && l.Tenant == tenantID && l.Row.Epoch == epoch {
				rows = append(rows, *l.Row)
			}
		}
		return rows, err
	})
	return rows[:min(len(rows), n)], int64(len(rows)), err
}

func (r *rig) ExportedKEKs(_ context.Context, lines ports.ExportedLines) ([]ports.KEK, error) {
	parsed, err := parse(lines)
	var out []ports.KEK
	for _, l := range parsed {
		if l.KEK != nil {
			out = append(out, *l.KEK)
		}
	}
	return out, err
}

func (r *rig) RestoreKeys(_ context.Context, lines ports.ExportedLines, dead []ports.KEK) (int64, error) {
	parsed, err := parse(lines)
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
			i := slices.IndexFunc(r.rows, func(k row) bool { return k.Reference == l.Row.Reference })
			if i < 0 {
				r.rows = append(r.rows, row{Tenant: l.Tenant, WrappedRow: *l.Row})
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

func (r *rig) Receipts(_ context.Context, from uint64, limit int) ([]ports.ErasureReceipt, error) {
	return call(r.trap, "Receipts", func() ([]ports.ErasureReceipt, error) {
		out := r.receipts[min(int(from-1), len(r.receipts)):]
		return out[:min(len(out), limit)], nil
	})
}

// --- key service ---

func wrapping(keyID string, bound ports.EncryptionContext, dek []byte) []byte {
	return fmt.Appendf(nil, "%s|%v|%s", keyID, bound, hex.EncodeToString(dek))
}

func unwrapping(keyID string, bound ports.EncryptionContext, wrapped []byte) ([]byte, error) {
	text, ok := strings.CutPrefix(string(wrapped), fmt.Sprintf("%s|%v|", keyID, bound))
	if !ok {
		return nil, fault.New(fault.Invalid, "kms.ciphertext_invalid", "another context; restore the row")
	}
	return hex.DecodeString(text)
}

func (r *rig) usable(keyID string) error {
	switch k := r.keys[keyID]; {
	case k == nil || k.deleted:
		return fault.New(fault.NotFound, "kms.key_not_found", "gone; restore")
	case k.State != ports.KeyEnabled:
		return fault.New(fault.FailedPrecondition, "kms.key_pending_deletion", "scheduled; use another")
	}
	return nil
}

func (r *rig) Generate(_ context.Context, keyID string, bound ports.EncryptionContext) (ports.DataKey, error) {
	dek := make([]byte, shredding.DEKSize)
	_, _ = rand.Read(dek)
	return ports.DataKey{Wrapped: wrapping(keyID, bound, dek), Plain: shredding.NewSecret(dek)}, r.usable(keyID)
}

func (r *rig) Unwrap(_ context.Context, keyID string, wrapped []byte, bound ports.EncryptionContext) (shredding.Secret, error) {
	return call(r.trap, "Unwrap", func() (shredding.Secret, error) {
		defer r.lock()()
		if err := r.usable(keyID); err != nil {
			return shredding.Secret{}, err
		}
		dek, err := unwrapping(keyID, bound, wrapped)
		return shredding.NewSecret(dek), err
	})
}

func (r *rig) Create(_ context.Context, alias string, purpose ports.KeyPurpose) (ports.ManagedKey, error) {
	return call(r.trap, "Create", func() (ports.ManagedKey, error) {
		defer r.lock()()
		if id := r.aliases[alias]; id != "" && !r.keys[id].deleted {
			return r.keys[id].ManagedKey, nil
		}
		k := ports.ManagedKey{ID: fmt.Sprintf("key-%d", len(r.keys)+1), Purpose: purpose, State: ports.KeyEnabled, CreatedAt: r.clock.Now()}
		r.keys[k.ID], r.aliases[alias] = &managed{ManagedKey: k}, k.ID
		return k, nil
	})
}

func (r *rig) Describe(_ context.Context, key string) (ports.ManagedKey, error) {
	return call(r.trap, "Describe", func() (ports.ManagedKey, error) {
		defer r.lock()()
		if k := r.keys[key]; k != nil && !k.deleted {
			return k.ManagedKey, nil
		}
		return ports.ManagedKey{}, fault.New(fault.NotFound, "kms.key_not_found", "gone; restore")
	})
}

func (r *rig) ReWrap(_ context.Context, from, to string, wrapped []byte, bound ports.EncryptionContext) ([]byte, error) {
	return call(r.trap, "ReWrap", func() ([]byte, error) {
		defer r.lock()()
		if err := errors.Join(r.usable(from), r.usable(to)); err != nil {
			return nil, err
		}
		dek, err := unwrapping(from, bound, wrapped)
		return wrapping(to, bound, dek), err
	})
}

func (r *rig) ScheduleDeletion(_ context.Context, keyID string, days int) (time.Time, error) {
	return call(r.trap, "ScheduleDeletion", func() (time.Time, error) {
		defer r.lock()()
		k := r.keys[keyID]
		if k == nil || k.deleted {
			return time.Time{}, fault.New(fault.NotFound, "kms.key_not_found", "gone; restore")
		}
		if k.State != ports.KeyPendingDeletion {
			k.State, k.DeletionAt = ports.KeyPendingDeletion, r.clock.Now().AddDate(0, 0, days)
		}
		return k.DeletionAt, nil
	})
}

// pass lets time go by, and the key service destroy what is due.
func (r *rig) pass(d time.Duration) {
	r.clock.Advance(d)
	now := r.clock.Now()
	for _, k := range r.keys {
		if k.State == ports.KeyPendingDeletion && !now.Before(k.DeletionAt) {
			k.deleted = true
		}
	}
}

func (r *rig) SignNote(_ context.Context, text []byte) ([]byte, error) {
	return call(r.trap, "SignNote", func() ([]byte, error) { return append(bytes.Clone(text), "\n— test AAAA\n"...), nil })
}

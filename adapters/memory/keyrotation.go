package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

func (k *keyState) kek(tenantID string, epoch uint32) *ports.KEK {
	for i := range k.keks {
		if k.keks[i].TenantID == tenantID && k.keks[i].Epoch == epoch {
			return &k.keks[i]
		}
	}
	return nil
}

// KEKs implements ports.KeyRotation.
func (k *KeyRotation) KEKs(_ context.Context, tenantID string) ([]ports.KEK, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return list(slices.Values(k.keks), func(kek ports.KEK) bool { return tenantID == "" || kek.TenantID == tenantID }, compareKEKs), nil
}

func compareKEKs(a, b ports.KEK) int {
	return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.Epoch, b.Epoch))
}

// AddKEK implements ports.KeyRotation.
func (k *KeyRotation) AddKEK(_ context.Context, kek ports.KEK) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var newest uint32
	for _, stored := range k.keks {
		if stored.TenantID == kek.TenantID {
			newest = max(newest, stored.Epoch)
		}
	}
	if stored := k.kek(kek.TenantID, kek.Epoch); stored != nil && stored.KeyID == kek.KeyID {
		return nil
	}
	if kek.Epoch != newest+1 {
		return fault.New(fault.Conflict, "keys.epoch_taken", "another process has made the tenant's next key already; list its keys and continue with that one")
	}
	kek.State = ports.KEKPending
	k.keks = append(k.keks, kek)
	return nil
}

func epochMissing() error {
	return fault.New(fault.NotFound, "keys.epoch_missing", "the tenant has no key of this epoch; list its keys")
}

func kekMoveRefused() error {
	return fault.New(fault.FailedPrecondition, "keys.move_refused", "the tenant's key cannot move to that state from its present one; list its keys and finish the rotation that has begun")
}

// ActivateKEK implements ports.KeyRotation.
func (k *KeyRotation) ActivateKEK(_ context.Context, tenantID string, epoch uint32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.kek(tenantID, epoch)
	switch {
	case next == nil:
		return epochMissing()
	case next.State == ports.KEKActive:
		return nil
	case next.State != ports.KEKPending, slices.ContainsFunc(k.keks, func(o ports.KEK) bool { return o.TenantID == tenantID && o.State == ports.KEKDraining }):
		return kekMoveRefused()
	}
	for i := range k.keks {
		if k.keks[i].TenantID == tenantID && k.keks[i].State == ports.KEKActive {
			k.keks[i].State = ports.KEKDraining
		}
	}
	next.State = ports.KEKActive
	return nil
}

// eachWrapped calls f for every wrapped key of a tenant's epoch, in a stable order.
func (k *keyState) eachWrapped(tenantID string, epoch uint32, f func(row ports.WrappedRow, stored *ports.WrappedKey)) {
	var ids []ports.SubjectKeyID
	for id, s := range k.subjects {
		if s.tenantID == tenantID {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b ports.SubjectKeyID) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Class, b.Class))
	})
	visit := func(row ports.WrappedRow, v *ports.WrappedKey) {
		if v.Epoch == epoch {
			row.WrappedKey = *v
			row.Wrapped = slices.Clone(v.Wrapped)
			f(row, v)
		}
	}
	for _, id := range ids {
		s := k.subjects[id]
		for i := range s.Versions {
			visit(ports.WrappedRow{Partition: id.Partition, Reference: s.Reference}, &s.Versions[i])
		}
	}
	for key, s := range k.secrets {
		if key.tenantID == tenantID {
			visit(ports.WrappedRow{Reference: s.Reference}, &s.WrappedKey)
			k.secrets[key] = s
		}
	}
}

// WrappedWith implements ports.KeyRotation.
func (k *KeyRotation) WrappedWith(_ context.Context, tenantID string, epoch uint32, limit int) ([]ports.WrappedRow, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []ports.WrappedRow
	k.eachWrapped(tenantID, epoch, func(row ports.WrappedRow, _ *ports.WrappedKey) {
		if limit <= 0 || len(out) < limit {
			out = append(out, row)
		}
	})
	return out, nil
}

// CountWrappedWith implements ports.KeyRotation.
func (k *KeyRotation) CountWrappedWith(_ context.Context, tenantID string, epoch uint32) (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.count(tenantID, epoch), nil
}

func (k *keyState) count(tenantID string, epoch uint32) (n int64) {
	k.eachWrapped(tenantID, epoch, func(ports.WrappedRow, *ports.WrappedKey) { n++ })
	return n
}

// SaveRewrapped implements ports.KeyRotation.
func (k *KeyRotation) SaveRewrapped(_ context.Context, tenantID string, from, to uint32, rows []ports.WrappedRow) (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kek, err := k.active(tenantID, to)
	if err != nil {
		return 0, err
	}
	var changed int64
	k.eachWrapped(tenantID, from, func(row ports.WrappedRow, stored *ports.WrappedKey) {
		for _, r := range rows {
			if r.Reference == row.Reference && r.Version == row.Version {
				stored.Wrapped, stored.Epoch, stored.KEK = slices.Clone(r.Wrapped), to, kek.KeyID
				changed++
				return
			}
		}
	})
	return changed, nil
}

// CloseKEK implements ports.KeyRotation.
func (k *KeyRotation) CloseKEK(_ context.Context, tenantID string, epoch uint32, to ports.KEKState) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	kek := k.kek(tenantID, epoch)
	switch {
	case kek == nil:
		return epochMissing()
	case kek.State == to && (to == ports.KEKDeleting || to == ports.KEKDeleted):
		return nil
	case kek.State == ports.KEKDraining && to == ports.KEKDeleting && k.count(tenantID, epoch) > 0:
		return fault.New(fault.FailedPrecondition, "keys.epoch_in_use", "keys are still wrapped with this epoch; wrap them again first")
	case kek.State == ports.KEKDraining && to == ports.KEKDeleting, kek.State == ports.KEKDeleting && to == ports.KEKDeleted:
		kek.State = to
		return nil
	}
	return kekMoveRefused()
}

// SampleKeys implements ports.KeyRotation.
func (k *KeyRotation) SampleKeys(ctx context.Context, tenantID string, epoch uint32, n int) ([]ports.WrappedRow, error) {
	rows, err := k.WrappedWith(ctx, tenantID, epoch, 0)
	rand.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	return rows[:min(n, len(rows))], err
}

// exportedLine is a line of an export: one of its members is set.
type exportedLine struct {
	KEK     *ports.KEK          `json:"kek,omitempty"`
	Tenant  string              `json:"tenant,omitempty"`
	Subject *ports.SubjectKey   `json:"subject,omitempty"`
	Secret  *ports.TenantSecret `json:"secret,omitempty"`
}

// ExportKeys implements ports.KeyRotation.
func (k *KeyRotation) ExportKeys(_ context.Context, row func(line []byte) error) error {
	var lines []exportedLine
	k.mu.RLock()
	for _, kek := range k.keks {
		lines = append(lines, exportedLine{KEK: &kek})
	}
	for _, s := range k.subjects {
		key := s.SubjectKey
		key.Versions = cloneVersions(key.Versions)
		lines = append(lines, exportedLine{Tenant: s.tenantID, Subject: &key})
	}
	for _, s := range k.secrets {
		lines = append(lines, exportedLine{Secret: &s})
	}
	k.mu.RUnlock()
	for _, l := range lines {
		line, err := json.Marshal(l)
		if err != nil {
			return err
		}
		if err := row(line); err != nil {
			return err
		}
	}
	return nil
}

// readExport reads an export into a new key store.
func readExport(lines ports.ExportedLines) (*KeyStore, error) {
	out := NewKeyStore()
	var damaged error
	err := lines(func(line []byte) bool {
		var l exportedLine
		if damaged = json.Unmarshal(line, &l); damaged != nil {
			return false
		}
		switch {
		case l.KEK != nil:
			out.keks = append(out.keks, *l.KEK)
		case l.Subject != nil:
			out.subjects[l.Subject.SubjectKeyID] = &subjectKey{tenantID: l.Tenant, SubjectKey: *l.Subject}
		case l.Secret != nil:
			out.secrets[secretKey{l.Secret.TenantID, l.Secret.Purpose}] = *l.Secret
		}
		return true
	})
	if damaged != nil {
		return nil, fault.New(fault.Invalid, "keys.export_damaged", "this is no export of a key store, or it is damaged; take another one")
	}
	return out, err
}

// SampleExport implements ports.KeyRecovery.
func (*KeyRotation) SampleExport(ctx context.Context, lines ports.ExportedLines, tenantID string, epoch uint32, n int) (rows []ports.WrappedRow, total int64, err error) {
	scratch, err := readExport(lines)
	if err != nil {
		return nil, 0, err
	}
	total = scratch.count(tenantID, epoch)
	rows, err = scratch.Rotation().SampleKeys(ctx, tenantID, epoch, n)
	return rows, total, err
}

// ExportedKEKs implements ports.KeyRecovery.
func (*KeyRotation) ExportedKEKs(ctx context.Context, lines ports.ExportedLines) ([]ports.KEK, error) {
	scratch, err := readExport(lines)
	if err != nil {
		return nil, err
	}
	return scratch.Rotation().KEKs(ctx, "")
}

var kekOrder = []ports.KEKState{ports.KEKPending, ports.KEKActive, ports.KEKDraining, ports.KEKDeleting, ports.KEKDeleted}

func laterKEKState(a, b ports.KEKState) ports.KEKState {
	return kekOrder[max(slices.Index(kekOrder, a), slices.Index(kekOrder, b), 0)]
}

// RestoreKeys implements ports.KeyRecovery.
func (k *KeyRotation) RestoreKeys(_ context.Context, lines ports.ExportedLines, dead []ports.KEK) (int64, error) {
	scratch, err := readExport(lines)
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, kek := range scratch.keks {
		if stored := k.kek(kek.TenantID, kek.Epoch); stored != nil {
			stored.State = laterKEKState(stored.State, kek.State)
		} else {
			k.keks = append(k.keks, kek)
		}
	}
	isDead := func(tenantID string, epoch uint32) bool {
		return slices.ContainsFunc(dead, func(d ports.KEK) bool { return d.TenantID == tenantID && d.Epoch == epoch })
	}
	for i := range k.keks {
		if isDead(k.keks[i].TenantID, k.keks[i].Epoch) {
			k.keks[i].State = laterKEKState(k.keks[i].State, ports.KEKDeleting)
		}
	}
	var taken int64
	for id, s := range scratch.subjects {
		stored, ok := k.subjects[id]
		if !ok {
			stored = &subjectKey{tenantID: s.tenantID, SubjectKey: s.SubjectKey}
			stored.Versions = nil
			k.subjects[id] = stored
		}
		if stored.State == shredding.KeyDestroyed || stored.Reference != s.Reference {
			continue
		}
		for _, v := range s.Versions {
			if isDead(s.tenantID, v.Epoch) {
				continue
			}
			i := slices.IndexFunc(stored.Versions, func(o ports.WrappedKey) bool { return o.Version == v.Version })
			switch {
			case i < 0:
				stored.Versions = append(stored.Versions, v)
				stored.Active = max(stored.Active, v.Version)
			case isDead(s.tenantID, stored.Versions[i].Epoch):
				stored.Versions[i] = v
			default:
				continue
			}
			taken++
		}
		slices.SortFunc(stored.Versions, func(a, b ports.WrappedKey) int { return cmp.Compare(a.Version, b.Version) })
	}
	for key, s := range scratch.secrets {
		if stored, ok := k.secrets[key]; (!ok || isDead(key.tenantID, stored.Epoch)) && !isDead(key.tenantID, s.Epoch) {
			k.secrets[key] = s
			taken++
		}
	}
	return taken, nil
}

package verify_test

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// record is a registry as the test has changed it.
type record ports.RegistryRecord

func (r record) RegistryRecords(context.Context) ([]ports.RegistryRecord, error) {
	return []ports.RegistryRecord{ports.RegistryRecord(r)}, nil
}

func (r record) RegistryRecord(_ context.Context, tenantID string) (ports.RegistryRecord, error) {
	return registries{ports.RegistryRecord(r)}.RegistryRecord(context.Background(), tenantID)
}

// registered is a tenant's registry of an earlier release with three changes: a type, its second
// version, and the proposal to deprecate both.
func registered(t *testing.T) record {
	t.Helper()
	r := record{TenantID: "acme", Generation: 3}
	for v := range uint32(2) {
		document := []byte{byte(v)}
		c := eventtype.Change{Number: int64(v) + 1, Action: eventtype.ActionRegistered, Type: "crm.lead.won", SchemaVersion: v + 1, Digest: sha256.Sum256(document), Actor: "p-1", At: start}
		r.Changes = append(r.Changes, c)
		r.Versions = append(r.Versions, ports.StoredVersion{Type: c.Type, SchemaVersion: c.SchemaVersion, Document: document, Digest: c.Digest, By: c.Actor, At: c.At})
	}
	for _, c := range slices.Clone(r.Changes) {
		c.Number, c.Action, c.Actor, c.Reason = 3, eventtype.ActionDeprecationProposed, "p-2", "superseded"
		r.Changes = append(r.Changes, c)
	}
	r.link()
	return r
}

// link recomputes the chain, as an attacker would who can write to the database.
func (r record) link() {
	link := eventtype.ChainStart(r.TenantID)
	for i := range r.Changes {
		link = r.Changes[i].ChainChecksum(link)
		r.Changes[i].Checksum = link
	}
}

func verified(t *testing.T, r record, options ...verify.Option) verify.RegistryReport {
	t.Helper()
	reports, err := verify.Registries(t.Context(), r, "", options...)
	require.NoError(t, err)
	require.Len(t, reports, 1)
	require.Equal(t, r.TenantID, reports[0].Tenant)
	return reports[0]
}

func findings(t *testing.T, r record, options ...verify.Option) (kinds []verify.FindingKind) {
	t.Helper()
	report := verified(t, r, options...)
	require.Equal(t, len(report.Findings) == 0, report.Sound())
	for _, f := range report.Findings {
		kinds = append(kinds, f.Kind)
		require.NotEmpty(t, f.Detail)
	}
	return kinds
}

func TestRegistry_Tampering(t *testing.T) {
	t.Parallel()
	sound := registered(t)
	require.Empty(t, findings(t, sound))
	report := verified(t, sound)
	require.EqualValues(t, 3, report.Head)
	heads := verify.HeadsOf(logName, time.Now(), []verify.EntityReport{{Tenant: "acme", LegalEntity: "A", Partition: 1}}, []verify.RegistryReport{report})
	text, err := heads.Encode()
	require.NoError(t, err)
	heads, err = verify.ParseHeads(text)
	require.NoError(t, err)
	require.Empty(t, findings(t, sound, verify.Against(heads)))
	heads.Registries[0].Checksum = "ab"
	text, err = heads.Encode()
	require.NoError(t, err)
	_, err = verify.ParseHeads(text)
	require.ErrorContains(t, err, "verify.heads_invalid")
	heads.Registries[0].Checksum = report.Checksum

	for name, c := range map[string]struct {
		tamper          func(*record)
		alone, compared []verify.FindingKind // without and with an exported head
	}{
		"an actor": {
			func(r *record) { r.Changes[2].Actor = "p-3" },
			[]verify.FindingKind{verify.ChecksumMismatch}, []verify.FindingKind{verify.ChecksumMismatch},
		},
		"an actor, chained again": {
			func(r *record) { r.Changes[2].Actor = "p-3"; r.link() },
			nil, []verify.FindingKind{verify.HeadMismatch},
		},
		"who registered, chained again": {
			func(r *record) { r.Changes[1].Actor = "p-3"; r.link() },
			[]verify.FindingKind{verify.RegistrationMismatch}, []verify.FindingKind{verify.HeadMismatch, verify.RegistrationMismatch},
		},
		"a change taken out": {
			func(r *record) { r.Changes = slices.Delete(r.Changes, 1, 2) },
			[]verify.FindingKind{verify.SequenceGap, verify.ChecksumMismatch, verify.RegistrationMismatch},
			[]verify.FindingKind{verify.SequenceGap, verify.ChecksumMismatch, verify.RegistrationMismatch},
		},
		"the tail cut off": {
			func(r *record) { r.Changes = r.Changes[:2] },
			[]verify.FindingKind{verify.SequenceGap}, []verify.FindingKind{verify.SequenceGap, verify.HeadBeyondEnd},
		},
		"the tail cut off, and the counter": {
			func(r *record) { r.Changes, r.Generation = r.Changes[:2], 2 },
			nil, []verify.FindingKind{verify.HeadBeyondEnd},
		},
		"all of it": {
			func(r *record) { *r = record{TenantID: "acme"} },
			nil, []verify.FindingKind{verify.HeadBeyondEnd},
		},
		"one of the two versions that a change touched": {
			func(r *record) { r.Changes = r.Changes[:3] },
			nil, []verify.FindingKind{verify.HeadMismatch},
		},
		"a document": {
			func(r *record) { r.Versions[0].Digest[0]++ },
			[]verify.FindingKind{verify.RegistrationMismatch}, []verify.FindingKind{verify.RegistrationMismatch},
		},
		"a version's owner": {
			func(r *record) { r.Versions[0].By = "p-3" },
			[]verify.FindingKind{verify.RegistrationMismatch}, []verify.FindingKind{verify.RegistrationMismatch},
		},
		"a version's time": {
			func(r *record) { r.Versions[0].At = r.Versions[0].At.Add(time.Microsecond) },
			[]verify.FindingKind{verify.RegistrationMismatch}, []verify.FindingKind{verify.RegistrationMismatch},
		},
		"a version that was switched off": {
			func(r *record) { r.Versions[0].Altered = true },
			[]verify.FindingKind{verify.RegistrationMismatch}, []verify.FindingKind{verify.RegistrationMismatch},
		},
		"a version put in": {
			func(r *record) {
				r.Versions = append(r.Versions, ports.StoredVersion{Type: "crm.lead.lost", SchemaVersion: 1})
			},
			[]verify.FindingKind{verify.RegistrationMismatch}, []verify.FindingKind{verify.RegistrationMismatch},
		},
		"a version taken out": {
			func(r *record) { r.Versions = r.Versions[1:] },
			[]verify.FindingKind{verify.RegistrationMismatch}, []verify.FindingKind{verify.RegistrationMismatch},
		},
	} {
		r := record{TenantID: sound.TenantID, Changes: slices.Clone(sound.Changes), Versions: slices.Clone(sound.Versions), Generation: sound.Generation}
		c.tamper(&r)
		require.Equal(t, c.alone, findings(t, r), name)
		require.Equal(t, c.compared, findings(t, r, verify.Against(heads)), name)
	}
	older := sound // what was exported stays found as the registry grows
	older.Changes, older.Generation = sound.Changes[:2], 2
	report = verified(t, older)
	require.Empty(t, findings(t, sound, verify.Against(verify.HeadsOf(logName, time.Now(), nil, []verify.RegistryReport{report}))))
}

func TestRegistry_FindingsLimit(t *testing.T) {
	t.Parallel()
	r := record{TenantID: "acme"}
	for i := range verify.MaxFindings + 5 {
		r.Versions = append(r.Versions, ports.StoredVersion{Type: "crm.lead.lost", SchemaVersion: uint32(i + 1)})
	}
	report := verified(t, r)
	require.Len(t, report.Findings, verify.MaxFindings)
	require.Equal(t, 5, report.Suppressed)
}

// FuzzParseHeads holds the parser to its promise: no panic, one fault, and heads that can be
// written and read again.
func FuzzParseHeads(f *testing.F) {
	checksum := strings.Repeat("0a", 32)
	f.Add([]byte(`{"log_name":"l","partitions":[{"partition":1,"legal_entity":"DEMF","head":3,"checksum":"` + checksum + `"}]}`))
	f.Add([]byte(`{"log_name":"l","partitions":[{"partition":1},{"partition":1}]}{}`))
	f.Add([]byte(`{"log_name":"l","partitions":null,"registry":{"change":0,"checksum":"` + checksum + `"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		heads, err := verify.ParseHeads(text)
		if err != nil {
			require.Equal(t, "verify.heads_invalid", fault.CodeOf(err))
			return
		}
		written, err := heads.Encode()
		require.NoError(t, err)
		again, err := verify.ParseHeads(written)
		require.NoError(t, err)
		require.Equal(t, heads, again)
	})
}

// registries are those of several tenants.
type registries []ports.RegistryRecord

func (r registries) RegistryRecords(context.Context) ([]ports.RegistryRecord, error) { return r, nil }

func (r registries) RegistryRecord(_ context.Context, tenantID string) (ports.RegistryRecord, error) {
	for _, of := range r {
		if of.TenantID == tenantID {
			return of, nil
		}
	}
	return ports.RegistryRecord{TenantID: tenantID}, nil
}

// TestRegistries_OfATenant verifies the shared registry and that of one tenant. Damage to another
// tenant's is not its finding.
func TestRegistries_OfATenant(t *testing.T) {
	t.Parallel()
	acme := ports.RegistryRecord(registered(t))
	shared := ports.RegistryRecord{Versions: []ports.StoredVersion{{Type: "till.cash.moved", SchemaVersion: 1}}}
	damaged := acme
	damaged.TenantID = "globex"
	all := registries{shared, acme, damaged}
	for tenantID, want := range map[string][]string{"acme": {"", "acme"}, "globex": {"", "globex"}, "other": {""}, "": {"", "acme", "globex"}} {
		reports, err := verify.Registries(t.Context(), all, tenantID)
		require.NoError(t, err)
		of := make([]string, len(reports))
		for i := range reports {
			of[i] = reports[i].Tenant
			require.Equal(t, of[i] != "globex", reports[i].Sound())
		}
		require.Equal(t, want, of)
		gone := verify.Heads{Registries: []verify.RegistryHead{{Tenant: "gone", Change: 1}}}
		against, err := verify.Registries(t.Context(), all, tenantID, verify.Against(gone))
		require.NoError(t, err)
		require.Equal(t, tenantID == "", len(against) > len(reports))
	}
}

// The chain of one tenant does not stand in for that of another, and a registry that is gone is
// found by its exported head.
func TestRegistries_SwappedOrGone(t *testing.T) {
	t.Parallel()
	acme := ports.RegistryRecord(registered(t))
	globex := acme
	globex.TenantID = "globex"
	reports, err := verify.Registries(t.Context(), registries{acme, globex}, "")
	require.NoError(t, err)
	require.Len(t, reports, 2)
	require.True(t, reports[0].Sound())
	require.Equal(t, verify.ChecksumMismatch, reports[1].Findings[0].Kind)
	heads := verify.HeadsOf(logName, time.Now(), nil, reports)
	require.Nil(t, heads.Registry)
	reports, err = verify.Registries(t.Context(), registries{acme}, "", verify.Against(heads))
	require.NoError(t, err)
	require.Len(t, reports, 2)
	require.True(t, reports[0].Sound())
	require.Equal(t, "globex", reports[1].Tenant)
	require.Equal(t, verify.HeadBeyondEnd, reports[1].Findings[0].Kind)
}

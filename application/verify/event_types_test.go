package verify_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
)

// editedRegistries shows registries as the test has changed them.
type editedRegistries struct {
	*tamperedLog
	own, shared ports.RegistryRecord
}

func (r editedRegistries) RegistryRecord(_ context.Context, tenantID string) (ports.RegistryRecord, error) {
	if tenantID == "" {
		return r.shared, nil
	}
	return r.own, nil
}

// recordEventType appends an event about event types to an administrative log.
func (v *tamperedLog) recordEventType(t *testing.T, log ports.LegalEntity, name, data string) {
	t.Helper()
	p := v.prepared(log)
	p.Type, p.Stream = "backbone.event_type."+name, event.StreamID{Type: "backbone.event_type", ID: name}
	p.Payload = fmt.Appendf(nil, `{"data":%s,"dimensions":{},"entity_refs":[]}`, data)
	p.PayloadHash = event.HashPayload(p.Salt, p.Payload)
	_, err := v.Append(t.Context(), ports.AppendRequest{Partition: log.Partition, Events: []event.Prepared{p}})
	require.NoError(t, err)
}

// TestRun_EventTypes compares the rows of event types with the administrative log.
func TestRun_EventTypes(t *testing.T) {
	t.Parallel()
	v := newVault()
	log, err := v.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: ports.AdministrativeCode})
	require.NoError(t, err)
	own := ports.RegistryRecord(registered(t))
	end := hex.EncodeToString(own.Changes[3].Checksum[:])
	start := eventtype.ChainStart("")
	document := []byte(`{"type":"till.cash.moved"}`)
	builtIn := ports.StoredVersion{Type: "till.cash.moved", SchemaVersion: 1, Digest: sha256.Sum256(document)}
	digest := hex.EncodeToString(builtIn.Digest[:])
	amended := builtIn
	amended.Amendment, amended.Digest = 1, sha256.Sum256([]byte(`{"type":"till.cash.moved","schema_version":1}`))
	for _, e := range []struct{ name, data string }{
		{"history_sealed", fmt.Sprintf(`{"last_change":3,"checksum":%q,"shared_last_change":0,"shared_checksum":%q}`, end, hex.EncodeToString(start[:]))},
		{"built_in", fmt.Sprintf(`{"versions":[{"type":"till.cash.moved","schema_version":1,"document_sha256":%q}]}`, digest)},
		{"registered", fmt.Sprintf(`{"type":"crm.lead.lost","schema_version":1,"document_sha256":%q,"document":%q}`, digest, document)},
		{"registered", fmt.Sprintf(`{"type":"crm.lead.lost","schema_version":2,"document_sha256":%q,"document":"{}"}`, digest)},
		{"amended", fmt.Sprintf(`{"type":"crm.lead.lost","schema_version":1,"document_sha256":%q,"document":%q}`, digest, document)},
		{"amended", fmt.Sprintf(`{"type":"crm.lead.lost","schema_version":1,"document_sha256":%q}`, digest)},
		{"built_in", fmt.Sprintf(`{"versions":[{"type":"till.cash.moved","schema_version":1,"document_sha256":%q}]}`, hex.EncodeToString(amended.Digest[:]))},
	} {
		v.recordEventType(t, log, e.name, e.data)
	}
	// What these events say of their documents are the program's errors, not those of the rows.
	always := []place{{verify.RegistrationMismatch, 4}, {verify.RegistrationMismatch, 6}}
	for name, c := range map[string]struct {
		edit func(r *editedRegistries)
		want []place
	}{
		"as recorded":              {func(*editedRegistries) {}, nil},
		"chain cut off":            {func(r *editedRegistries) { r.own.Changes = r.own.Changes[:2] }, []place{{verify.RegistrationMismatch, 1}}},
		"chain recomputed":         {func(r *editedRegistries) { r.own.Changes[3].Checksum[0]++ }, []place{{verify.RegistrationMismatch, 1}}},
		"change added":             {func(r *editedRegistries) { r.shared.Changes = r.own.Changes[:1] }, []place{{verify.RegistrationMismatch, 1}}},
		"built-in version edited":  {func(r *editedRegistries) { r.shared.Versions[0].Digest[0]++ }, []place{{verify.RegistrationMismatch, 2}}},
		"built-in version removed": {func(r *editedRegistries) { r.shared.Versions = nil }, []place{{verify.RegistrationMismatch, 2}, {verify.RegistrationMismatch, 7}}},
		"amendment edited":         {func(r *editedRegistries) { r.shared.Versions[1].Digest[0]++ }, []place{{verify.RegistrationMismatch, 7}}},
		"amendment removed":        {func(r *editedRegistries) { r.shared.Versions = r.shared.Versions[:1] }, []place{{verify.RegistrationMismatch, 7}}},
		"amendment alone":          {func(r *editedRegistries) { r.shared.Versions = r.shared.Versions[1:] }, []place{{verify.RegistrationMismatch, 7}, {verify.RegistrationMismatch, 2}}},
		"amendments turned round": {func(r *editedRegistries) {
			v := r.shared.Versions
			v[0].Digest, v[1].Digest = v[1].Digest, v[0].Digest
		}, []place{{verify.RegistrationMismatch, 2}}},
		"amendment put in": {func(r *editedRegistries) {
			r.shared.Versions = append(r.shared.Versions, ports.StoredVersion{Type: "till.cash.moved", SchemaVersion: 1, Amendment: 2})
		}, []place{{verify.RegistrationMismatch, 0}}},
		"built-in version put in": {func(r *editedRegistries) {
			r.shared.Versions = append(r.shared.Versions, ports.StoredVersion{Type: "till.cash.lost", SchemaVersion: 1})
		}, []place{{verify.RegistrationMismatch, 0}}},
		"several of them at one time": {func(r *editedRegistries) { r.own.Changes, r.shared.Versions = nil, nil }, []place{{verify.RegistrationMismatch, 1}, {verify.RegistrationMismatch, 2}, {verify.RegistrationMismatch, 7}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := editedRegistries{v, own, ports.RegistryRecord{Versions: []ports.StoredVersion{builtIn, amended}}}
			rows.own.Changes = slices.Clone(own.Changes)
			c.edit(&rows)
			reports, err := verify.Run(t.Context(), rows, "acme", []string{ports.AdministrativeCode}, nil)
			require.NoError(t, err)
			require.Len(t, reports, 1)
			require.ElementsMatch(t, append(c.want, always...), places(reports[0]))
		})
	}
}

// startingNode has stored a built-in version, and lists it in the administrative log after the
// registry was compared for the first time.
type startingNode struct {
	editedRegistries
	reads int // of the shared registry: the first one is for the rules of keys
	list  func()
}

func (n *startingNode) RegistryRecord(ctx context.Context, tenantID string) (ports.RegistryRecord, error) {
	if tenantID == "" {
		if n.reads++; n.reads == 2 {
			defer n.list()
		}
	}
	return n.editedRegistries.RegistryRecord(ctx, tenantID)
}

// TestRun_EventTypesOfAStartingNode waits for the event of a version that a node has stored.
func TestRun_EventTypesOfAStartingNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newVault()
		log, err := v.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: ports.AdministrativeCode})
		require.NoError(t, err)
		listed, stored := ports.StoredVersion{Type: "till.cash.lost", SchemaVersion: 1}, ports.StoredVersion{Type: "till.cash.moved", SchemaVersion: 1}
		list := func(of ports.StoredVersion) {
			v.recordEventType(t, log, "built_in", fmt.Sprintf(`{"versions":[{"type":%q,"schema_version":1,"document_sha256":%q}]}`, of.Type, hex.EncodeToString(of.Digest[:])))
		}
		list(listed)
		rows := editedRegistries{v, ports.RegistryRecord{}, ports.RegistryRecord{Versions: []ports.StoredVersion{listed, stored}}}
		verified := func(store verify.Store) []place {
			reports, err := verify.Run(t.Context(), store, "acme", []string{ports.AdministrativeCode}, nil, verify.Settle(2))
			require.NoError(t, err)
			return places(reports[0])
		}
		require.Equal(t, []place{{verify.RegistrationMismatch, 0}}, verified(rows), "a version that no node lists")
		require.Empty(t, verified(&startingNode{editedRegistries: rows, list: func() { list(stored) }}))
	})
}

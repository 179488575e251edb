package registry_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

func leadWith(version uint32, schema string) eventtype.Registration {
	r := lead(version)
	r.DataSchema, r.Examples = json.RawMessage(schema), nil
	return r
}

const (
	sized      = `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer"}}}`
	sizedMore  = `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer"},"colour":{"type":"string"}}}`
	sizedOwed  = `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer"},"colour":{"type":"string"}},"required":["colour"]}`
	sizedGiven = `{"$schema":"http://json-schema.org/draft-07/schema#","$id":"https://x.example/lead","definitions":{"day":{"type":"string","format":"date","default":"2020-01-01"}},"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer"},"since":{"$ref":"#/definitions/day"}},"required":["since"]}`
	sizedWrong = `{"definitions":{"day":{"type":"string","format":"date","default":"yesterday"}},"type":"object","additionalProperties":false,"properties":{"size":{"type":"integer"},"since":{"$ref":"#/definitions/day"}},"required":["since"]}`
	unsized    = `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"string"}}}`
)

func TestCheck_Evolution(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schema     string
		violations []string
	}{
		"the same":          {sized, nil},
		"optional":          {sizedMore, nil},
		"required":          {sizedOwed, []string{"/data_schema/properties/colour event_type.required_added"}},
		"required, default": {sizedGiven, nil},
		"default no date":   {sizedWrong, []string{"/data_schema/properties/since/default event_type.default_invalid"}},
		"another type":      {unsized, []string{"/data_schema/properties/size event_type.type_changed"}},
	} {
		types := eventTypes(t, newStore())
		r := node(t, types, orderSchema)
		_, err := r.Register(t.Context(), leadWith(1, sized), admin, registry.ProofRequest{})
		require.NoError(t, err)
		assessed, err := r.Check(t.Context(), leadWith(2, c.schema), registry.ProofRequest{})
		require.NoError(t, err)
		require.EqualValues(t, 1, assessed.Comparison.Older)
		_, err = r.Register(t.Context(), leadWith(2, c.schema), admin, registry.ProofRequest{})
		var got []string
		if f, ok := fault.As(err); ok {
			require.Equal(t, "event_type.incompatible", f.Code)
			require.Equal(t, fault.FailedPrecondition, f.Kind)
			for _, v := range f.Violations {
				got = append(got, v.Field+" "+v.Code)
			}
			require.Equal(t, f.Violations, assessed.Findings, "checking finds what registering finds")
			require.Equal(t, registry.VerdictRefused, assessed.Verdict)
		} else {
			require.NoError(t, err)
			require.Equal(t, registry.VerdictNewVersion, assessed.Verdict, name)
			require.Empty(t, assessed.Findings)
		}
		require.Equal(t, c.violations, got, name)
	}
}

// A version between two registered ones must fit both.
func TestRegister_VersionBetween(t *testing.T) {
	t.Parallel()
	r := node(t, eventTypes(t, newStore()), orderSchema)
	for _, v := range []eventtype.Registration{leadWith(1, sized), leadWith(5, sizedMore)} {
		_, err := r.Register(t.Context(), v, admin, registry.ProofRequest{})
		require.NoError(t, err)
	}
	loose := `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"number"}}}`
	_, err := r.Register(t.Context(), leadWith(3, loose), admin, registry.ProofRequest{})
	require.Equal(t, "event_type.incompatible", code(t, err), "version 5 narrows it")
	_, err = r.Register(t.Context(), leadWith(6, loose), admin, registry.ProofRequest{})
	require.NoError(t, err)
}

func TestCheck_CollectsAllFindings(t *testing.T) {
	t.Parallel()
	types := eventTypes(t, newStore())
	r := node(t, types, orderSchema)
	_, err := r.Register(t.Context(), leadWith(1, sized), admin, registry.ProofRequest{})
	require.NoError(t, err)
	_, before, err := types.EventTypes(t.Context(), acme)
	require.NoError(t, err)

	bad := leadWith(2, `{"type":"object","additionalProperties":false,"properties":{"size":{"type":"string"},"email":{"type":"string"}}}`)
	bad.Module, bad.Examples = "", []json.RawMessage{json.RawMessage(`{"size":1}`)}
	got, err := r.Check(t.Context(), bad, registry.ProofRequest{})
	require.NoError(t, err)
	require.Equal(t, registry.VerdictRefused, got.Verdict)
	codes := map[string]string{}
	for _, v := range got.Findings {
		codes[v.Field] = v.Code
	}
	require.Equal(t, "event_type.module_missing", codes["/module"])
	require.Equal(t, "pii.undeclared", codes["/data_schema/properties/email"])
	require.Equal(t, "event_type.type_changed", codes["/data_schema/properties/size"])
	require.Contains(t, codes, "/examples/0/size")

	for name, c := range map[string]struct {
		reg     eventtype.Registration
		verdict registry.Verdict
		code    string
	}{
		"first":      {contact(), registry.VerdictNewType, ""},
		"unchanged":  {leadWith(1, `{"properties":{"size":{"type":"integer"}},"additionalProperties":false,"type":"object"}`), registry.VerdictUnchanged, ""},
		"amended":    {leadWith(1, sizedMore), registry.VerdictAmendment, ""},
		"rewritten":  {leadWith(1, unsized), registry.VerdictRefused, "event_type.type_changed"},
		"built in":   {eventtype.Registration{Type: "shop.order.lost", SchemaVersion: 1, Module: "shop", DataSchema: json.RawMessage(sized)}, registry.VerdictRefused, "event_type.owned_by_module"},
		"no schema":  {leadWith(2, `{"type":"thing"}`), registry.VerdictRefused, "event_type.schema_invalid"},
		"no version": {leadWith(0, sized), registry.VerdictRefused, "event_type.version_invalid"},
	} {
		got, err := r.Check(t.Context(), c.reg, registry.ProofRequest{})
		require.NoError(t, err)
		require.Equal(t, c.verdict, got.Verdict, "%s: %v", name, got.Findings)
		if c.code != "" {
			require.Equal(t, c.code, got.Findings[0].Code, name)
		}
	}
	_, after, err := types.EventTypes(t.Context(), acme)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

var second = event.Actor{Type: event.Human, ID: "p-second"}

func decision(by event.Actor, version uint32) registry.Decision {
	return registry.Decision{TenantID: acme, Type: "crm.lead.won", SchemaVersion: version, By: by}
}

// agree proposes a change and confirms it as a second person.
func agree(t *testing.T, r *registry.Registry, propose func(context.Context, registry.Decision) ([]eventtype.Registration, error), version uint32, reason string) []eventtype.Registration {
	t.Helper()
	d := decision(admin, version)
	d.Reason = reason
	_, err := propose(t.Context(), d)
	require.NoError(t, err)
	d.By = second
	all, err := r.Confirm(t.Context(), d, registry.ProofRequest{})
	require.NoError(t, err)
	return all
}

func TestDeprecate_Reactivate(t *testing.T) {
	t.Parallel()
	store := newStore()
	types := eventTypes(t, store)
	r, other := node(t, types, orderSchema), node(t, types, orderSchema)
	require.NoError(t, r.RegisterBuiltIn(t.Context()))
	for v := range uint32(2) {
		_, err := r.Register(t.Context(), lead(v+1), admin, registry.ProofRequest{})
		require.NoError(t, err)
	}
	all := agree(t, r, r.Deprecate, 2, "wrong")
	require.False(t, all[0].Active)
	typ, err := r.Lookup(t.Context(), acme, "crm.lead.won", 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, typ.SchemaVersion)
	agree(t, r, r.Deprecate, 0, "")
	_, err = r.Deprecate(t.Context(), decision(admin, 0))
	require.NoError(t, err, "again changes nothing")
	require.NoError(t, other.Refresh(t.Context(), acme))
	_, err = other.Lookup(t.Context(), acme, "crm.lead.won", 0)
	require.Equal(t, "event_type.deprecated", code(t, err))
	_, err = r.Register(t.Context(), lead(3), admin, registry.ProofRequest{})
	require.Equal(t, "event_type.deprecated", code(t, err))
	agree(t, r, r.Reactivate, 2, "right after all")
	_, err = other.Lookup(t.Context(), acme, "crm.lead.won", 2)
	require.NoError(t, err, "found again at once, by a miss")

	history, err := r.History(t.Context(), acme, "crm.lead.won")
	require.NoError(t, err)
	require.Len(t, history, 8)
	require.Equal(t, eventtype.ActionReactivated, history[7].Action)
	require.Equal(t, "right after all", history[7].Reason)
	require.Equal(t, []string{admin.ID, second.ID}, []string{history[6].Actor, history[7].Actor})

	for name, c := range map[string]struct{ typ, reason, code string }{
		"built in": {"shop.order.placed", "", "event_type.owned_by_module"},
		"unknown":  {"crm.lead.lost", "", "event_type.not_found"},
		"reason":   {"crm.lead.won", string(make([]byte, 1001)), "event_type.reason_too_long"},
		"mail":     {"crm.lead.won", "asked for by ada@example.org", "pii.in_text"},
	} {
		_, err := r.Deprecate(t.Context(), registry.Decision{TenantID: acme, Type: c.typ, By: admin, Reason: c.reason})
		require.Equal(t, c.code, code(t, err), name)
	}
	_, err = r.History(t.Context(), acme, "crm.lead.lost")
	require.Equal(t, "event_type.not_found", code(t, err))
	history, err = r.History(t.Context(), acme, "shop.order.placed")
	require.NoError(t, err)
	require.Equal(t, "module:shop", history[0].Actor)
}

// movingStore is a store in which another caller registers a version between a check and the
// write.
type movingStore struct {
	stored
	once  sync.Once
	first eventtype.Registration
}

func (m *movingStore) RegisterEventTypeAt(ctx context.Context, r eventtype.Registration, generation int64) (eventtype.Registration, error) {
	m.once.Do(func() {
		m.first.Active = true
		if _, err := m.RegisterEventType(ctx, m.first); err != nil {
			panic(err)
		}
	})
	return m.stored.RegisterEventTypeAt(ctx, r, generation)
}

func TestRegister_ChecksStoredVersions(t *testing.T) {
	t.Parallel()
	r := node(t, &movingStore{stored: eventTypes(t, newStore()), first: leadWith(1, unsized)}, orderSchema)
	_, err := r.Register(t.Context(), leadWith(2, sized), admin, registry.ProofRequest{})
	require.Equal(t, "event_type.incompatible", code(t, err), "with the version that came in between")
	unrelated := leadWith(1, unsized)
	unrelated.Type = "crm.lead.lost"
	r = node(t, &movingStore{stored: eventTypes(t, newStore()), first: unrelated}, orderSchema)
	_, err = r.Register(t.Context(), leadWith(2, sized), admin, registry.ProofRequest{})
	require.NoError(t, err)
}

package upcasting_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
)

// One node serves two tenants with a type of the same name. What the administrators of one do
// changes neither what the other reads nor what it may append, and a proof reads no events of it.
func TestUpcast_Tenants(t *testing.T) {
	t.Parallel()
	const globex = 2 // index of its legal entity
	b := setup(t)
	le, err := b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "globex", Code: "GBMF", TimeZone: "UTC"})
	require.NoError(t, err)
	b.entities = append(b.entities, le)
	theirs := version(1, leadV1)
	theirs.TenantID = "globex"
	b.register(theirs)
	b.register(version(1, leadV1))
	require.NoError(t, b.append(0, lead, 1, `{"size":1,"who":"ada"}`))
	require.NoError(t, b.append(globex, lead, 1, `{"size":7,"who":"bob"}`))

	next := version(2, leadV2, from(1, `if .who == "bob" then error("bob") else `+rename+` end`))
	found, err := b.types.Check(t.Context(), next, registry.ProofRequest{})
	require.NoError(t, err)
	require.Equal(t, 1, found.Report.Events, "only those of the tenant")
	require.Equal(t, 2, found.Report.Partitions)
	_, err = b.types.Register(t.Context(), next, admin, registry.ProofRequest{})
	require.NoError(t, err)
	read := func(entity int) event.Recorded {
		shown, err := b.service.Upcast(t.Context(), b.stored(entity))
		require.NoError(t, err)
		return shown[0]
	}
	require.EqualValues(t, 1, read(0).SchemaVersion, "proposed only")
	b.confirm(next)
	require.EqualValues(t, 2, read(0).SchemaVersion)
	require.EqualValues(t, 1, read(globex).SchemaVersion)
	require.JSONEq(t, `{"size":7,"who":"bob"}`, dataOf(t, read(globex)))
	both, err := b.service.Upcast(t.Context(), append(b.stored(globex), b.stored(0)...))
	require.NoError(t, err)
	require.Equal(t, []uint32{1, 2}, []uint32{both[0].SchemaVersion, both[1].SchemaVersion}, "in one batch too")

	b.deprecate(0)
	require.Equal(t, "event_type.deprecated", code(t, b.append(0, lead, 1, `{"size":1,"who":"ada"}`)))
	require.NoError(t, b.append(globex, lead, 1, `{"size":8,"who":"bob"}`))
	require.Equal(t, "event_type.not_found", code(t, b.append(globex, lead, 2, `{"length":8,"who":"bob"}`)))
}

// A held business key stays held: a version under which its events would claim nothing is not
// registered.
func TestUpcast_RenamedBusinessKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := []eventtype.BusinessKeyRule{{Name: "lead", Fields: []string{"number"}}}
	first := version(1, `{"type":"object","properties":{"number":{"type":"string"}}}`)
	first.BusinessKeys = key
	b.register(first)
	require.NoError(t, b.append(0, lead, 1, `{"number":"L-1"}`))
	renamed := version(2, `{"type":"object","properties":{"lead_number":{"type":"string"}}}`, from(1, `{lead_number: .number}`))
	renamed.BusinessKeys = key
	_, err := b.types.Register(t.Context(), renamed, admin, registry.ProofRequest{})
	require.Equal(t, "event_type.invalid", code(t, err))
	require.Equal(t, "event_type.not_found", code(t, b.append(0, lead, 2, `{"lead_number":"L-1"}`)))
	require.Equal(t, "append.duplicate_business_key", code(t, b.append(0, lead, 1, `{"number":"L-1"}`)))
}

// Neither does a version whose key is of another kind, or is kept beside a new name.
func TestUpcast_UnclaimedBusinessKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := version(1, `{"type":"object","required":["number"],"properties":{"number":{"type":"string"}}}`)
	first.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "lead", Fields: []string{"number"}}}
	b.register(first)
	require.NoError(t, b.append(0, lead, 1, `{"number":"L-1"}`))
	for _, c := range []struct{ schema, program, code, data string }{
		{`{"type":"object","required":["number"],"properties":{"number":{"type":"object"}}}`, `.number = {value: .number}`, "event_type.invalid", `{"number":{"value":"L-1"}}`},
		{`{"type":"object","required":["lead_number"],"properties":{"lead_number":{"type":"string"},"number":{"type":"string"}}}`, `{lead_number: .number}`, "event_type.incompatible", `{"lead_number":"L-1"}`},
		{`{"type":"object","properties":{"lead_number":{"type":"string"}},"patternProperties":{"^x-":{}}}`, `{lead_number: .number}`, "event_type.invalid", `{"lead_number":"L-1"}`},
	} {
		next := version(2, c.schema, from(1, c.program))
		next.BusinessKeys = first.BusinessKeys
		_, err := b.types.Register(t.Context(), next, admin, registry.ProofRequest{})
		require.Equal(t, c.code, code(t, err))
		require.Equal(t, "event_type.not_found", code(t, b.append(0, lead, 2, c.data)))
	}
	require.Equal(t, "append.duplicate_business_key", code(t, b.append(0, lead, 1, `{"number":"L-1"}`)))
}

// An upcaster keeps what earlier events claimed, in fields that need not be there too.
func TestProve_BusinessKeyKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := version(1, `{"type":"object","properties":{"number":{"type":"string"}}}`)
	first.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "lead", Fields: []string{"number"}, Normalise: eventtype.NormaliseDocumentNumber}}
	b.register(first)
	require.NoError(t, b.append(0, lead, 1, `{}`))
	require.NoError(t, b.append(0, lead, 1, `{"number":"l-7"}`))
	next := func(member, program string) eventtype.Registration {
		r := version(2, `{"type":"object","properties":{"number":`+member+`,"lead_number":{"type":"string"},"size":{"type":"integer"}}}`, from(1, program))
		r.BusinessKeys = append(first.BusinessKeys, eventtype.BusinessKeyRule{Name: "size", Fields: []string{"size"}})
		return r
	}
	for program, member := range map[string]string{
		`if .number then {lead_number: .number} else . end`: `{"type":"string"}`,
		`if .number then .number |= "Q" + . else . end`:     `{"type":"string"}`,
		`if .number then .number = 7 else . end`:            `{"type":"number"}`,
	} {
		found := b.check(next(member, program), registry.ProofRequest{Visible: map[event.PartitionID]string{b.entities[0].Partition: "DEMF"}})
		require.Equal(t, registry.VerdictRefused, found.Verdict, program)
		require.Equal(t, "/number event_type.business_key_changed", found.Findings[0].Field+" "+found.Findings[0].Code)
		_, err := b.types.Register(t.Context(), next(member, program), admin, registry.ProofRequest{})
		require.Equal(t, "event_type.upcaster_failed", code(t, err))
	}
	b.register(next(`{"type":"string"}`, `(if .number then .number |= ascii_upcase else . end) | .size = 1`))
	require.Equal(t, "append.duplicate_business_key", code(t, b.append(0, lead, 2, `{"number":"L-7"}`)))
}

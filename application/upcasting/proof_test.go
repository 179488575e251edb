package upcasting_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/upcasting"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/typestest"
)

func (b *upcastFixture) check(r eventtype.Registration, p registry.ProofRequest) registry.Assessment {
	b.t.Helper()
	out, err := b.types.Check(b.t.Context(), r, p)
	require.NoError(b.t, err)
	return out
}

// TestProve_Failures names the events that the caller may see, counts the rest,
// and says no value of any.
func TestProve_Failures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	for _, data := range []string{`{"size":12}`, `{"size":-3,"who":"ada@example.org"}`, `{"size":7}`} {
		require.NoError(t, b.append(0, lead, 1, data))
		require.NoError(t, b.append(1, lead, 1, data))
	}
	positive := version(2, `{"type":"object","additionalProperties":false,"required":["volume"],"properties":{"volume":{"type":"number","minimum":1},"who":{"type":"string","x-not-pii":"a code"}}}`, from(1, rename))
	mine := registry.ProofRequest{Visible: map[event.PartitionID]string{b.entities[0].Partition: "DEMF"}}
	found := b.check(positive, mine)
	require.Equal(t, registry.VerdictRefused, found.Verdict)
	bad := b.stored(0)[1]
	require.Equal(t, []module.ProofFailure{{EventID: bad.ID.String(), LegalEntity: "DEMF", Sequence: "2", SchemaVersion: 1, Code: "schema.minimum", Pointer: "/volume"}}, found.Report.Failures)
	require.Equal(t, 1, found.Report.HiddenFailures)
	require.Equal(t, 6, found.Report.Events)
	require.True(t, found.Report.Failed)
	require.Empty(t, found.Report.Proof)
	text, err := json.Marshal(found)
	require.NoError(t, err)
	require.NotContains(t, string(text), "ada")
	require.NotContains(t, string(text), b.stored(1)[1].ID.String())

	_, err = b.types.Register(t.Context(), positive, admin, mine)
	require.Equal(t, "event_type.upcaster_failed", code(t, err))
	f, _ := fault.As(err)
	require.Len(t, f.Violations, 1)
	require.Contains(t, f.Violations[0].Detail, bad.ID.String())
	require.NotContains(t, err.Error(), "ada")
	require.Contains(t, f.Detail, "1 of other legal entities")

	repaired := positive
	repaired.Upcasters = []eventtype.Upcaster{from(1, `.size |= (if . < 1 then 1 else . end) | `+rename)}
	found = b.check(repaired, mine)
	require.Equal(t, registry.VerdictNewVersion, found.Verdict, found.Findings)
	require.NotEmpty(t, found.Report.Proof)
	mine.Token = found.Report.Proof
	_, err = b.types.Register(t.Context(), repaired, admin, mine)
	require.NoError(t, err)
}

// TestProve_Examples before any event is looked at.
func TestProve_Examples(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := version(1, leadV1)
	first.Examples = []json.RawMessage{json.RawMessage(`{"size":1}`), json.RawMessage(`{"size":2,"who":"x"}`)}
	b.register(first)
	found := b.check(version(2, leadV2, from(1, `{volume: .size, gone: .who}`)), registry.ProofRequest{})
	one := 1
	require.Equal(t, registry.VerdictRefused, found.Verdict)
	require.Equal(t, 2, found.Report.Examples)
	require.Len(t, found.Report.Failures, 2, "the other has a member that is null and not described")
	require.Equal(t, &one, found.Report.Failures[1].Example)
	for program, want := range map[string]string{
		`{volume: .size}`: "", `error`: "transform.failed", `empty`: "transform.output_invalid", `., .`: "transform.output_invalid", `.size`: "transform.output_invalid",
		`def f: f; f`: "transform.limit_exceeded", `[range(1e9)]`: "transform.limit_exceeded", `{volume: (1 / 3)}`: "json.number_out_of_range", `{volume: "1"}`: "schema.type",
	} {
		found := b.check(version(2, leadV2, from(1, program)), registry.ProofRequest{})
		if want == "" {
			require.Equal(t, registry.VerdictNewVersion, found.Verdict)
			continue
		}
		require.Equal(t, want, found.Report.Failures[0].Code, program)
	}
	bad := b.check(version(2, leadV2, from(1, "{\n  volume: now\n}")), registry.ProofRequest{})
	require.Equal(t, "/upcasters/0/jq", bad.Findings[0].Field)
	require.Equal(t, "event_type.upcaster_invalid", bad.Findings[0].Code)
	require.Contains(t, bad.Findings[0].Detail, "line 2, column 11")
	require.Nil(t, bad.Report)
	unknown := b.check(version(9, leadV2, from(1, rename), from(5, ".")), registry.ProofRequest{})
	require.Equal(t, "event_type.upcaster_from_unknown", unknown.Findings[0].Code)
}

// TestProve_ContinuesWithToken looks at events a part at a time; a proof spares what was looked at.
func TestProve_ContinuesWithToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	for i := range 450 {
		require.NoError(t, b.append(i%2, lead, 1, fmt.Sprintf(`{"size":%d}`, i)))
	}
	next := version(2, leadV2, from(1, rename))
	brief := registry.ProofRequest{MaxDuration: time.Nanosecond}
	_, err := b.types.Register(t.Context(), next, admin, brief)
	require.Equal(t, "event_type.proof_needed", code(t, err))
	var found registry.Assessment
	for calls, before := 1, 0; ; calls++ {
		found = b.check(next, brief)
		require.Equal(t, registry.VerdictNewVersion, found.Verdict)
		require.Greater(t, found.Report.Events, before, "each call gets further")
		require.LessOrEqual(t, found.Report.Events-before, 200, "and not much")
		before = found.Report.Events
		if found.Report.Complete {
			require.Greater(t, calls, 2)
			break
		}
		require.Empty(t, found.Report.Proof)
		require.NotEmpty(t, found.Report.Cursor)
		token, err := base64.RawURLEncoding.DecodeString(found.Report.Cursor)
		require.NoError(t, err)
		require.NotContains(t, string(token), `"p"`, "it contains positions in logs of other tenants")
		brief.Token = found.Report.Cursor
	}
	require.Equal(t, 450, found.Report.Events)
	require.Equal(t, []int{2, 2}, []int{found.Report.Partitions, found.Report.PartitionsDone})

	// What comes afterwards is looked at when the version is registered.
	require.NoError(t, b.append(1, lead, 1, `{"size":1}`))
	brief.Token = found.Report.Proof
	_, err = b.types.Register(t.Context(), next, admin, brief)
	require.NoError(t, err)
	b.confirm(next)
	shown, err := b.service.Upcast(t.Context(), b.stored(1))
	require.NoError(t, err)
	for _, e := range shown {
		require.EqualValues(t, 2, e.SchemaVersion)
	}
}

// TestProve_ForgedToken, and hold for what they were given for.
func TestProve_ForgedToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	require.NoError(t, b.append(0, lead, 1, `{"size":1}`))
	next := version(2, leadV2, from(1, rename))
	good := b.check(next, registry.ProofRequest{}).Report.Proof
	other := version(2, leadV2, from(1, `{volume: 0}`))
	for token, want := range map[string]string{good: "cursor.foreign", good[:len(good)-4] + "AAAA": "cursor.foreign", "x": "cursor.malformed"} {
		_, err := b.types.Check(t.Context(), other, registry.ProofRequest{Token: token})
		require.Equal(t, want, code(t, err))
		_, err = b.types.Register(t.Context(), other, admin, registry.ProofRequest{Token: token})
		require.Equal(t, want, code(t, err))
	}
	// A proof that failed stays one that failed, however far it goes.
	require.NoError(t, b.append(1, lead, 1, `{"size":1}`))
	failing := version(2, leadV2, from(1, `{}`))
	first := b.check(failing, registry.ProofRequest{MaxDuration: time.Nanosecond})
	require.True(t, first.Report.Failed)
	require.False(t, first.Report.Complete)
	last := b.check(failing, registry.ProofRequest{Token: first.Report.Cursor})
	require.True(t, last.Report.Complete)
	require.True(t, last.Report.Failed)
	require.Empty(t, last.Report.Proof)
	// Another version in between changes how earlier events are read. That one takes no
	// more events does not.
	third := version(3, leadV3, from(2, `. + {unit: "t"}`))
	b.register(next)
	token := b.check(third, registry.ProofRequest{}).Report.Proof
	b.deprecate(2)
	_, err := b.types.Check(t.Context(), third, registry.ProofRequest{Token: token})
	require.NoError(t, err)
	b.register(version(4, leadV3, from(2, `. + {unit: "kg"}`)))
	_, err = b.types.Register(t.Context(), third, admin, registry.ProofRequest{Token: token})
	require.Equal(t, "cursor.foreign", code(t, err))
}

// TestProve_Defaults where a version requires what earlier events lack.
func TestProve_Defaults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV2))
	require.NoError(t, b.append(0, lead, 1, `{"volume":1,"who":"x"}`))
	// A member that is gone is kept by earlier events; only what is required counts.
	second := version(2, `{"type":"object","additionalProperties":false,"required":["volume","unit"],"properties":{"volume":{"type":"number"},"unit":{"type":"string","default":"t"}}}`)
	found := b.check(second, registry.ProofRequest{})
	require.Equal(t, registry.VerdictNewVersion, found.Verdict, found.Findings)
	require.Equal(t, 1, found.Report.Events)
	require.NotEmpty(t, found.Report.Proof)
	b.register(second)
	require.Nil(t, b.check(version(3, `{"type":"object","required":["volume","unit"],"properties":{"volume":{"type":"number"},"unit":{"type":"string","default":"t"}}}`), registry.ProofRequest{}).Report,
		"nothing is to be proven of a schema that accepts more")
}

// TestProve_ConcurrentRegistration: a node that does not know a version yet shows its events as
// they are.
func TestProve_ConcurrentRegistration(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	later := event.Recorded{Skeleton: event.Skeleton{Type: lead, SchemaVersion: 2}, Payload: []byte(`{"data":{"volume":1}}`)}
	shown, err := b.service.UpcastForDisplay(t.Context(), []event.Recorded{later})
	require.NoError(t, err)
	require.Equal(t, later, shown[0])
}

// A release that cannot compile what another one accepted still knows all types, and
// shows the events of this one as they are stored.
func TestUpcast_UncompilableProgram(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	require.NoError(t, b.append(0, lead, 1, `{"size":1}`))
	b.register(version(2, leadV2, from(1, rename)))

	older := registry.New(typestest.Memory(t, b.store, b.clock), jsonschema.New(), jq.NewWithLimits(jq.Limits{}), b.catalog, b.clock)
	require.NoError(t, older.Refresh(t.Context(), acme))
	_, err := older.Lookup(t.Context(), "", "shop.order.placed", 2)
	require.NoError(t, err)
	service := upcasting.New(older)
	shown, err := service.UpcastForDisplay(t.Context(), b.stored(0))
	require.NoError(t, err)
	require.Equal(t, "event_type.upcaster_invalid", shown[0].UpcastError)
	require.JSONEq(t, `{"size":1}`, dataOf(t, shown[0]))
	_, err = service.Upcast(t.Context(), b.stored(0))
	require.Equal(t, "event_type.upcast_failed", code(t, err))
}

package upcasting_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/upcasting"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/typestest"
)

const (
	leadV1 = `{"type":"object","additionalProperties":false,"required":["size"],"properties":{"size":{"type":"number"},"who":{"type":"string","x-not-pii":"a code"}}}`
	leadV2 = `{"type":"object","additionalProperties":false,"required":["volume"],"properties":{"volume":{"type":"number"},"who":{"type":"string","x-not-pii":"a code"}}}`
	leadV3 = `{"type":"object","additionalProperties":false,"required":["volume","unit"],"properties":{"volume":{"type":"number"},"unit":{"type":"string","default":"t"},"who":{"type":"string","x-not-pii":"a code"}}}`
)

const rename = `{volume: .size} + if has("who") then {who} else {} end`

func TestUpcast_Chain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	require.NoError(t, b.append(0, lead, 1, `{"size":12.10}`))
	require.NoError(t, b.append(0, "shop.order.placed", 1, `{"euros":7,"cents":5}`))
	b.register(version(2, leadV2, from(1, rename)))
	require.NoError(t, b.append(0, lead, 2, `{ "volume": 1.50 }`))
	b.register(version(3, leadV3))
	require.NoError(t, b.append(0, lead, 3, `{ "volume": 2, "unit": "kg" }`))

	stored := b.stored(0)
	before := clone(t, stored)
	shown, err := b.service.Upcast(t.Context(), stored)
	require.NoError(t, err)
	require.Equal(t, before, clone(t, stored), "what is stored stays as it is")
	require.Equal(t, []string{`{"volume":12.10,"unit":"t"}`, `{"amount":7.05,"currency":"EUR"}`, `{ "volume": 1.50 ,"unit":"t"}`, `{ "volume": 2, "unit": "kg" }`},
		[]string{dataOf(t, shown[0]), dataOf(t, shown[1]), dataOf(t, shown[2]), dataOf(t, shown[3])})
	for i, want := range [][2]uint32{{1, 3}, {1, 2}, {2, 3}, {0, 3}} {
		require.Equal(t, want, [2]uint32{shown[i].StoredVersion, shown[i].SchemaVersion})
		require.Equal(t, stored[i].PayloadHash, shown[i].PayloadHash)
		require.Equal(t, stored[i].Checksum, shown[i].Checksum)
	}
	again, err := b.service.Upcast(t.Context(), shown)
	require.NoError(t, err)
	require.Equal(t, shown, again)
	require.Same(t, &shown[0], &again[0], "there is nothing to do")

	bare := stored[0]
	bare.Payload = nil
	shown, err = b.service.Upcast(t.Context(), []event.Recorded{bare})
	require.NoError(t, err)
	require.Equal(t, [2]uint32{1, 3}, [2]uint32{shown[0].StoredVersion, shown[0].SchemaVersion})
}

// TestUpcast_ToDeprecatedVersion: events of a deprecated version stay in its shape, so
// the earlier ones are led to it still, and a reader sees one shape. What undoes a
// version is a further one.
func TestUpcast_ToDeprecatedVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	require.NoError(t, b.append(0, lead, 1, `{"size":1}`))
	b.register(version(2, leadV2, from(1, `if .size > 10 then error("too large") else {volume: .size} end`)))
	require.NoError(t, b.append(0, lead, 2, `{"volume":2}`))
	reading := b.types.ReadingID(acme)
	read := func(version uint32, want ...string) {
		t.Helper()
		for _, show := range []func(context.Context, []event.Recorded) ([]event.Recorded, error){b.service.UpcastForDisplay, b.service.Upcast} {
			shown, err := show(t.Context(), b.stored(0))
			require.NoError(t, err)
			require.Len(t, shown, len(want))
			for i := range shown {
				require.Equal(t, version, shown[i].SchemaVersion)
				require.Equal(t, want[i], dataOf(t, shown[i]))
			}
		}
	}
	read(2, `{"volume":1}`, `{"volume":2}`)

	b.deprecate(2)
	read(2, `{"volume":1}`, `{"volume":2}`)
	require.Equal(t, reading, b.types.ReadingID(acme), "what was folded stays")
	require.Equal(t, "event_type.deprecated", code(t, b.append(0, lead, 2, `{"volume":3}`)))
	require.NoError(t, b.append(0, lead, 0, `{"size":3}`), "of the newest version that takes events")
	read(2, `{"volume":1}`, `{"volume":2}`, `{"volume":3}`)
	require.Equal(t, "event_type.not_upcastable", code(t, b.append(0, lead, 1, `{"size":11}`)), "no reader could read it together with the later events")

	b.register(version(3, leadV1, from(1, "."), from(2, `{size: .volume}`)))
	require.NoError(t, b.append(0, lead, 1, `{"size":11}`))
	read(3, `{"size":1}`, `{"size":2}`, `{"size":3}`, `{"size":11}`)
	reading = b.types.ReadingID(acme)
	b.deprecate(0)
	read(3, `{"size":1}`, `{"size":2}`, `{"size":3}`, `{"size":11}`)
	require.Equal(t, reading, b.types.ReadingID(acme))
}

// TestUpcast_DirectStep takes the step that leads furthest.
func TestUpcast_DirectStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	require.NoError(t, b.append(0, lead, 1, `{"size":1}`))
	b.register(version(2, leadV2, from(1, rename)))
	b.register(version(4, leadV3, from(1, `{volume: (.size * 1000), unit: "kg"}`), from(2, `. + {unit: "t"}`)))
	shown, err := b.service.Upcast(t.Context(), b.stored(0))
	require.NoError(t, err)
	require.JSONEq(t, `{"volume":1000,"unit":"kg"}`, dataOf(t, shown[0]))
}

func clone(t testing.TB, events []event.Recorded) string {
	t.Helper()
	out, err := json.Marshal(events)
	require.NoError(t, err)
	return string(out)
}

// TestUpcast_Idempotent, of random data and chains, and it never changes
// what it is given.
func TestUpcast_Idempotent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	b.register(version(2, leadV2, from(1, rename)))
	b.register(version(3, leadV3))
	rapid.Check(t, func(t *rapid.T) {
		events := make([]event.Recorded, rapid.IntRange(1, 5).Draw(t, "n"))
		for i := range events {
			v := rapid.Uint32Range(1, 4).Draw(t, "version")
			member := map[uint32]string{1: "size"}[v]
			if member == "" {
				member = "volume"
			}
			data := fmt.Sprintf(`{%q:%s,"who":%q}`, member, rapid.StringMatching(`-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,6})?`).Draw(t, "number"), rapid.StringMatching(`[a-z<>&é "]{0,8}`).Draw(t, "text"))
			events[i] = event.Recorded{Skeleton: event.Skeleton{Scope: event.Scope{TenantID: acme}, Type: lead, SchemaVersion: v}, Payload: []byte(`{"data":` + data + `,"dimensions":{"a":"b"},"entity_refs":[]}`)}
		}
		before, err := json.Marshal(events)
		require.NoError(t, err)
		once, err := b.service.Upcast(context.Background(), events)
		require.NoError(t, err)
		twice, err := b.service.Upcast(context.Background(), once)
		require.NoError(t, err)
		require.Equal(t, once, twice)
		after, err := json.Marshal(events)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
		for i := range once {
			was, _, err := numberOf(events[i])
			require.NoError(t, err)
			is, rest, err := numberOf(once[i])
			require.NoError(t, err)
			require.Equal(t, was, is, "numbers keep their text")
			require.Equal(t, `"dimensions":{"a":"b"},"entity_refs":[]}`, rest)
		}
	})
}

func numberOf(e event.Recorded) (number, rest string, err error) {
	var body struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	err = json.Unmarshal(e.Payload, &body)
	number = string(body.Data["size"]) + string(body.Data["volume"])
	return number, string(e.Payload[bytes.Index(e.Payload, []byte(`"dimensions"`)):]), err
}

// TestUpcast_Failures shows events to people as they are stored, and stops folds.
func TestUpcast_Failures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	b.register(version(2, leadV2, from(1, `if .who == "bad" then error("ada@example.org") elif .who == "loop" then [range(1e9)] else `+rename+` end`)))
	raw := func(who string) event.Recorded {
		return event.Recorded{Skeleton: event.Skeleton{Scope: event.Scope{TenantID: acme}, Type: lead, SchemaVersion: 1}, Payload: []byte(`{"data":{"size":1,"who":"` + who + `"},"dimensions":{},"entity_refs":[]}`)}
	}
	events := []event.Recorded{raw("good"), raw("bad"), raw("loop")}
	shown, err := b.service.UpcastForDisplay(t.Context(), events)
	require.NoError(t, err)
	require.EqualValues(t, 2, shown[0].SchemaVersion)
	for i, want := range []string{"", "transform.failed", "transform.limit_exceeded"} {
		require.Equal(t, want, shown[i].UpcastError)
		if want != "" {
			require.EqualValues(t, 1, shown[i].SchemaVersion)
			require.Zero(t, shown[i].StoredVersion)
			require.Equal(t, events[i].Payload, shown[i].Payload)
		}
	}
	_, err = b.service.Upcast(t.Context(), events)
	require.Equal(t, "event_type.upcast_failed", code(t, err))
	require.NotContains(t, err.Error(), "ada")
	applied := &handler{}
	err = upcasting.UpcastProjection(applied, b.service).Apply(t.Context(), nil, ports.ProjectionBatch{Events: events})
	require.Equal(t, "event_type.upcast_failed", code(t, err))
	require.Nil(t, applied.events, "a projection gets all of a page or nothing")
	require.NoError(t, upcasting.UpcastProjection(applied, b.service).Apply(t.Context(), nil, ports.ProjectionBatch{Events: events[:1]}))
	require.EqualValues(t, 2, applied.events[0].SchemaVersion)

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.service.UpcastForDisplay(cancelled, events)
	require.ErrorIs(t, err, context.Canceled)
}

type handler struct{ events []event.Recorded }

func (h *handler) Apply(_ context.Context, _ ports.ProjectionTx, b ports.ProjectionBatch) error {
	h.events = b.Events
	return nil
}

// TestCheckUpcastable refuses an event of an earlier version that could not be read
// in the newest one.
func TestCheckUpcastable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	b.register(version(2, `{"type":"object","additionalProperties":false,"required":["volume"],"properties":{"volume":{"type":"number","minimum":10},"who":{"type":"string","x-not-pii":"a code"}}}`, from(1, rename)))
	require.NoError(t, b.append(0, lead, 1, `{"size":11}`))
	err := b.append(0, lead, 1, `{"size":9}`)
	require.Equal(t, "event_type.not_upcastable", code(t, err))
	f, _ := fault.As(err)
	require.Equal(t, fault.FailedPrecondition, f.Kind)
	require.Equal(t, "/events/0/data/volume", f.Violations[0].Field)
	require.Equal(t, "schema.minimum", f.Violations[0].Code)
	require.Len(t, b.stored(0), 1)
}

// TestUpcastReader gives decisions events in the version in which they are read.
func TestUpcastReader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	require.NoError(t, b.append(0, lead, 1, `{"size":1}`))
	b.register(version(2, leadV2, from(1, rename)))
	log, p, first := upcasting.UpcastReader(b.store.Events, b.service), b.entities[0].Partition, b.stored(0)[0]
	check := func(e event.Recorded, err error) {
		require.NoError(t, err)
		require.Equal(t, `{"volume":1}`, dataOf(t, e))
	}
	check(log.EventByID(t.Context(), p, first.ID))
	stream, err := log.EventsOfStream(t.Context(), p, first.Stream, 1, 10)
	check(stream[0], err)
	events, err := log.Events(t.Context(), ports.EventQuery{Partition: p, Limit: 10})
	check(events[0], err)
	matches, err := log.Matches(t.Context(), ports.MatchQuery{Partition: p, Until: 1, Limit: 10})
	require.NoError(t, err)
	require.Empty(t, matches.Matches)
	events, err = log.Events(t.Context(), ports.EventQuery{Partition: p, SchemaVersion: 2, Limit: 10})
	require.NoError(t, err)
	require.Empty(t, events, "queries look at what is stored")
}

// TestUpcast_ByModule are refused at start-up if an upcaster does not lift their own examples.
func TestUpcast_ByModule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version uint32
		upcast  module.Upcast
		says    string
	}{
		"fails":        {2, func(json.RawMessage) (json.RawMessage, error) { return nil, errors.New("no") }, "fails on example 0 of version 1"},
		"does not fit": {2, func(d json.RawMessage) (json.RawMessage, error) { return d, nil }, "converts example 0 of version 1 to data that does not fit the schema"},
		"no version":   {1, func(d json.RawMessage) (json.RawMessage, error) { return d, nil }, "there is no version before it"},
	} {
		_, err := module.Build(jsonschema.New(), broken{c.version, c.upcast})
		require.ErrorContains(t, err, c.says, name)
	}
}

type broken struct {
	version uint32
	upcast  module.Upcast
}

func (broken) Name() string { return "shop" }

func (m broken) Register(r *module.Registrar) error {
	r.Prefixes("shop")
	declare := func(version uint32, schema string) {
		t := module.EventType{Registration: eventtype.Registration{Type: "shop.a.b", SchemaVersion: version, Module: "shop", DataSchema: json.RawMessage(schema), Examples: []json.RawMessage{json.RawMessage(`{"a":1,"b":2}`)}}}
		if version == m.version {
			t.Upcast = m.upcast
		}
		if version == 2 {
			t.Examples = nil
		}
		r.EventType(t)
	}
	declare(1, `{"type":"object"}`)
	declare(2, `{"type":"object","required":["c"]}`)
	return nil
}

// TestUpcast_MovesSealedValues shows that a program moves a sealed value without seeing it, that
// it opens at its new place as what it was, and that it goes nowhere else.
func TestUpcast_MovesSealedValues(t *testing.T) {
	t.Parallel()
	const (
		flat   = `{"type":"object","additionalProperties":false,"properties":{"email":{"type":"string"},"phone":{"type":"string"}}}`
		nested = `{"type":"object","additionalProperties":false,"properties":{"reach":{"type":"object","additionalProperties":false,"properties":{"mails":{"type":"array","items":{"type":"string","maxLength":9}},"phone":{"type":"string"}}},"n":{"type":"integer"}}}`
	)
	personal := func(v eventtype.Registration, paths ...string) eventtype.Registration {
		v.RequiredEntityRefs = []eventtype.RequiredRef{{EntityType: "person", Role: "subject", Cardinality: eventtype.One}}
		for i, path := range paths {
			v.PIIFields = append(v.PIIFields, eventtype.PIIField{Path: path, Class: []string{"contact", "health"}[i], Subject: json.RawMessage(`{"entity_role":"subject"}`)})
		}
		return v
	}
	key, err := shredding.NewKey(shredding.KeyStandard, 1, bytes.Repeat([]byte{7}, shredding.DEKSize))
	require.NoError(t, err)
	e := event.Recorded{Skeleton: event.Skeleton{Scope: event.Scope{TenantID: acme}, Partition: 7, ID: event.ID{9}, Type: lead, SchemaVersion: 1, PII: map[string]string{"/data/email": "contact", "/data/phone": "health"}}}
	at := shredding.Location{Partition: 7, Kind: shredding.KindEvent, Record: e.ID, Type: lead, SchemaVersion: 1}
	e.Payload, err = shredding.SealDocument(nil, []byte(`{"data":{"email":"ada@example.org","phone":"0170"},"dimensions":{},"entity_refs":[]}`),
		[]shredding.Field{{Pointer: "/data/email", Subject: "person:p-1"}, {Pointer: "/data/phone", Subject: "person:p-1"}}, func(f shredding.Field, value []byte) (shredding.Envelope, error) {
			here := at
			here.Pointer = f.Pointer
			return shredding.Seal(key, here, f.Subject, value)
		})
	require.NoError(t, err)

	const move = `{reach: {mails: [.email], phone}, n: (.email | length + (keys | length))}`
	b := setup(t)
	b.register(personal(version(1, flat), "$.email", "$.phone"))
	b.register(personal(version(2, nested, from(1, move)), "$.reach.mails[*]", "$.reach.phone"))
	shown, err := b.service.Upcast(t.Context(), []event.Recorded{e})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"/data/reach/mails/0": "contact", "/data/reach/phone": "health"}, shown[0].PII)
	require.Contains(t, string(shown[0].Payload), `"n":2`, "a program sees a token of one member, whatever the value")
	opened, err := shredding.OpenDocument(nil, shown[0].Payload, func(s shredding.Sealed) (shredding.Answer, error) {
		plain, err := shredding.Open(key, *s.Origin, s.Subject, s.Envelope)
		return shredding.Clear(plain), err
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"data":{"reach":{"mails":["ada@example.org"],"phone":"0170"},"n":2},"dimensions":{},"entity_refs":[]}`, string(opened))

	for program, want := range map[string]string{
		`{reach: {mails: [.phone], phone}}`:                "event_type.upcaster_moves_personal", // of another class
		`{n: 1, email}`:                                    "event_type.upcaster_moves_personal", // not declared
		`{reach: {mails: [{"$pii": "7"}]}}`:                "pii.token_forged",
		`{reach: {phone: (.phone + {sub: "person:p-2"})}}`: "pii.token_forged",
		`{reach: {mails: [.email["$pii"] | tostring]}}`:    "", // its number, which says nothing
		`{n: 3}`: "",
	} {
		b := setup(t)
		b.register(personal(version(1, flat), "$.email", "$.phone"))
		b.register(personal(version(2, nested, from(1, program)), "$.reach.mails[*]", "$.reach.phone"))
		shown, err := b.service.UpcastForDisplay(t.Context(), []event.Recorded{e})
		require.NoError(t, err)
		require.Equal(t, want, shown[0].UpcastError, program)
	}
}

func BenchmarkUpcastCurrentVersion(bm *testing.B) {
	b := setup(bm)
	b.register(version(1, leadV1))
	b.register(version(2, leadV2, from(1, rename)))
	events := make([]event.Recorded, 1000)
	for i := range events {
		events[i] = event.Recorded{Skeleton: event.Skeleton{Scope: event.Scope{TenantID: acme}, Type: lead, SchemaVersion: 2}, Payload: []byte(`{"data":{}}`)}
	}
	bm.ReportAllocs()
	for bm.Loop() {
		if _, err := b.service.Upcast(bm.Context(), events); err != nil {
			bm.Fatal(err)
		}
	}
}

// TestUpcast_Allocations: no allocation for events of the newest version.
func TestUpcast_Allocations(t *testing.T) {
	b := setup(t)
	b.register(version(1, leadV1))
	b.register(version(2, leadV2, from(1, rename)))
	events := []event.Recorded{{Skeleton: event.Skeleton{Scope: event.Scope{TenantID: acme}, Type: lead, SchemaVersion: 2}}, {Skeleton: event.Skeleton{Type: "shop.order.placed", SchemaVersion: 2}}}
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = b.service.Upcast(context.Background(), events) }))
}

// A node that reads an event of a version that it has not loaded loads the version first:
// otherwise readers would take events of two versions for events of one.
func TestUpcast_RefreshesUnknownVersions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(version(1, leadV1))
	behind := registry.New(typestest.Memory(t, b.store, b.clock), jsonschema.New(), jq.New(), b.catalog, b.clock)
	require.NoError(t, behind.Refresh(t.Context(), acme))
	require.NoError(t, b.append(0, lead, 1, `{"size":1}`))
	b.register(version(2, leadV2, from(1, rename)))
	reading := behind.ReadingID(acme)

	node := upcasting.New(behind)
	shown, err := node.UpcastForDisplay(t.Context(), b.stored(0))
	require.NoError(t, err)
	require.Equal(t, `{"size":1}`, dataOf(t, shown[0]), "stale: the node has not loaded version 2")
	require.Equal(t, reading, behind.ReadingID(acme))

	require.NoError(t, b.append(0, lead, 2, `{"volume":2}`))
	for _, show := range []func(context.Context, []event.Recorded) ([]event.Recorded, error){node.UpcastForDisplay, node.Upcast} {
		shown, err = show(t.Context(), b.stored(0))
		require.NoError(t, err)
		require.Equal(t, []string{`{"volume":1}`, `{"volume":2}`}, []string{dataOf(t, shown[0]), dataOf(t, shown[1])})
	}
	require.NotEqual(t, reading, behind.ReadingID(acme), "states are folded again")

	// An event of an unregistered version is returned as stored.
	unknown := b.stored(0)[:1]
	unknown[0].SchemaVersion = 9
	shown, err = node.UpcastForDisplay(t.Context(), unknown)
	require.NoError(t, err)
	require.Equal(t, unknown, shown)
}

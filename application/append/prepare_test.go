package append_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

var (
	order = event.EntityRef{Type: "order", ID: "O-1", Role: "subject"}
	item  = event.EntityRef{Type: "item", ID: "I-1", Role: "content"}
)

func longText(n int) string { return strings.Repeat("x", n) }

// TestPrepare_Refusals prepares a valid event followed by each kind of invalid event.
func TestPrepare_Refusals(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	stream := func(typ, id string) func(*event.Draft) {
		return func(d *event.Draft) { d.Stream = event.StreamID{Type: typ, ID: id} }
	}
	refs := func(refs ...event.EntityRef) func(*event.Draft) {
		return func(d *event.Draft) { d.Entities = refs }
	}
	tags := func(tags ...string) func(*event.Draft) { return func(d *event.Draft) { d.Tags = tags } }
	data := func(doc string) func(*event.Draft) {
		return func(d *event.Draft) { d.Data = json.RawMessage(doc) }
	}
	cost := map[string]string{"cost_center": "100"}
	for name, c := range map[string]struct {
		draft event.Draft
		kind  fault.Kind
		code  string
		field string // after /events/1
	}{
		"unknown type":      {orderPlaced(func(d *event.Draft) { d.Type = "shop.order.lost" }), fault.NotFound, "event_type.not_found", ""},
		"unknown version":   {orderPlaced(func(d *event.Draft) { d.SchemaVersion = 2 }), fault.NotFound, "event_type.not_found", ""},
		"check of the type": {orderPlaced(data(`{"amount":-1}`)), fault.Invalid, "shop.amount_negative", "/data/amount"},
		"event too large":   {orderPlaced(data(`{"more":"` + longText(5000) + `"}`)), fault.TooLarge, "append.event_too_large", ""},

		"no dimension":        {orderShipped(nil, order, item), fault.Invalid, "append.dimension_missing", "/dimensions/cost_center"},
		"empty dimension":     {orderShipped(map[string]string{"cost_center": ""}, order, item), fault.Invalid, "append.dimension_missing", "/dimensions/cost_center"},
		"no reference":        {orderShipped(cost, item), fault.Invalid, "append.reference_missing", "/entities"},
		"reference twice":     {orderShipped(cost, order, item, event.EntityRef{Type: "order", ID: "O-2", Role: "subject"}), fault.Invalid, "append.reference_missing", "/entities"},
		"reference in a role": {orderShipped(cost, order, event.EntityRef{Type: "item", ID: "I-1", Role: "gift"}), fault.Invalid, "append.reference_missing", "/entities"},

		"too many references":       {orderPlaced(refs(order, order, order, order, order)), fault.TooLarge, "append.too_many_references", "/entities"},
		"too many tags":             {orderPlaced(tags("a", "b", "c", "d")), fault.TooLarge, "append.too_many_tags", "/tags"},
		"reference without type":    {orderPlaced(refs(order, event.EntityRef{ID: "x", Role: "y"})), fault.Invalid, "append.reference_invalid", "/entities/1"},
		"reference without id":      {orderPlaced(refs(event.EntityRef{Type: "x", Role: "y"})), fault.Invalid, "append.reference_invalid", "/entities/0"},
		"reference without role":    {orderPlaced(refs(event.EntityRef{Type: "x", ID: "y"})), fault.Invalid, "append.reference_invalid", "/entities/0"},
		"reference type with colon": {orderPlaced(refs(event.EntityRef{Type: "a:b", ID: "x", Role: "y"})), fault.Invalid, "append.reference_invalid", "/entities/0"},
		"reference too long":        {orderPlaced(refs(event.EntityRef{Type: "vendor", ID: longText(499), Role: "y"})), fault.Invalid, "append.identifier_invalid", "/entities/0"},
		"reference type with NUL":   {orderPlaced(refs(event.EntityRef{Type: "a\x00b", ID: "x", Role: "y"})), fault.Invalid, "append.identifier_invalid", "/entities/0/entity_type"},
		"reference id with NUL":     {orderPlaced(refs(event.EntityRef{Type: "a", ID: "x\x00", Role: "y"})), fault.Invalid, "append.identifier_invalid", "/entities/0/entity_id"},
		"reference to a person":     {orderPlaced(refs(event.EntityRef{Type: "a", ID: "ada@example.org", Role: "y"})), fault.Invalid, "pii.in_identifier", "/entities/0/entity_id"},
		"person as reference type":  {orderPlaced(refs(event.EntityRef{Type: "ada@example.org", ID: "1", Role: "y"})), fault.Invalid, "pii.in_identifier", "/entities/0/entity_type"},

		"role of a person":         {orderPlaced(refs(event.EntityRef{Type: "a", ID: "x", Role: "ada@example.org"})), fault.Invalid, "pii.in_identifier", "/entities/0/role"},
		"long role":                {orderPlaced(refs(event.EntityRef{Type: "a", ID: "x", Role: longText(513)})), fault.Invalid, "append.identifier_invalid", "/entities/0/role"},
		"dimension of a person":    {orderPlaced(func(d *event.Draft) { d.Dimensions = map[string]string{"desk": "ada@example.org"} }), fault.Invalid, "pii.in_identifier", "/dimensions/desk"},
		"dimension named a person": {orderPlaced(func(d *event.Draft) { d.Dimensions = map[string]string{"ada@example.org": "x"} }), fault.Invalid, "pii.in_identifier", "/dimensions"},

		"no stream type":       {orderPlaced(stream("", "O-1")), fault.Invalid, "append.identifier_invalid", "/stream/type"},
		"no stream id":         {orderPlaced(stream("order", "")), fault.Invalid, "append.identifier_invalid", "/stream/id"},
		"stream id too long":   {orderPlaced(stream("order", longText(513))), fault.Invalid, "append.identifier_invalid", "/stream/id"},
		"stream id with NUL":   {orderPlaced(stream("order", "a\x00b")), fault.Invalid, "append.identifier_invalid", "/stream/id"},
		"stream id not UTF-8":  {orderPlaced(stream("order", "a\xff")), fault.Invalid, "append.identifier_invalid", "/stream/id"},
		"stream id of a phone": {orderPlaced(stream("order", "+49 30 901820")), fault.Invalid, "pii.in_identifier", "/stream/id"},
		"stream type":          {orderPlaced(stream("ada@example.org", "1")), fault.Invalid, "pii.in_identifier", "/stream/type"},
		"correlation":          {orderPlaced(func(d *event.Draft) { d.CorrelationID = "ada@example.org" }), fault.Invalid, "pii.in_identifier", "/correlation_id"},
		"long correlation":     {orderPlaced(func(d *event.Draft) { d.CorrelationID = longText(513) }), fault.Invalid, "append.identifier_invalid", "/correlation_id"},
		"source system":        {orderPlaced(func(d *event.Draft) { d.Source.System = "4111 1111 1111 1111" }), fault.Invalid, "pii.in_identifier", "/source/system"},
		"source channel":       {orderPlaced(func(d *event.Draft) { d.Source.Channel = longText(513) }), fault.Invalid, "append.identifier_invalid", "/source/channel"},
		"source reference":     {orderPlaced(func(d *event.Draft) { d.Source.Reference = "DE89370400440532013000" }), fault.Invalid, "pii.in_identifier", "/source/reference"},
		"division":             {orderPlaced(func(d *event.Draft) { d.Scope.Division = "a\x00" }), fault.Invalid, "append.identifier_invalid", "/scope/division"},
		"region":               {orderPlaced(func(d *event.Draft) { d.Scope.Region = "ada@example.org" }), fault.Invalid, "pii.in_identifier", "/scope/region"},
		"site":                 {orderPlaced(func(d *event.Draft) { d.Scope.Site = longText(513) }), fault.Invalid, "append.identifier_invalid", "/scope/site"},
		"custom scope":         {orderPlaced(func(d *event.Draft) { d.Scope.Custom = json.RawMessage(`{"desk":"ada@example.org"}`) }), fault.Invalid, "pii.in_identifier", "/scope/custom/desk"},
		"name of a scope":      {orderPlaced(func(d *event.Draft) { d.Scope.Custom = json.RawMessage(`{"+49 30 901820":"x"}`) }), fault.Invalid, "pii.in_identifier", "/scope/custom"},
		"long custom scope":    {orderPlaced(func(d *event.Draft) { d.Scope.Custom = json.RawMessage(`{"desk":"` + longText(513) + `"}`) }), fault.Invalid, "append.identifier_invalid", "/scope/custom/desk"},
		"scope of no texts":    {orderPlaced(func(d *event.Draft) { d.Scope.Custom = json.RawMessage(`{"desk":{"mail":"x"}}`) }), fault.Invalid, "append.identifier_invalid", "/scope/custom"},
		"empty tag":            {orderPlaced(tags("a", "")), fault.Invalid, "append.identifier_invalid", "/tags/1"},
		"long tag":             {orderPlaced(tags(longText(509))), fault.Invalid, "append.identifier_invalid", "/tags/0"},
		"tag of a person":      {orderPlaced(tags("a", "ada@example.org")), fault.Invalid, "pii.in_identifier", "/tags/1"},

		"business key of a person": {orderPlaced(data(`{"customer":"ada@example.org","number":"1"}`)), fault.Invalid, "pii.in_identifier", "/data/customer"},
		"document of a person":     {orderPlaced(data(`{"customer":"C-1","number":"+49 30 901820"}`)), fault.Invalid, "pii.in_identifier", "/data/number"},
		"long business key":        {orderPlaced(data(`{"customer":"` + longText(300) + `","number":"` + longText(300) + `"}`)), fault.Invalid, "append.identifier_invalid", ""},
		"business key with NUL":    {orderPlaced(data(`{"customer":"C-1","number":"a\u0000"}`)), fault.Invalid, "append.identifier_invalid", "/data/number"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := b.preparer.Prepare(t.Context(), b.batch(orderPlaced(nil), c.draft))
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.code, f.Code, f.Detail)
			require.Equal(t, c.kind, f.Kind)
			require.Equal(t, "/events/1"+c.field, f.Field)
			require.Contains(t, f.Detail, ";", "the detail ends with the next step")
			require.NotContains(t, f.Detail, "ada@", "no input in the detail")
			for _, v := range f.Violations {
				require.True(t, strings.HasPrefix(v.Field, "/events/1/data"), v.Field)
			}
		})
	}
}

func TestPrepare_SchemaViolationPointers(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	_, err := b.preparer.Prepare(t.Context(), b.batch(orderPlaced(nil), orderPlaced(nil), orderPlaced(func(d *event.Draft) {
		d.Data = json.RawMessage(`{"amount":"much","note":7}`)
	})))
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, "append.schema_violation", f.Code)
	require.Equal(t, "/events/2", f.Field)
	var fields []string
	for _, v := range f.Violations {
		fields = append(fields, v.Field)
		require.NotContains(t, fmt.Sprint(v), "much")
	}
	require.ElementsMatch(t, []string{"/events/2/data/amount", "/events/2/data/note"}, fields)
}

func TestPrepare_Limits(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	_, err := b.preparer.Prepare(t.Context(), b.batch(orderPlaced(nil), orderPlaced(nil), orderPlaced(nil), orderPlaced(nil)))
	f, _ := fault.As(err)
	require.Equal(t, "append.batch_too_large", f.Code)
	require.Equal(t, fault.TooLarge, f.Kind)
	require.Equal(t, "/events", f.Field)
	require.Equal(t, []any{3, 4}, []any{f.Expected, f.Actual})

	// The payload is measured as it is stored, with dimensions and references.
	frame := len(b.prepare(t, orderPlaced(func(d *event.Draft) { d.Data = json.RawMessage(`{"x":""}`) }))[0].Payload)
	fits := `{"x":"` + longText(limits.EventBytes-frame) + `"}`
	b.prepare(t, orderPlaced(func(d *event.Draft) { d.Data = json.RawMessage(fits) }))
	_, err = b.preparer.Prepare(t.Context(), b.batch(orderPlaced(func(d *event.Draft) {
		d.Data = json.RawMessage(strings.Replace(fits, "x\"", "xx\"", 1))
	})))
	f, _ = fault.As(err)
	require.Equal(t, "append.event_too_large", f.Code)
	require.Equal(t, []any{4096, 4097}, []any{f.Expected, f.Actual})

	// Exactly at the limits everything passes.
	b.prepare(t, orderPlaced(func(d *event.Draft) {
		d.Entities = []event.EntityRef{order, item, order, item}
		d.Tags = []string{"a", longText(508), "c"}
		d.Stream.ID = longText(512)
		d.Entities[3].ID = longText(504 - len("item"))
	}))
}

func TestPrepare_BatchIdentifiers(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	for field, set := range map[string]func(*module.Batch, string){
		"/correlation_id":   func(m *module.Batch, s string) { m.CorrelationID = s },
		"/source/system":    func(m *module.Batch, s string) { m.Source.System = s },
		"/source/channel":   func(m *module.Batch, s string) { m.Source.Channel = s },
		"/source/reference": func(m *module.Batch, s string) { m.Source.Reference = s },
	} {
		for text, code := range map[string]string{"ada@example.org": "pii.in_identifier", longText(513): "append.identifier_invalid"} {
			batch := b.batch(orderPlaced(nil))
			set(&batch, text)
			_, err := b.preparer.Prepare(t.Context(), batch)
			require.Equal(t, code, fault.CodeOf(err), field)
			f, _ := fault.As(err)
			require.Equal(t, field, f.Field)
		}
	}
}

func TestPrepare_Envelope(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	occurred := time.Date(2026, 3, 30, 8, 0, 0, 123456789, time.FixedZone("CET", 3600))
	out := b.prepare(t,
		orderPlaced(nil),
		orderPlaced(func(d *event.Draft) {
			d.OccurredAt, d.CorrelationID, d.Source = occurred, "c-own", event.Source{System: "edi", Channel: "as4", Reference: "M-1"}
			d.Scope = event.Scope{TenantID: "evil", LegalEntity: "evil", Division: "d", Custom: json.RawMessage(`{"a":"b"}`)}
			d.CausedBy, d.CausedByPartition, d.SchemaVersion = event.ID{7}, 9, 1
			d.Tags = []string{"z", "a"}
		}),
	)
	first, second := out[0], out[1]
	require.Equal(t, "shop.order.placed", first.Type)
	require.EqualValues(t, 1, first.SchemaVersion, "the newest active version")
	require.NotZero(t, first.TypeNumber)
	require.Equal(t, b.entity.Partition, first.Partition)
	require.Equal(t, b.clock.Now(), first.OccurredAt)
	require.Equal(t, event.Scope{TenantID: "acme", LegalEntity: "DEMF"}, first.Scope)
	require.Equal(t, "c-batch", first.CorrelationID)
	require.Equal(t, event.Source{System: "backbone", Channel: "api"}, first.Source)
	require.Equal(t, []any{event.Human, "p-clerk", "clerk"}, []any{first.ActorType, first.ActorID, first.ActorName})
	require.Nil(t, first.ActorDetails)
	require.Nil(t, first.RulesEvaluated)
	require.True(t, first.PayloadHashDone)
	require.Equal(t, event.HashPayload(first.Salt, first.Payload), first.PayloadHash)

	require.Equal(t, time.Date(2026, 3, 30, 7, 0, 0, 123456000, time.UTC), second.OccurredAt)
	require.Equal(t, "c-own", second.CorrelationID)
	require.Equal(t, "edi", second.Source.System)
	require.Equal(t, event.Scope{TenantID: "acme", LegalEntity: "DEMF", Division: "d", Custom: json.RawMessage(`{"a":"b"}`)}, second.Scope,
		"a draft cannot name another tenant")
	require.Equal(t, event.ID{7}, second.CausedBy)
	require.EqualValues(t, 9, second.CausedByPartition)
	require.Equal(t, []string{"z", "a"}, second.Tags, "as given")
	require.NotEqual(t, first.Salt, second.Salt)
	require.Negative(t, first.ID.Compare(second.ID))
}

func TestPrepare_IntentBatch(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	batch := b.batch(orderPlaced(nil), orderPlaced(func(d *event.Draft) { d.CausedByIndex = 1 }))
	batch.IntentID, batch.EventIDs = event.ID{1}, []event.ID{{2}}
	batch.Actor.Details = event.ActorDetails{SessionID: "s-1"}
	batch.Rules = json.RawMessage(`[{"rule_id":"shop.limit","rule_name":"","result":"fired","evaluation_ms":0}]`)
	out, err := b.preparer.Prepare(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, event.ID{2}, out[0].ID, "the id that the plan has used")
	require.NotEqual(t, event.ID{}, out[1].ID, "a new one where none was given")
	require.Equal(t, out[0].ID, out[1].CausedBy)
	require.Equal(t, event.ID{1}, out[1].IntentID)
	require.JSONEq(t, `{"session_id":"s-1"}`, string(out[1].ActorDetails))
	require.Equal(t, batch.Rules, out[0].RulesEvaluated)

	batch.Drafts[0].CausedByIndex = 2
	_, err = b.preparer.Prepare(t.Context(), batch)
	require.Error(t, err, "no event is caused by a later one")
	batch.Drafts[0].CausedByIndex = 1
	_, err = b.preparer.Prepare(t.Context(), batch)
	require.Error(t, err, "an event does not cause itself")
}

func TestPrepare_PayloadBytesUnchanged(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	for name, c := range map[string]struct {
		data any
		want string
	}{
		"verbatim":    {json.RawMessage("{ \"amount\" : 1.50,\n\t\"note\":\"\\u0041<&>\u2028é\" }"), "{ \"amount\" : 1.50,\n\t\"note\":\"\\u0041<&>\u2028é\" }"},
		"numbers":     {json.RawMessage(`{"a":1e2,"b":-0.0,"c":100000000000000.10}`), `{"a":1e2,"b":-0.0,"c":100000000000000.10}`},
		"order":       {json.RawMessage(`{"z":1,"a":2}`), `{"z":1,"a":2}`},
		"none":        {nil, `{}`},
		"empty":       {json.RawMessage(nil), `{}`},
		"struct":      {struct{ Note string }{"<a & b>"}, `{"Note":"<a & b>"}`},
		"json number": {map[string]json.Number{"amount": "1.50"}, `{"amount":1.50}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := b.prepare(t, orderPlaced(func(d *event.Draft) {
				d.Data, d.Dimensions = c.data, map[string]string{"p": "<&>", "a": "1"}
				d.Entities = []event.EntityRef{{Type: "order", ID: "<1>", Role: "subject"}}
			}))
			require.Equal(t, `{"data":`+c.want+`,"dimensions":{"a":"1","p":"<&>"},"entity_refs":[{"entity_type":"order","entity_id":"<1>","role":"subject"}]}`, string(out[0].Payload))
		})
	}
	require.Equal(t, `{"data":{},"dimensions":{},"entity_refs":[]}`, string(b.prepare(t, orderPlaced(func(d *event.Draft) { d.Data = nil }))[0].Payload))

	_, err := b.preparer.Prepare(t.Context(), b.batch(orderPlaced(func(d *event.Draft) { d.Data = func() {} })))
	require.Equal(t, fault.Internal, fault.KindOf(err), "a module's mistake is not the caller's")
	require.Error(t, err)
}

func TestPrepare_IndexKeys(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	out := b.prepare(t, orderPlaced(func(d *event.Draft) {
		d.Entities = []event.EntityRef{
			{Type: "vendor", ID: "V-2", Role: "seller"}, {Type: "account", ID: "1", Role: "debit"},
			{Type: "vendor", ID: "V-2", Role: "payee"}, {Type: "account", ID: "1", Role: "credit"},
		}
		d.Tags = []string{"q1", "a", "q1"}
	}), orderPlaced(nil))
	require.Equal(t, []string{"entity:account:1", "entity:vendor:V-2", "tag:a", "tag:q1"}, out[0].Keys)
	require.Empty(t, out[1].Keys)
}

func TestPrepare_BusinessKeys(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	out := b.prepare(t, orderPlaced(func(d *event.Draft) { d.Data = json.RawMessage(`{"customer":"c-1","number":"in 7"}`) }),
		orderPlaced(func(d *event.Draft) { d.Data = json.RawMessage(`{"customer":"c-1"}`) }))
	require.Equal(t, []event.BusinessKey{
		{EventType: "shop.order.placed", Key: "number\x1fC-1\x1fIN7", Document: "in 7"},
		{EventType: "shop.order.placed", Key: "plain\x1fin 7"},
	}, out[0].BusinessKeys)
	require.Empty(t, out[1].BusinessKeys, "without all fields nothing is claimed")
}

// TestPrepare_SeriesTokens follows a token from the draft into the log.
func TestPrepare_SeriesTokens(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	const token = "SERIES:01J"
	draft := orderPlaced(func(d *event.Draft) {
		d.Stream.ID, d.Tags, d.Entities = token, []string{token}, []event.EntityRef{{Type: "order", ID: token, Role: "subject"}}
		d.Data = json.RawMessage(`{"customer":"c","number":"` + token + `"}`)
		d.Series = []event.SeriesNumber{{Series: "orders", Prefix: "O-", Width: 4, Token: token}}
	})
	out := b.prepare(t, draft)
	require.False(t, out[0].PayloadHashDone, "the number is not known yet")
	require.Equal(t, event.Hash{}, out[0].PayloadHash)

	for _, want := range []string{"O-0001", "O-0002"} {
		e := b.append(t, b.prepare(t, draft)...)[0]
		require.Equal(t, "order/"+want, e.Stream.String())
		require.Equal(t, []string{want}, e.Tags)
		require.NotContains(t, string(e.Payload), token)
		require.Equal(t, event.HashPayload(e.Salt, e.Payload), e.PayloadHash)
		found, err := b.eventIDsByKey(t, event.EntityKey("order", want))
		require.NoError(t, err)
		require.Equal(t, []event.ID{e.ID}, found)
	}
}

// TestPrepare_SeriesTokenNormalisation refuses a business key whose normalisation changes
// the series token: the number would never get into the key, so every key were unique.
func TestPrepare_SeriesTokenNormalisation(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	_, err := b.preparer.Prepare(t.Context(), b.batch(orderPlaced(func(d *event.Draft) {
		d.Data = json.RawMessage(`{"customer":"c","number":"series:01J"}`)
		d.Series = []event.SeriesNumber{{Series: "orders", Token: "series:01J"}}
	})))
	require.ErrorContains(t, err, "token")
	require.Equal(t, fault.Internal, fault.KindOf(err))
}

func TestPrepare_LeavesDrafts(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	d := orderPlaced(func(d *event.Draft) {
		d.Tags, d.Entities = []string{"b", "a"}, []event.EntityRef{item, order}
		d.Data = json.RawMessage(`{"amount": 1.50}`)
	})
	before := fmt.Sprintf("%#v", d)
	b.prepare(t, d)
	require.Equal(t, before, fmt.Sprintf("%#v", d))
}

var _ module.Module = shopModule{}

// The caller may have left: its events are not worth the validation.
func TestPrepare_CanceledRequest(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	invalid := orderPlaced(func(d *event.Draft) { d.Data = json.RawMessage(`{"amount":-1}`) })
	_, err := b.preparer.Prepare(ctx, b.batch(invalid))
	require.ErrorIs(t, err, context.Canceled)
}

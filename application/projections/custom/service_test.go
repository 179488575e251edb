package custom_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestFold_MatchesGo compares with a fold in Go over random events, batches and
// handlers that are made again for each batch, as after a restart.
func TestFold_MatchesGo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := newCustomFixture(&testing.T{})
		le, err := g.store.Directory.CreateLegalEntity(context.Background(), ports.LegalEntity{TenantID: "acme", Code: "USMF"})
		require.NoError(t, err)
		p := g.create(t, "per-vendor", definition("acme", `if .data.vendor == "none" then null else .data.vendor end`,
			`if .event.data.gone then null else `+sums+` end`, posted))
		type entry struct {
			n     int
			cents int64
		}
		want := map[string]entry{}
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			vendor := rapid.SampledFrom([]string{"V-1", "V-2", "V-3", "none"}).Draw(t, "vendor")
			cents := rapid.Int64Range(-999, 100_000_000_000_000_000).Draw(t, "cents")
			typ := rapid.SampledFrom([]string{posted, posted, posted, "shop.other.thing"}).Draw(t, "type")
			gone := rapid.IntRange(0, 9).Draw(t, "gone") == 0
			sign := ""
			if cents < 0 {
				sign = "-"
			}
			abs := max(cents, -cents)
			g.write(t, le, typ, fmt.Sprintf(`{"vendor":%q,"amount":"%s%d.%02d","gone":%t}`, vendor, sign, abs/100, abs%100, gone))
			if typ == posted && vendor != "none" {
				e := want[vendor]
				if want[vendor] = (entry{e.n + 1, e.cents + cents}); gone {
					delete(want, vendor)
				}
			}
			if rapid.Bool().Draw(t, "now") {
				g.advance(t, p, le, rapid.IntRange(1, 7).Draw(t, "limit"))
			}
		}
		g.advance(t, p, le, 5)
		got := g.rows(t, "per-vendor", le)
		require.Len(t, got, len(want))
		for vendor, e := range want {
			var state struct {
				N   int         `json:"n"`
				Sum json.Number `json:"sum"`
			}
			require.NoError(t, json.Unmarshal([]byte(got[vendor]), &state))
			require.Equal(t, e.n, state.N)
			require.Equal(t, e.cents, cents(state.Sum.String()), got[vendor])
		}
	})
}

// cents reads a decimal of at most two places exactly.
func cents(text string) (n int64) {
	negative := strings.HasPrefix(text, "-")
	whole, rest, _ := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	for _, digit := range whole + (rest + "00")[:2] {
		n = n*10 + int64(digit-'0')
	}
	if negative {
		return -n
	}
	return n
}

// TestRunner_CreatedAndDeletedProjections also restarts and resets.
func TestRunner_CreatedAndDeletedProjections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRunningFixture(t)
		le := g.entity(t, "acme", "USMF")
		_, stop := g.node(t)
		g.write(t, le, posted, `{"vendor":"V-1","amount":"10.10"}`)
		g.create(t, "sums", definition("acme", ".data.vendor", sums, posted))
		shows := func(le ports.LegalEntity, want string) func() bool {
			return func() bool { return g.rows(t, "sums", le)["V-1"] == want }
		}
		within(t, soon, shows(le, `{"n":1,"sum":10.10}`), "what was there before is read")
		later := g.entity(t, "acme", "DEMF")
		g.write(t, later, posted, `{"vendor":"V-1","amount":"3.00"}`)
		within(t, soon, shows(later, `{"n":1,"sum":3.00}`), "a legal entity that comes later is read")
		stop()
		g.node(t)
		g.write(t, le, posted, `{"vendor":"V-1","amount":"0.05"}`)
		within(t, soon, shows(le, `{"n":2,"sum":10.15}`), "after a restart it continues")

		ops, name := g.operations(), projection.CustomName("acme", "sums")
		require.NoError(t, ops.Do(t.Context(), projections.Command{Name: name, Action: projection.Pause, Decider: projections.Decider{By: "ada"}}))
		require.NoError(t, ops.Do(t.Context(), projections.Command{Name: name, Action: projection.Reset, Partitions: []event.PartitionID{le.Partition}, Decider: projections.Decider{By: "ada"}}))
		require.Empty(t, g.rows(t, "sums", le))
		require.NotEmpty(t, g.rows(t, "sums", later))
		require.NoError(t, ops.Do(t.Context(), projections.Command{Name: name, Action: projection.Resume, Decider: projections.Decider{By: "ada"}}))
		within(t, soon, shows(le, `{"n":2,"sum":10.15}`), "after a reset it is the same")

		require.NoError(t, g.service.Delete(t.Context(), "acme", "sums", "ada"))
		_, err := g.service.Rows(t.Context(), custom.RowsQuery{Name: "sums", Entity: le, Limit: 1})
		require.Equal(t, "projection.not_found", fault.CodeOf(err))
		rebuilds := testkit.Must(projections.NewRebuilds(projections.RebuildsConfig{Store: g.store.Projections, Log: g.store.Events, Register: g.store.ProjectionVersions, Versions: g.store.ProjectionVersions, Clock: g.clock, MaxBehind: 1000}))
		for range 3 {
			require.NoError(t, rebuilds.Maintain(t.Context()))
		}
		left, _, err := g.store.ProjectionRows.ListProjectionRows(t.Context(), ports.ProjectionRowQuery{Projection: name, Version: 1, Partition: le.Partition})
		require.NoError(t, err)
		require.Empty(t, left, "its rows are swept")
		again := g.create(t, "sums", definition("acme", ".data.vendor", `{first: (.state.first // .event.data.amount)}`, posted))
		require.Equal(t, 2, again.Version, "a number is not given twice")
		within(t, soon, shows(le, `{"first":"10.10"}`), "another one of the same name")
	})
}

// TestRunner_PoisonEventHaltsOneLegalEntity also shows that a dead letter holds no value.
func TestRunner_PoisonEventHaltsOneLegalEntity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRunningFixture(t)
		bad, good := g.entity(t, "acme", "BAD"), g.entity(t, "acme", "GOOD")
		r, _ := g.node(t)
		g.create(t, "sums", definition("acme", ".data.vendor", sums, posted))
		g.write(t, bad, posted, `{"vendor":"V-1","amount":"1"}`)
		g.write(t, bad, posted, `{"vendor":"V-1","amount":"SECRET"}`)
		g.write(t, bad, posted, `{"vendor":"V-1","amount":"2"}`)
		g.write(t, good, posted, `{"vendor":"V-1","amount":"3"}`)
		letters := func() []ports.DeadLetter {
			all, err := g.store.ProjectionVersions.ListDeadLetters(t.Context(), ports.DeadLetterQuery{Kind: ports.LetterOfProjection})
			require.NoError(t, err)
			return all
		}
		within(t, halted, func() bool { return len(letters()) == 1 }, "it goes to the dead letters")
		d := letters()[0]
		require.Equal(t, []any{bad.Partition, event.Sequence(2), "transform.failed", "at /fold"}, []any{d.Partition, d.Sequence, d.Code, d.Detail})
		require.Equal(t, map[string]string{"V-1": `{"n":1,"sum":1}`}, g.rows(t, "sums", bad), "what came before it is kept")
		within(t, soon, func() bool { return g.rows(t, "sums", good)["V-1"] == `{"n":1,"sum":3}` }, "the other ones continue")
		within(t, soon, func() bool { return r.Health() == nil }, "a tenant's program makes no node degraded")
		require.NoError(t, g.operations().Do(t.Context(), projections.Command{Name: projection.CustomName("acme", "sums"), Action: projection.Skip, Partition: bad.Partition, Decider: projections.Decider{By: "ada"}}))
		within(t, soon, func() bool { return g.rows(t, "sums", bad)["V-1"] == `{"n":2,"sum":3}` }, "skipped, it continues")
	})
}

// TestCreate_ProgramLimits tries programs that do not end or make too much.
func TestCreate_ProgramLimits(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	le := g.entity(t, "acme", "USMF")
	g.write(t, le, posted, `{"vendor":"V-1","amount":"1"}`)
	big := strings.Repeat("x", 2000)
	for _, c := range []struct{ key, fold, code, field string }{
		{".data.vendor", "def f: f; f", "transform.limit_exceeded", "/fold"},
		{"[range(1e12)] | length | tostring", ".state", "transform.limit_exceeded", "/key"},
		{".data.vendor", `reduce range(60) as $i ("` + big + `"; . + .)`, "transform.limit_exceeded", "/fold"},
		{".data.vendor", `[range(33) | "` + big[:1990] + `"]`, "projection.state_too_large", "/fold"},
		{".data", ".event", "projection.key_invalid", "/key"},
		{`""`, ".event", "projection.key_invalid", "/key"},
		{`"` + strings.Repeat("k", projection.MaxKey+1) + `"`, ".event", "projection.key_invalid", "/key"},
		{`"a\u0000b"`, ".event", "projection.key_invalid", "/key"},
		{".data.vendor, .data.vendor", ".event", "transform.output_invalid", "/key"},
		{".data.vendor", "empty", "transform.output_invalid", "/fold"},
		{".data.vendor", `{"$pii": "0"}`, "pii.token_forged", "/fold"},
	} {
		_, _, err := g.service.Create(t.Context(), custom.Creation{Name: "x", Definition: definition("acme", c.key, c.fold, posted), By: "ada"})
		require.Equal(t, "projection.trial_failed", fault.CodeOf(err), "%s %s: %v", c.key, c.fold, err)
		f, _ := fault.As(err)
		require.Equal(t, []any{c.code, c.field}, []any{f.Attributes["cause"], f.Field}, c.fold)
	}
	for _, c := range []struct{ name, key, fold, code, field string }{
		{"x", ".a)", ".b", "transform.invalid", "/key"},
		{"x", ".a", `1), "y": (2`, "transform.invalid", "/fold"},
		{"x", ".a", "now", "transform.invalid", "/fold"},
		{"x", ".a", "input", "transform.invalid", "/fold"},
		{"X", ".a", ".b", projection.CodeInvalid, "/name"},
		{"gl.ledger", ".a", ".b", projection.CodeInvalid, "/name"},
		{"other/x", ".a", ".b", projection.CodeInvalid, "/name"},
		{"x", " ", ".b", projection.CodeInvalid, "/key"},
	} {
		_, _, err := g.service.Create(t.Context(), custom.Creation{Name: c.name, Definition: definition("acme", c.key, c.fold), By: "ada"})
		f, _ := fault.As(err)
		require.NotNil(t, f, c.fold)
		require.Equal(t, []string{c.code, c.field}, []string{f.Code, f.Field}, c.fold)
	}
	all, err := g.store.ProjectionVersions.ListProjections(t.Context())
	require.NoError(t, err)
	require.Empty(t, all, "nothing was created")
}

func TestCreate_DryRun(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	le := g.entity(t, "acme", "USMF")
	for i := range 120 {
		g.write(t, le, posted, fmt.Sprintf(`{"vendor":"V-1","amount":"%d"}`, i), "all")
	}
	c := custom.Creation{Name: "sums", Definition: definition("acme", ".data.vendor", sums, posted), By: "ada", DryRun: true}
	c.Definition.Filter.Tags = []string{"all"}
	_, trial, err := g.service.Create(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, 100, trial.Events, "the last ones")
	require.Equal(t, `{"n":100,"sum":6950}`, string(trial.Entities[0].Rows[0].State))
	require.Equal(t, event.Sequence(120), trial.Entities[0].Rows[0].Sequence)
	_, _, err = g.service.Find(t.Context(), "acme", "sums")
	require.Equal(t, "projection.not_found", fault.CodeOf(err))
}

// TestService_TenantIsolation has two tenants with projections of one name.
func TestService_TenantIsolation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRunningFixture(t)
		acme, rival := g.entity(t, "acme", "USMF"), g.entity(t, "rival", "USMF")
		g.node(t)
		g.write(t, acme, posted, `{"vendor":"V-1","amount":"1"}`)
		g.write(t, rival, posted, `{"vendor":"V-1","amount":"2"}`)
		own := g.create(t, "sums", definition("acme", ".data.vendor", sums))
		_, err := g.service.Rows(t.Context(), custom.RowsQuery{Name: "sums", Entity: rival, Limit: 1})
		require.Equal(t, "projection.not_found", fault.CodeOf(err))
		require.Equal(t, "projection.not_found", fault.CodeOf(g.service.Delete(t.Context(), "rival", "sums", "eve")))
		require.Equal(t, "projection.not_found", fault.CodeOf(g.service.Delete(t.Context(), "rival", own.Name, "eve")))
		within(t, soon, func() bool { return g.rows(t, "sums", acme)["V-1"] == `{"n":1,"sum":1}` }, "it is read")
		checkpoints, err := g.store.Projections.Checkpoints(t.Context(), own.Name, own.Version)
		require.NoError(t, err)
		require.Len(t, checkpoints, 1, "the other tenant's log is not read")

		g.create(t, "sums", definition("rival", ".data.vendor", `{other: true}`))
		within(t, soon, func() bool { return g.rows(t, "sums", rival)["V-1"] == `{"other":true}` }, "the other one is read")
		require.Equal(t, `{"n":1,"sum":1}`, g.rows(t, "sums", acme)["V-1"])
		views, err := g.operations().List(t.Context(), []event.PartitionID{acme.Partition})
		require.NoError(t, err)
		require.Len(t, views, 1)
		require.Equal(t, own.Name, views[0].Name)
		require.Len(t, views[0].Partitions, 1)

		_, h, _, err := g.service.Prepare(own)
		require.NoError(t, err)
		_, _, err = g.store.Projections.Advance(t.Context(), ports.ProjectionAdvance{ProjectionWork: ports.ProjectionWork{Projection: own.Name, Version: own.Version, Partition: rival.Partition}}, h)
		require.Equal(t, "projection.foreign_event", fault.CodeOf(err), "from any caller")
		_, _, err = g.service.Create(t.Context(), custom.Creation{Name: "sums", Definition: definition("acme", ".id", ".event"), By: "ada"})
		require.Equal(t, projection.CodeExists, fault.CodeOf(err))
		for i := 1; i < projection.MaxCustom; i++ {
			g.create(t, fmt.Sprint("p", i), definition("acme", ".id", ".event"))
		}
		_, _, err = g.service.Create(t.Context(), custom.Creation{Name: "more", Definition: definition("acme", ".id", ".event"), By: "ada"})
		require.Equal(t, "projection.too_many", fault.CodeOf(err))
		g.create(t, "more", definition("rival", ".id", "true"))
	})
}

// TestFold_KeepsSealedValues shows that no program sees a personal value, and that
// a row opens with the key of the event that it came from.
func TestFold_KeepsSealedValues(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	le := g.entity(t, "acme", "USMF")
	key, err := shredding.NewKey(shredding.KeyStandard, 1, bytes.Repeat([]byte{7}, shredding.DEKSize))
	require.NoError(t, err)
	write := func(mail string) {
		id := g.ids.NewID(start)
		at := shredding.Location{Partition: le.Partition, Kind: shredding.KindEvent, Record: id, Type: posted, SchemaVersion: 1}
		payload, err := shredding.SealDocument(nil, []byte(`{"data":{"who":"`+mail+`"},"dimensions":{},"entity_refs":[]}`),
			[]shredding.Field{{Pointer: "/data/who", Subject: "person:p-1"}}, func(f shredding.Field, value []byte) (shredding.Envelope, error) {
				here := at
				here.Pointer = f.Pointer
				return shredding.Seal(key, here, f.Subject, value)
			})
		require.NoError(t, err)
		_, err = g.store.Appender.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{{
			Skeleton: event.Skeleton{
				ID: id, Type: posted, SchemaVersion: 1, Stream: event.StreamID{Type: "shop", ID: "main"}, PII: map[string]string{"/data/who": "contact"},
				Scope: event.Scope{TenantID: "acme", LegalEntity: "USMF"},
			}, Payload: payload,
		}}})
		require.NoError(t, err)
	}
	p := g.create(t, "people", definition("acme", `"all"`, `{seen: ((.state.seen // []) + [.event.data.who]), text: (.event.data.who | tostring | length), members: (.event.data.who | keys)}`))
	write("ada@example.org")
	write("bob-with-a-longer-name@example.org")
	g.advance(t, p, le, 1)
	stored := g.rows(t, "people", le)["all"]
	require.NotContains(t, stored, "example.org")
	opened, err := shredding.OpenDocument(nil, []byte(stored), func(s shredding.Sealed) (shredding.Answer, error) {
		plain, err := shredding.Open(key, *s.Origin, s.Subject, s.Envelope)
		return shredding.Clear(plain), err
	})
	require.NoError(t, err)
	state := decode(t, string(opened))
	require.Equal(t, []any{"ada@example.org", "bob-with-a-longer-name@example.org"}, state["seen"], "also what an earlier batch kept")
	require.Equal(t, []any{"$pii"}, state["members"], "a program sees a token")
	require.EqualValues(t, len(`{"$pii":"0"}`), state["text"], "whose length is that of no value")

	_, _, err = g.service.Create(t.Context(), custom.Creation{Name: "keyed", Definition: definition("acme", ".data.who", ".event"), By: "ada"})
	require.Equal(t, "projection.trial_failed", fault.CodeOf(err), "a personal value is no key")
}

func TestRows_Paging(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	le, other := g.entity(t, "acme", "USMF"), g.entity(t, "acme", "DEMF")
	d := definition("acme", ".data.vendor", sums, posted)
	d.Filter.LegalEntities = []string{"USMF"}
	p := g.create(t, "sums", d)
	for i := range 5 {
		g.write(t, le, posted, fmt.Sprintf(`{"vendor":"V-%d","amount":"1"}`, i))
	}
	g.advance(t, p, le, 0)
	q := custom.RowsQuery{Name: "sums", Entity: le, Limit: 2}
	var keys []string
	for {
		page, err := g.service.Rows(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, event.Sequence(5), page.Sequence)
		for _, r := range page.Rows {
			keys = append(keys, r.Key)
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
		foreign := q
		foreign.Prefix = "V"
		_, err = g.service.Rows(t.Context(), foreign)
		require.Equal(t, "cursor.foreign", fault.CodeOf(err))
	}
	require.Equal(t, []string{"V-0", "V-1", "V-2", "V-3", "V-4"}, keys)
	_, err := g.service.Rows(t.Context(), custom.RowsQuery{Name: "sums", Entity: other, Limit: 1})
	require.Equal(t, "projection.not_read", fault.CodeOf(err))
}

func TestFilters(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	le := g.entity(t, "acme", "USMF")
	g.write(t, le, posted, `{}`, "a", "b")
	g.write(t, le, "shop.other.thing", `{}`, "a")
	for _, c := range []struct {
		filter projection.Filter
		want   int
	}{
		{projection.Filter{}, 2},
		{projection.Filter{Types: []string{posted}}, 1},
		{projection.Filter{Tags: []string{"a"}}, 2},
		{projection.Filter{Tags: []string{"a", "b"}}, 1},
		{projection.Filter{Tags: []string{"c"}}, 0},
		{projection.Filter{Entities: []projection.FilterEntity{{Type: "vendor"}}}, 2},
		{projection.Filter{Entities: []projection.FilterEntity{{Type: "vendor", ID: "V-1"}}}, 2},
		{projection.Filter{Entities: []projection.FilterEntity{{Type: "vendor", ID: "V-2"}}}, 0},
		{projection.Filter{Entities: []projection.FilterEntity{{Type: "person"}}}, 0},
		{projection.Filter{LegalEntities: []string{"USMF"}}, 2},
	} {
		d := definition("acme", ".id", "true")
		d.Filter = c.filter
		_, trial, err := g.service.Create(t.Context(), custom.Creation{Name: "f", Definition: d, DryRun: true})
		require.NoError(t, err)
		require.Equal(t, c.want, trial.Events, c.filter)
	}
	d := definition("acme", ".id", "true")
	d.Filter.LegalEntities = []string{"DEMF"}
	_, _, err := g.service.Create(t.Context(), custom.Creation{Name: "f", Definition: d, DryRun: true})
	require.Equal(t, projection.CodeInvalid, fault.CodeOf(err))
}

// TestRebuild_SkipsUnreadLegalEntities: a version of it would never be caught up, and
// count among those that are being built.
func TestRebuild_SkipsUnreadLegalEntities(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	us, de := g.entity(t, "acme", "USMF"), g.entity(t, "acme", "DEMF")
	d := definition("acme", ".data.vendor", sums, posted)
	d.Filter.LegalEntities = []string{"USMF"}
	g.create(t, "sums", d)
	rebuilds := testkit.Must(projections.NewRebuilds(projections.RebuildsConfig{Store: g.store.Projections, Log: g.store.Events, Register: g.store.ProjectionVersions, Versions: g.store.ProjectionVersions, Snapshots: g.store.ProjectionSnapshots, Clock: g.clock, Custom: g.service, MaxBehind: 1000}))
	at := func(le ports.LegalEntity) projections.Order {
		return projections.Order{Name: projection.CustomName("acme", "sums"), Decider: projections.Decider{By: "ada"}, Partition: le.Partition}
	}
	_, err := rebuilds.Start(t.Context(), at(de), false)
	require.Equal(t, projection.CodeNotRead, fault.CodeOf(err))
	_, err = rebuilds.TakeSnapshot(t.Context(), at(de))
	require.Equal(t, projection.CodeNotRead, fault.CodeOf(err))
	_, err = rebuilds.TakeSnapshot(t.Context(), at(us))
	require.NoError(t, err)
	b, err := rebuilds.Start(t.Context(), at(us), false)
	require.NoError(t, err)
	require.Len(t, b.Partitions, 1)
	require.Len(t, b.Snapshots, 1)
}

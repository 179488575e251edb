package opa_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/opa"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// engine makes an engine with a timeout of a minute unless the options give another one: a
// busy machine decides as an idle one.
func engine(t testing.TB, source string, options ...opa.Option) *opa.Engine {
	t.Helper()
	options = append([]opa.Option{opa.WithTimeout(time.Minute)}, options...)
	e, err := opa.New([]ports.PolicyModule{{Path: "test.rego", Source: source}}, options...)
	require.NoError(t, err)
	return e
}

func requireUndecided(t testing.TB, err error) {
	t.Helper()
	require.Equal(t, "policy.undecided", fault.CodeOf(err))
	require.Equal(t, fault.Forbidden, fault.KindOf(err))
}

// requireOutOfTime requires a fault that is no refusal and asks the caller to try again.
func requireOutOfTime(t testing.TB, err error) {
	t.Helper()
	f, ok := fault.As(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "policy.undecided", f.Code)
	require.Equal(t, fault.Unavailable, f.Kind)
	require.Positive(t, f.RetryAfter)
}

func TestNewRefusesFunctionsWithSideEffects(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(server.Close)
	for name, expression := range map[string]string{
		"http.send":                 `http.send({"method": "GET", "url": "` + server.URL + `"})`,
		"net.lookup_ip_addr":        `net.lookup_ip_addr("localhost")`,
		"net.cidr_contains":         `net.cidr_contains("10.0.0.0/8", "10.0.0.1")`,
		"opa.runtime":               `opa.runtime()`,
		"io.jwt.decode":             `io.jwt.decode("a.b.c")`,
		"rand.intn":                 `rand.intn("x", 5)`,
		"uuid.rfc4122":              `uuid.rfc4122("x")`,
		"time.now_ns":               `time.now_ns()`,
		"trace":                     `trace("x")`,
		"print":                     `print("x")`,
		"internal.print":            `internal.print([{"x"}])`,
		"json.match_schema":         `json.match_schema({}, {"$ref": "` + server.URL + `"})`,
		"crypto.x509":               `crypto.x509.parse_and_verify_certificates("x")`,
		"with replaces no built-in": `true with http.send as 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := opa.New([]ports.PolicyModule{{Path: "test.rego", Source: "package p\n\nd := {\"allow\": true} if " + expression}})
			require.Error(t, err)
			require.Contains(t, err.Error(), "test.rego")
		})
	}
	t.Cleanup(func() { require.Zero(t, asked.Load()) })

	allowed := opa.Capabilities()
	require.NotNil(t, allowed.AllowNet)
	require.Empty(t, allowed.AllowNet)
	for _, b := range allowed.Builtins {
		require.False(t, strings.HasPrefix(b.Name, "net.") || strings.HasPrefix(b.Name, "http.") || strings.HasPrefix(b.Name, "io."), b.Name)
		// Every function that OPA itself declares nondeterministic must be refused.
		require.False(t, b.Nondeterministic, b.Name)
	}
	require.True(t, slices.ContainsFunc(ast.CapabilitiesForThisVersion().Builtins, func(b *ast.Builtin) bool { return b.Name == "http.send" }),
		"the list of refused names follows the library")
}

func TestDecideDeniesOnFailure(t *testing.T) {
	t.Parallel()
	e := engine(t, `package p

some_only := {"allow": true} if input.x == 1
text := "allow"
truth := true
set := {"allow"}
odd := {"allow": "yes"}
failing := {"allow": true} if to_number(input.text) > 0
divided := {"allow": 1 / input.zero}
two := {"allow": true} if input.x == 2
two := {"allow": false} if input.x >= 2
fn(x) := {"allow": x}
`)
	input := map[string]any{"x": 2, "text": "SECRET", "zero": 0}
	for _, query := range []string{
		"data.p.none", "data.q.none", "data.p.some_only", "data.p.text", "data.p.truth", "data.p.set", "data.p.odd",
		"data.p.failing", "data.p.divided", "data.p.two", "data.p.fn", "data.p[x]", "data", "input", "x := 1", "", "data.p.none; true", "{", "data.p.fn(true)",
	} {
		out := struct{ Allow bool }{}
		err := e.Decide(t.Context(), query, input, &out)
		require.False(t, out.Allow, query)
		requireUndecided(t, err)
		for ; err != nil; err = errors.Unwrap(err) {
			require.NotContains(t, err.Error(), "SECRET")
		}
	}
	requireUndecided(t, e.Decide(t.Context(), "data.p.some_only", func() {}, &struct{}{}))
	requireUndecided(t, e.Decide(t.Context(), "data.p.some_only", json.RawMessage("{"), &struct{}{}))

	var out struct{ Allow bool }
	require.NoError(t, e.Decide(t.Context(), "data.p.some_only", map[string]any{"x": 1}, &out))
	require.True(t, out.Allow)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	requireOutOfTime(t, e.Decide(ctx, "data.p.some_only", map[string]any{"x": 1}, &out))
}

func TestDecideTimesOut(t *testing.T) {
	t.Parallel()
	source := `package backbone.authz

range := numbers.range(1, 3000)
runaway := {"n": count({[a, b, c] | some a in range; some b in range; some c in range; a + b + c == -1})}
numbered := {"n": count(numbers.range(1, 1000000000))}
`
	timesOut := func(timeout time.Duration, query string, options ...opa.Option) *opa.Engine {
		e, err := opa.New([]ports.PolicyModule{{Path: "test.rego", Source: source}}, options...)
		require.NoError(t, err)
		start := time.Now()
		requireOutOfTime(t, e.Decide(t.Context(), query, map[string]any{}, &struct{}{})) // without a timeout it ends with a number
		require.GreaterOrEqual(t, time.Since(start), 6*timeout, "the second try has five times the timeout of the first")
		return e
	}
	timesOut(opa.AccessTimeout, "data.backbone.authz.runaway")
	for _, query := range []string{"data.backbone.authz.runaway", "data.backbone.authz.numbered"} {
		e := timesOut(time.Millisecond, query, opa.WithTimeout(time.Millisecond))
		for range runtime.GOMAXPROCS(0) { // evaluations that kept their slots would leave none
			requireOutOfTime(t, e.Decide(t.Context(), query, map[string]any{}, &struct{}{}))
		}
		e.HoldSlots()() // all slots are free
	}
}

// Waiting for a slot does not count against the timeout of a decision. The clock of the bubble
// stops while a goroutine runs, so the result is the same on a machine of any speed.
func TestDecideRetriesAfterTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, `package p

decision := {"allow": input.n > 0}
`, opa.WithTimeout(opa.RuleTimeout))
		release := e.HoldSlots()
		began, decided := time.Now(), atomic.Int64{}
		var wait sync.WaitGroup
		for n := range 16 {
			wait.Go(func() {
				var out struct{ Allow bool }
				if err := e.Decide(t.Context(), "data.p.decision", map[string]any{"n": n + 1}, &out); err != nil || !out.Allow {
					t.Errorf("%d: %v", n, err)
				}
				decided.Add(1)
			})
		}
		<-time.After(1000 * opa.RuleTimeout)
		synctest.Wait()
		require.Zero(t, decided.Load(), "all wait for a slot")
		release()
		wait.Wait()
		require.Equal(t, 1000*opa.RuleTimeout, time.Since(began))
	})
}

func TestDecideKeepsNumbersExact(t *testing.T) {
	t.Parallel()
	e := engine(t, `package p

d := {"sum": input.amount, "limit": data.limits.approver, "within": input.amount <= data.limits.approver}
`, opa.WithData("limits", map[string]any{"approver": json.RawMessage("9007199254740993.25")}))
	var out struct {
		Sum, Limit json.Number
		Within     bool
	}
	require.NoError(t, e.Decide(t.Context(), "data.p.d", map[string]any{"amount": json.RawMessage("9007199254740993.26")}, &out))
	require.Equal(t, json.Number("9007199254740993.26"), out.Sum)
	require.Equal(t, json.Number("9007199254740993.25"), out.Limit)
	require.False(t, out.Within)
}

func TestCachedDecisions(t *testing.T) {
	t.Parallel()
	source := `package p

d := {"allow": input.n % 2 == 0, "list": [input.n]}
`
	kept, fresh := engine(t, source, opa.WithCache(8, "data.p.d")), engine(t, source)
	type answer struct {
		Allow bool
		List  []int
	}
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			for i := range 100 {
				n := (i*7 + g) % 20
				var a, b answer
				if err := kept.Decide(t.Context(), "data.p.d", map[string]any{"n": n}, &a); err != nil {
					t.Error(err)
					return
				}
				if err := fresh.Decide(t.Context(), "data.p.d", map[string]any{"n": n}, &b); err != nil {
					t.Error(err)
					return
				}
				if a.Allow != b.Allow || !slices.Equal(a.List, b.List) {
					t.Errorf("%d: kept %v, fresh %v", n, a, b)
				}
			}
		})
	}
	wait.Wait()
	// A caller that expects another shape gets its own decision, which is refused like a fresh one.
	requireUndecided(t, kept.Decide(t.Context(), "data.p.d", map[string]any{"n": 2}, &struct{ Allow string }{}))
	var shorter struct{ Allow bool }
	require.NoError(t, kept.Decide(t.Context(), "data.p.d", map[string]any{"n": 2}, &shorter))
	require.True(t, shorter.Allow)
}

func TestDigest(t *testing.T) {
	t.Parallel()
	a := ports.PolicyModule{Path: "a.rego", Source: "package a\n\nx := 1\n"}
	b := ports.PolicyModule{Path: "b.rego", Source: "package b\n\nx := 1\n"}
	digest := func(options []opa.Option, m ...ports.PolicyModule) string {
		e, err := opa.New(m, options...)
		require.NoError(t, err)
		return e.Digest()
	}
	base := digest(nil, a, b)
	require.Len(t, base, 64)
	require.Equal(t, base, digest(nil, b, a))
	require.NotEqual(t, base, digest(nil, a))
	b.Source += " "
	require.NotEqual(t, base, digest(nil, a, b))
	require.NotEqual(t, digest(nil, a), digest([]opa.Option{opa.WithData("limits", map[string]any{"x": 1})}, a))
	require.Equal(t, digest([]opa.Option{opa.WithTimeout(time.Second)}, a), digest(nil, a))

	_, err := opa.New([]ports.PolicyModule{a, a})
	require.ErrorContains(t, err, "twice")
	_, err = opa.New([]ports.PolicyModule{{Path: "c.rego", Source: "package c\n\nx := y"}})
	require.ErrorContains(t, err, "c.rego")
	_, err = opa.New([]ports.PolicyModule{{Path: "d.rego", Source: "no package"}})
	require.ErrorContains(t, err, "d.rego")
}

// FuzzDecide feeds any input: the engine answers or denies, and never panics.
func FuzzDecide(f *testing.F) {
	e := engine(f, `package p

d := {"allow": input.a.b == 1, "n": count(input.list)}
`)
	for _, seed := range []string{`{}`, `{"a":{"b":1},"list":[]}`, `{"a":1,"list":null}`, `[1e400]`, `{"list":"\ud800"}`, `{"a":{"b":1.0},"list":{"x":1}}`, strings.Repeat("[", 2000)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		var out struct {
			Allow bool
			N     json.Number
		}
		if err := e.Decide(t.Context(), "data.p.d", json.RawMessage(input), &out); err != nil {
			requireUndecided(t, err)
		}
	})
}

func ExampleEngine_Decide() {
	e, err := opa.New([]ports.PolicyModule{{Path: "p.rego", Source: "package p\n\nd := {\"allow\": input.role == \"admin\"}\n"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	var decision struct{ Allow bool }
	err = e.Decide(context.Background(), "data.p.d", map[string]any{"role": "admin"}, &decision)
	fmt.Println(decision.Allow, err)
	// Output: true <nil>
}

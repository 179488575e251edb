// Package opa decides with Rego policies. The policies are compiled once, with
// built-in functions that reach nothing outside their input: no network, no
// clock, no randomness, no environment. A decision is therefore a function of
// policies, data and input. All Rego files are compiled together, so that one package may import
// another; a query names one rule of one package, and the engine never combines the answers
// of several. An Engine implements ports.PolicyEngine for the access checks of
// the API and for the intent pipeline. An error in a decision is a denial.
package opa

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/ports"
)

// What an evaluation may take. One that timed out is retried once, with retryFactor times its
// timeout.
const (
	AccessTimeout = 50 * time.Millisecond  // of the access queries
	RuleTimeout   = 200 * time.Millisecond // of all others
	retryFactor   = 5
)

const (
	accessQueries = "data.backbone.authz."
	cacheKeyBytes = 4096 // decisions about larger inputs are not cached
	maxQueries    = 1024 // distinct queries; they come from code
)

// Engine implements ports.PolicyEngine. It is safe for concurrent use.
type Engine struct {
	compiler      *ast.Compiler
	store         storage.Store
	digest        string
	accessTimeout time.Duration
	ruleTimeout   time.Duration
	slots         chan struct{} // bounds concurrent evaluations: one per processor
	cached        []string      // queries
	cache         *lru.Cache[question, reflect.Value]

	mu      sync.RWMutex
	queries map[string]*compiledQuery
}

var _ ports.PolicyEngine = (*Engine)(nil)

// question is the key of a cached decision. The decision is kept as the caller's type, since
// decoding its JSON again cost more than all else of a cached answer.
type question struct {
	query, input string
	answer       reflect.Type
}

type settings struct {
	data                       map[string]any
	accessTimeout, ruleTimeout time.Duration
	cached                     []string
	entries                    int
}

// Option changes a setting of New.
type Option func(*settings)

// WithData adds a document under data, such as limits per role. Its numbers stay
// exact. The document is part of the digest.
func WithData(name string, document any) Option {
	return func(s *settings) { s.data[name] = document }
}

// WithTimeout replaces AccessTimeout and RuleTimeout: tests give busy machines more time.
func WithTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.accessTimeout, s.ruleTimeout = timeout, timeout }
}

// WithCache keeps up to entries decisions of the named queries. Without it none are kept.
func WithCache(entries int, queries ...string) Option {
	return func(s *settings) { s.entries, s.cached = entries, queries }
}

// New compiles the modules. The error names the module and the place; it is meant
// for the operator who starts the program.
func New(modules []ports.PolicyModule, options ...Option) (*Engine, error) {
	s := settings{data: map[string]any{}, accessTimeout: AccessTimeout, ruleTimeout: RuleTimeout}
	for _, o := range options {
		o(&s)
	}
	compiler, err := compile(modules)
	if err != nil {
		return nil, err
	}
	data, canonical, err := decodeExactJSON(s.data)
	if err != nil {
		return nil, fmt.Errorf("policy data is not JSON: %w", err)
	}
	documents, _ := data.(map[string]any)
	e := &Engine{
		compiler:      compiler,
		store:         inmem.NewFromObjectWithOpts(documents, inmem.OptRoundTripOnWrite(false), inmem.OptReturnASTValuesOnRead(true)),
		digest:        digest(modules, canonical),
		accessTimeout: s.accessTimeout,
		ruleTimeout:   s.ruleTimeout,
		slots:         make(chan struct{}, runtime.GOMAXPROCS(0)),
		queries:       map[string]*compiledQuery{},
	}
	if s.entries > 0 {
		e.cached = s.cached
		if e.cache, err = lru.New[question, reflect.Value](s.entries); err != nil {
			return nil, fmt.Errorf("decision cache: %w", err)
		}
	}
	return e, nil
}

func compile(modules []ports.PolicyModule) (*ast.Compiler, error) {
	capabilities := Capabilities()
	parsed := make(map[string]*ast.Module, len(modules))
	for _, m := range modules {
		if _, dup := parsed[m.Path]; dup {
			return nil, fmt.Errorf("policy %s is given twice", m.Path)
		}
		p, err := ast.ParseModuleWithOpts(m.Path, m.Source, ast.ParserOptions{Capabilities: capabilities})
		if err != nil {
			return nil, fmt.Errorf("policy %s does not parse: %w", m.Path, err)
		}
		if name := findRefusedBuiltin(p); name != "" {
			return nil, fmt.Errorf("policy %s calls %s, which policies may not use", m.Path, name)
		}
		parsed[m.Path] = p
	}
	c := ast.NewCompiler().WithCapabilities(capabilities).WithStrict(true)
	if c.Compile(parsed); c.Failed() {
		return nil, fmt.Errorf("policies do not compile: %w", c.Errors)
	}
	return c, nil
}

// Digest is the SHA-256 over all modules sorted by path, and the data, in hex.
func (e *Engine) Digest() string { return e.digest }

func digest(modules []ports.PolicyModule, data []byte) string {
	sorted := slices.SortedFunc(slices.Values(modules), func(a, b ports.PolicyModule) int { return strings.Compare(a.Path, b.Path) })
	h := sha256.New()
	part := func(s []byte) {
		fmt.Fprintf(h, "%d:", len(s))
		h.Write(s)
	}
	for _, m := range sorted {
		part([]byte(m.Path))
		part([]byte(m.Source))
	}
	part(data)
	return hex.EncodeToString(h.Sum(nil))
}

// Decide implements ports.PolicyEngine. The query is the path of one rule,
// "data.backbone.authz.decision"; the input is anything that marshals to JSON.
func (e *Engine) Decide(ctx context.Context, query string, input, out any) error {
	document, err := json.Marshal(input)
	if err != nil {
		return undecidedFault(query, errors.New("input is not JSON"))
	}
	answer := reflect.ValueOf(out).Elem()
	isCached := slices.Contains(e.cached, query) && len(document) <= cacheKeyBytes
	var asked question
	if isCached {
		asked = question{query: query, input: string(document), answer: answer.Type()}
		if decided, ok := e.cache.Get(asked); ok {
			answer.Set(decided)
			return nil
		}
	}
	result, err := e.evaluate(ctx, query, document)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		err = errors.Join(err, context.Canceled) // the caller canceled the request and may test for that
	}
	if err != nil {
		return undecidedFault(query, err)
	}
	if err := decodeDecision(query, result, out); err != nil {
		return err
	}
	if isCached {
		decided := reflect.New(answer.Type()).Elem()
		decided.Set(answer)
		e.cache.Add(asked, decided)
	}
	return nil
}

func (e *Engine) evaluate(ctx context.Context, query string, document []byte) (result []byte, err error) {
	prepared, err := e.prepareQuery(query)
	if err != nil {
		return nil, err
	}
	input, err := ast.ValueFromReader(bytes.NewReader(document))
	if err != nil {
		return nil, errors.New("input is not JSON")
	}
	if ctx.Err() != nil {
		return nil, errTimedOut
	}
	// A busy machine must not cause denials: evaluations wait for a slot before their timeout
	// starts, and one that timed out is tried once more with a longer timeout. Twice the
	// same timeout was not enough on a machine with ten times more work than processors.
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, errTimedOut
	}
	defer func() { <-e.slots }()
	timeout := e.timeout(query)
	result, err = e.evaluateOnce(ctx, prepared, input, timeout)
	if errors.Is(err, errTimedOut) && ctx.Err() == nil {
		result, err = e.evaluateOnce(ctx, prepared, input, retryFactor*timeout)
	}
	return result, err
}

var errTimedOut = errors.New("out of time")

func (e *Engine) evaluateOnce(ctx context.Context, prepared *compiledQuery, input ast.Value, timeout time.Duration) (result []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer func() {
		if recover() != nil { // a policy never ends the process
			result, err = nil, errors.New("evaluation panicked")
		}
	}()
	value, err := e.runQuery(ctx, prepared, input)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, errTimedOut
	case err != nil:
		return nil, redactError(err)
	case value == nil:
		return nil, errors.New("undefined")
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("result is not an object")
	}
	return json.Marshal(object)
}

// compiledQuery is the query "result = data.path.of.rule".
type compiledQuery struct {
	compiler ast.QueryCompiler
	body     ast.Body
}

const resultVar = ast.Var("result")

// runQuery returns the value of the query's rule as JSON, nil if the rule is undefined. It
// calls OPA's evaluator directly: OPA's package rego would link its planner, WebAssembly
// compiler and bundle loader, a fifth of OPA's build, which the engine does not use.
func (e *Engine) runQuery(ctx context.Context, q *compiledQuery, input ast.Value) (value any, err error) {
	transaction, err := e.store.NewTransaction(ctx)
	if err != nil {
		return nil, err
	}
	defer e.store.Abort(ctx, transaction)
	cancel := topdown.NewCancel()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	err = topdown.NewQuery(q.body).
		WithQueryCompiler(q.compiler).
		WithCompiler(e.compiler).
		WithStore(e.store).
		WithTransaction(transaction).
		WithInput(ast.NewTerm(input)).
		WithCancel(cancel).
		WithStrictBuiltinErrors(true).
		Iter(ctx, func(r topdown.QueryResult) error {
			if term := r[resultVar]; term != nil {
				value, err = ast.JSON(term.Value)
			}
			return err
		})
	return value, err
}

// redactError reduces an evaluation error to its code and place: its message may quote
// the input.
func redactError(err error) error {
	var t *topdown.Error
	if errors.As(err, &t) {
		if t.Location != nil {
			return fmt.Errorf("%s at %s:%d", t.Code, t.Location.File, t.Location.Row)
		}
		return errors.New(t.Code)
	}
	return errors.New("evaluation failed")
}

func (e *Engine) timeout(query string) time.Duration {
	if strings.HasPrefix(query, accessQueries) {
		return e.accessTimeout
	}
	return e.ruleTimeout
}

func (e *Engine) prepareQuery(query string) (*compiledQuery, error) {
	e.mu.RLock()
	p, n := e.queries[query], len(e.queries)
	e.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	if n >= maxQueries {
		return nil, errors.New("too many distinct queries")
	}
	ref, err := ast.ParseRef(query)
	if err != nil || !ref.HasPrefix(ast.DefaultRootRef) || !ref.IsGround() || len(ref) < 2 {
		return nil, errors.New("query is not the path of a rule")
	}
	created := &compiledQuery{compiler: e.compiler.QueryCompiler()}
	if created.body, err = created.compiler.Compile(ast.NewBody(ast.Equality.Expr(ast.NewTerm(resultVar), ast.NewTerm(ref)))); err != nil {
		return nil, errors.New("query does not compile")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.queries[query]; p != nil {
		return p, nil
	}
	e.queries[query] = created
	return created, nil
}

// decodeDecision decodes a decision into out. Fault policy.undecided if its shape does not fit.
func decodeDecision(query string, result []byte, out any) error {
	d := json.NewDecoder(bytes.NewReader(result))
	d.UseNumber()
	if err := d.Decode(out); err != nil {
		return undecidedFault(query, errors.New("result has an unexpected shape"))
	}
	return nil
}

// retryAfter is the pause after an evaluation that timed out; the machine may be less busy
// then.
const retryAfter = time.Second

// undecidedFault is the fault of a decision that could not be made; the caller denies the
// action in any case. After a timeout it is Unavailable instead of Forbidden, because a less
// busy machine would decide the same query.
func undecidedFault(query string, cause error) error {
	if errors.Is(cause, errTimedOut) {
		return fault.New(fault.Unavailable, "policy.undecided",
			"the policies could not be asked in time, so nothing was done; send the request again").
			WithRetryAfter(retryAfter).WithCause(fmt.Errorf("%s: %w", query, cause))
	}
	return fault.New(fault.Forbidden, "policy.undecided",
		"No policy allows this: the decision could not be made; try again, then ask an administrator to look at the policies.").
		WithCause(fmt.Errorf("%s: %w", query, cause))
}

// decodeExactJSON converts a value to decoded JSON that keeps its numbers exact, and to its
// text.
func decodeExactJSON(v any) (any, []byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, nil, err
	}
	out, err := jsondoc.Decode(text)
	return out, text, err
}

package jq

import (
	_ "embed"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/itchyny/gojq"
)

//go:embed prelude.jq
var preludeText string

// charge says what is paid before a function of the library runs.
type charge string

const (
	free     charge = ""
	shallow  charge = "_shallow"
	deep     charge = "_deep"
	rewrites charge = "_nodes" // for what copies containers
)

// library are the functions of gojq that programs reach, by name and arity. All others
// are refused, among them whatever reads or prints, whatever tells the time or speaks
// of it, and what is computed in binary floating point.
var library = map[string]charge{
	"empty/0": free, "error/0": free, "error/1": free, "type/0": free, "has/1": free, "_captures/0": shallow, "_range/3": free,
	"length/0": shallow, "utf8bytelength/0": free, "keys/0": shallow, "reverse/0": shallow, "toboolean/0": free,
	"startswith/1": shallow, "endswith/1": shallow, "ltrimstr/1": shallow, "rtrimstr/1": shallow, "trimstr/1": shallow,
	"ltrim/0": shallow, "rtrim/0": shallow, "trim/0": shallow, "explode/0": shallow, "implode/0": shallow, "split/1": shallow,
	"ascii_downcase/0": shallow, "ascii_upcase/0": shallow,
	"tojson/0": deep, "tostring/0": deep, "contains/1": deep, "inside/1": deep, "flatten/0": deep, "flatten/1": deep,
	"min/0": deep, "max/0": deep, "sort/0": deep, "unique/0": deep, "_match/3": shallow,
	"_min_by/1": deep, "_max_by/1": deep, "_sort_by/1": deep, "_group_by/1": deep, "_unique_by/1": deep,
	"setpath/2": rewrites, "delpaths/1": rewrites,
}

// own are functions of this package that programs call by another name.
var own = map[string]string{
	"add/0": "_sum", "join/1": "_join", "tonumber/0": "_tonumber", "fromjson/0": "_fromjson",
	"floor/0": "_floor", "ceil/0": "_ceil", "round/0": "_round", "trunc/0": "_trunc", "abs/0": "_abs", "fabs/0": "_abs",
	"_pattern/2": "_pattern",
}

var formats = []string{"@text", "@json", "@html", "@uri", "@urid", "@csv", "@tsv", "@sh", "@base64", "@base64d"}

// operators that are functions of this package.
var operators = map[gojq.Operator]string{
	gojq.OpAdd: "_addition", gojq.OpSub: "_sub", gojq.OpMul: "_mul", gojq.OpDiv: "_div", gojq.OpMod: "_mod",
	gojq.OpEq: "_eq", gojq.OpNe: "_ne", gojq.OpGt: "_gt", gojq.OpLt: "_lt", gojq.OpGe: "_ge", gojq.OpLe: "_le",
}

var updates = map[gojq.Operator]gojq.Operator{
	gojq.OpUpdateAdd: gojq.OpAdd, gojq.OpUpdateSub: gojq.OpSub, gojq.OpUpdateMul: gojq.OpMul,
	gojq.OpUpdateDiv: gojq.OpDiv, gojq.OpUpdateMod: gojq.OpMod, gojq.OpUpdateAlt: gojq.OpAlt,
}

// prelude are the functions that are written in jq, by name and arity, in their order.
var prelude = sync.OnceValue(func() map[string]preludeDef {
	q, err := gojq.Parse(preludeText + "\n.")
	if err != nil {
		panic(err) // a test reads it
	}
	out := make(map[string]preludeDef, len(q.FuncDefs))
	for i, def := range q.FuncDefs {
		out[signature(def.Name, len(def.Args))] = preludeDef{i, def.String()}
	}
	return out
})

type preludeDef struct {
	order int
	text  string
}

func signature(name string, arity int) string { return name + "/" + strconv.Itoa(arity) }

// rewriter makes a program pay for what it does. It panics with a refusal.
type rewriter struct {
	source  string
	scopes  []map[string]bool // names of functions with their arity, and of variables
	wanted  []string          // functions of the prelude
	trusted bool              // it is the prelude
}

type refusal struct{ err error }

// rewrite gives the text of a program that does the same and pays for it, together
// with the functions of the prelude that it needs.
func rewrite(source string, q *gojq.Query) (text string, err error) {
	defer func() {
		if r, is := recover().(refusal); is {
			err = r.err
		}
	}()
	r := &rewriter{source: source}
	if q.Meta != nil || len(q.Imports) > 0 {
		return "", invalid("uses modules, which cannot be loaded; write their functions into it")
	}
	// The library prefers the program's own functions to all others, and so do the
	// scopes here; those of the prelude come before them all.
	if q.Term == nil && q.Left == nil && q.Right == nil && len(q.FuncDefs) == 0 {
		q.Term = &gojq.Term{Type: gojq.TermTypeIdentity} // the empty program
	}
	main := r.paren(q).String()
	defs := map[string]string{}
	r.trusted = true
	for len(r.wanted) > 0 {
		name := r.wanted[0]
		r.wanted = r.wanted[1:]
		if _, done := defs[name]; done {
			continue
		}
		p, err := gojq.Parse(prelude()[name].text + " .")
		if err != nil {
			return "", err
		}
		def := p.FuncDefs[0]
		r.scopes = nil
		r.definition(def)
		defs[name] = def.String()
	}
	var all []string
	for name := range defs {
		all = append(all, name)
	}
	// A function may call those that stand before it.
	slices.SortFunc(all, func(a, b string) int { return prelude()[a].order - prelude()[b].order })
	var out strings.Builder
	for _, name := range all {
		out.WriteString(defs[name] + " ")
	}
	out.WriteString(main)
	return out.String(), nil
}

func (r *rewriter) refuse(name, format string, args ...any) {
	e := invalid(format, args...)
	if word := regexp.MustCompile(`(^|[^A-Za-z0-9_$@])` + regexp.QuoteMeta(name) + `($|[^A-Za-z0-9_])`).FindStringIndex(r.source); word != nil && name != "" {
		at := strings.Index(r.source[word[0]:], name) + word[0]
		e = invalid(format+" (at %s)", append(args, position(r.source, at))...)
	}
	panic(refusal{e.WithField("/jq")})
}

func (r *rewriter) declare(name string) { r.scopes[len(r.scopes)-1][name] = true }

// maxScopes bounds parts of a program inside one another: what looks names up takes
// longer the deeper it is. A chain of operators is as deep as it is long.
const maxScopes = 2000

func (r *rewriter) enter() func() {
	if len(r.scopes) >= maxScopes {
		r.refuse("", "has chains or parts inside one another that are longer than %d; split it into functions", maxScopes)
	}
	r.scopes = append(r.scopes, map[string]bool{})
	return func() { r.scopes = r.scopes[:len(r.scopes)-1] }
}

func (r *rewriter) known(name string) bool {
	return slices.ContainsFunc(r.scopes, func(s map[string]bool) bool { return s[name] })
}

// Parts of programs.
func term(t *gojq.Term) *gojq.Query { return &gojq.Query{Term: t} }

func call(name string, args ...*gojq.Query) *gojq.Query {
	return term(&gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: name, Args: args}})
}

func pipe(l, r *gojq.Query) *gojq.Query { return &gojq.Query{Left: l, Op: gojq.OpPipe, Right: r} }

func group(q *gojq.Query) *gojq.Term { return &gojq.Term{Type: gojq.TermTypeQuery, Query: q} }

// first does something for its cost and then q with the same input. A binding leaves
// paths as they are.
func first(name string, q *gojq.Query) *gojq.Query {
	return term(group(&gojq.Query{Left: call(name), Op: gojq.OpPipe, Patterns: []*gojq.Pattern{{Name: "$__"}}, Right: q}))
}

// paren rewrites a query in a scope of its own.
func (r *rewriter) paren(q *gojq.Query) *gojq.Query { return term(group(r.query(q))) }

func (r *rewriter) optional(q *gojq.Query) *gojq.Query {
	if q == nil {
		return nil
	}
	return r.query(q)
}

func (r *rewriter) query(q *gojq.Query) *gojq.Query {
	if q.Meta != nil || len(q.Imports) > 0 {
		r.refuse("", "uses modules, which cannot be loaded; write their functions into it")
	}
	defer r.enter()()
	for _, def := range q.FuncDefs {
		r.definition(def)
	}
	out := r.expression(q)
	out.FuncDefs = q.FuncDefs
	return out
}

func (r *rewriter) definition(def *gojq.FuncDef) {
	if len(r.scopes) == 0 {
		defer r.enter()()
	}
	if strings.Contains(def.Name, "::") || strings.HasPrefix(def.Name, "_") {
		r.refuse(def.Name, "defines %s; names begin with a letter", def.Name)
	}
	r.declare(signature(def.Name, len(def.Args)))
	defer r.enter()()
	for _, arg := range def.Args {
		r.declare(arg)
		r.declare(signature(strings.TrimPrefix(arg, "$"), 0))
	}
	def.Body = r.query(def.Body)
}

func (r *rewriter) expression(q *gojq.Query) *gojq.Query {
	if q.Term != nil {
		return term(r.term(q.Term))
	}
	if q.Left == nil || q.Right == nil {
		return q
	}
	if name, is := operators[q.Op]; is {
		return call(name, r.query(q.Left), r.query(q.Right))
	}
	if op, is := updates[q.Op]; is {
		return r.update(q, op)
	}
	switch q.Op {
	case gojq.OpAssign, gojq.OpModify:
		return first(string(rewrites), &gojq.Query{Left: r.paren(q.Left), Op: q.Op, Right: r.paren(q.Right)})
	case gojq.OpPipe:
		left := r.query(q.Left)
		if len(q.Patterns) == 0 {
			return &gojq.Query{Left: left, Op: q.Op, Right: r.query(q.Right)}
		}
		defer r.enter()()
		r.patterns(q.Patterns)
		return &gojq.Query{Left: term(group(left)), Op: q.Op, Patterns: q.Patterns, Right: r.query(q.Right)}
	default:
		return &gojq.Query{Left: r.paren(q.Left), Op: q.Op, Right: r.paren(q.Right)}
	}
}

// update takes `path op= value` apart: value as $x | path |= (. op $x).
func (r *rewriter) update(q *gojq.Query, op gojq.Operator) *gojq.Query {
	const variable = "$__v"
	value := call(variable)
	here := term(&gojq.Term{Type: gojq.TermTypeIdentity})
	changed := &gojq.Query{Left: here, Op: op, Right: value}
	if name, is := operators[op]; is {
		changed = call(name, here, value)
	}
	modify := first(string(rewrites), &gojq.Query{Left: r.paren(q.Left), Op: gojq.OpModify, Right: term(group(changed))})
	return term(group(&gojq.Query{Left: r.paren(q.Right), Op: gojq.OpPipe, Patterns: []*gojq.Pattern{{Name: variable}}, Right: modify}))
}

func (r *rewriter) patterns(all []*gojq.Pattern) {
	for _, p := range all {
		if p.Name != "" {
			r.variable(p.Name)
		}
		r.patterns(p.Array)
		for _, o := range p.Object {
			if strings.HasPrefix(o.Key, "$") {
				r.variable(o.Key)
			}
			if o.KeyString != nil && len(o.KeyString.Queries) > 0 {
				o.KeyQuery, o.KeyString = term(group(r.text(o.KeyString, "_tostring"))), nil
			} else if o.KeyQuery != nil {
				o.KeyQuery = r.paren(o.KeyQuery)
			}
			if o.Val != nil {
				r.patterns([]*gojq.Pattern{o.Val})
			}
		}
	}
}

func (r *rewriter) variable(name string) {
	if strings.HasPrefix(name, "$__") {
		r.refuse(name, "binds %s; names beginning with two underscores are taken", name)
	}
	r.declare(name)
}

func (r *rewriter) use(name string) {
	switch {
	case r.known(name):
	case name == "$ENV":
		r.refuse(name, "reads the environment, which no program sees; leave $ENV out")
	default:
		r.refuse(name, "uses %s, which nothing binds; correct it", name)
	}
}

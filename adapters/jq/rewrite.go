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

// cost is what is paid before a function of the library runs: the name of the function that
// pays.
type cost string

const (
	costNone    cost = ""
	costShallow cost = "_shallow"
	costDeep    cost = "_deep"
	costCopy    cost = "_nodes" // for functions that copy containers
)

// library are the functions of gojq that programs may call, by name and arity, with their
// cost. All others are refused, such as those that read, print, read or format the time, or
// compute in binary floating point.
var library = map[string]cost{
	"empty/0": costNone, "error/0": costNone, "error/1": costNone, "type/0": costNone, "has/1": costNone, "_captures/0": costShallow, "_range/3": costNone,
	"length/0": costShallow, "utf8bytelength/0": costNone, "keys/0": costShallow, "reverse/0": costShallow, "toboolean/0": costNone,
	"startswith/1": costShallow, "endswith/1": costShallow, "ltrimstr/1": costShallow, "rtrimstr/1": costShallow, "trimstr/1": costShallow,
	"ltrim/0": costShallow, "rtrim/0": costShallow, "trim/0": costShallow, "explode/0": costShallow, "implode/0": costShallow, "split/1": costShallow,
	"ascii_downcase/0": costShallow, "ascii_upcase/0": costShallow,
	"tojson/0": costDeep, "tostring/0": costDeep, "contains/1": costDeep, "inside/1": costDeep, "flatten/0": costDeep, "flatten/1": costDeep,
	"min/0": costDeep, "max/0": costDeep, "sort/0": costDeep, "unique/0": costDeep, "_match/3": costShallow,
	"_min_by/1": costDeep, "_max_by/1": costDeep, "_sort_by/1": costDeep, "_group_by/1": costDeep, "_unique_by/1": costDeep,
}

// replacements are functions of this package by the name and arity that programs call.
var replacements = map[string]string{
	"add/0": "_sum", "join/1": "_join", "tonumber/0": "_tonumber", "fromjson/0": "_fromjson",
	"floor/0": "_floor", "ceil/0": "_ceil", "round/0": "_round", "trunc/0": "_trunc", "abs/0": "_abs", "fabs/0": "_abs",
	"_pattern/2": "_pattern",
}

var formats = []string{"@text", "@json", "@html", "@uri", "@urid", "@csv", "@tsv", "@sh", "@base64", "@base64d"}

// operators are the operators that functions of this package compute.
var operators = map[gojq.Operator]string{
	gojq.OpAdd: "_addition", gojq.OpSub: "_sub", gojq.OpMul: "_mul", gojq.OpDiv: "_div", gojq.OpMod: "_mod",
	gojq.OpEq: "_eq", gojq.OpNe: "_ne", gojq.OpGt: "_gt", gojq.OpLt: "_lt", gojq.OpGe: "_ge", gojq.OpLe: "_le",
}

var updates = map[gojq.Operator]gojq.Operator{
	gojq.OpUpdateAdd: gojq.OpAdd, gojq.OpUpdateSub: gojq.OpSub, gojq.OpUpdateMul: gojq.OpMul,
	gojq.OpUpdateDiv: gojq.OpDiv, gojq.OpUpdateMod: gojq.OpMod, gojq.OpUpdateAlt: gojq.OpAlt,
}

// prelude are the functions of gojq that this package writes in jq instead, by name and
// arity.
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

// rewriter inserts the functions that pay into a program. It panics with a refusal.
type rewriter struct {
	source      string
	scopes      []map[string]bool // names of functions with their arity, and of variables
	usedPrelude []string          // functions of the prelude
	isPrelude   bool              // it is the prelude
}

type refusal struct{ err error }

// rewrite gives the text of a program with the same result that pays for its work, after the
// functions of the prelude that it needs.
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
	// scopes here; functions of the prelude are defined before them.
	if q.Term == nil && q.Left == nil && q.Right == nil && len(q.FuncDefs) == 0 {
		q.Term = &gojq.Term{Type: gojq.TermTypeIdentity} // the empty program
	}
	main := r.rewriteScoped(q).String()
	defs := map[string]string{}
	r.isPrelude = true
	for len(r.usedPrelude) > 0 {
		name := r.usedPrelude[0]
		r.usedPrelude = r.usedPrelude[1:]
		if _, done := defs[name]; done {
			continue
		}
		p, err := gojq.Parse(prelude()[name].text + " .")
		if err != nil {
			return "", err
		}
		def := p.FuncDefs[0]
		r.scopes = nil
		r.rewriteDefinition(def)
		defs[name] = def.String()
	}
	var all []string
	for name := range defs {
		all = append(all, name)
	}
	// A function may call those defined before it.
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

// maxScopes bounds the nesting of a program, because looking up a name costs more the deeper
// it is nested. A chain of operators is as deep as it is long.
const maxScopes = 2000

func (r *rewriter) enter() func() {
	if len(r.scopes) >= maxScopes {
		r.refuse("", "has chains or parts inside one another that are longer than %d; split it into functions", maxScopes)
	}
	r.scopes = append(r.scopes, map[string]bool{})
	return func() { r.scopes = r.scopes[:len(r.scopes)-1] }
}

func (r *rewriter) isDeclared(name string) bool {
	return slices.ContainsFunc(r.scopes, func(s map[string]bool) bool { return s[name] })
}

// The functions below build parts of programs.

func termQuery(t *gojq.Term) *gojq.Query { return &gojq.Query{Term: t} }

func call(name string, args ...*gojq.Query) *gojq.Query {
	return termQuery(&gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: name, Args: args}})
}

func pipe(l, r *gojq.Query) *gojq.Query { return &gojq.Query{Left: l, Op: gojq.OpPipe, Right: r} }

func groupTerm(q *gojq.Query) *gojq.Term { return &gojq.Term{Type: gojq.TermTypeQuery, Query: q} }

// payThen calls a function that pays and then q with the same input. It uses a binding, which
// does not change paths.
func payThen(name string, q *gojq.Query) *gojq.Query {
	return termQuery(groupTerm(&gojq.Query{Left: call(name), Op: gojq.OpPipe, Patterns: []*gojq.Pattern{{Name: "$__"}}, Right: q}))
}

// rewriteScoped rewrites a query in a scope of its own.
func (r *rewriter) rewriteScoped(q *gojq.Query) *gojq.Query {
	return termQuery(groupTerm(r.rewriteQuery(q)))
}

func (r *rewriter) rewriteOptional(q *gojq.Query) *gojq.Query {
	if q == nil {
		return nil
	}
	return r.rewriteQuery(q)
}

func (r *rewriter) rewriteQuery(q *gojq.Query) *gojq.Query {
	if q.Meta != nil || len(q.Imports) > 0 {
		r.refuse("", "uses modules, which cannot be loaded; write their functions into it")
	}
	defer r.enter()()
	for _, def := range q.FuncDefs {
		r.rewriteDefinition(def)
	}
	out := r.rewriteExpression(q)
	out.FuncDefs = q.FuncDefs
	return out
}

func (r *rewriter) rewriteDefinition(def *gojq.FuncDef) {
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
	def.Body = r.rewriteQuery(def.Body)
}

func (r *rewriter) rewriteExpression(q *gojq.Query) *gojq.Query {
	if q.Term != nil {
		return termQuery(r.rewriteTermWithSuffixes(q.Term))
	}
	if q.Left == nil || q.Right == nil {
		return q
	}
	if name, is := operators[q.Op]; is {
		return call(name, r.rewriteQuery(q.Left), r.rewriteQuery(q.Right))
	}
	if op, is := updates[q.Op]; is {
		return r.rewriteUpdate(q, op)
	}
	switch q.Op {
	case gojq.OpAssign, gojq.OpModify:
		return payThen(string(costCopy), &gojq.Query{Left: r.rewriteScoped(q.Left), Op: q.Op, Right: r.rewriteScoped(q.Right)})
	case gojq.OpPipe:
		left := r.rewriteQuery(q.Left)
		if len(q.Patterns) == 0 {
			return &gojq.Query{Left: left, Op: q.Op, Right: r.rewriteQuery(q.Right)}
		}
		defer r.enter()()
		r.rewritePatterns(q.Patterns)
		return &gojq.Query{Left: termQuery(groupTerm(left)), Op: q.Op, Patterns: q.Patterns, Right: r.rewriteQuery(q.Right)}
	default:
		return &gojq.Query{Left: r.rewriteScoped(q.Left), Op: q.Op, Right: r.rewriteScoped(q.Right)}
	}
}

// rewriteUpdate splits `path op= value`: value as $x | path |= (. op $x).
func (r *rewriter) rewriteUpdate(q *gojq.Query, op gojq.Operator) *gojq.Query {
	const variable = "$__v"
	value := call(variable)
	here := termQuery(&gojq.Term{Type: gojq.TermTypeIdentity})
	changed := &gojq.Query{Left: here, Op: op, Right: value}
	if name, is := operators[op]; is {
		changed = call(name, here, value)
	}
	modify := payThen(string(costCopy), &gojq.Query{Left: r.rewriteScoped(q.Left), Op: gojq.OpModify, Right: termQuery(groupTerm(changed))})
	return termQuery(groupTerm(&gojq.Query{Left: r.rewriteScoped(q.Right), Op: gojq.OpPipe, Patterns: []*gojq.Pattern{{Name: variable}}, Right: modify}))
}

func (r *rewriter) rewritePatterns(all []*gojq.Pattern) {
	for _, p := range all {
		if p.Name != "" {
			r.declareVariable(p.Name)
		}
		r.rewritePatterns(p.Array)
		for _, o := range p.Object {
			if strings.HasPrefix(o.Key, "$") {
				r.declareVariable(o.Key)
			}
			if o.KeyString != nil && len(o.KeyString.Queries) > 0 {
				o.KeyQuery, o.KeyString = termQuery(groupTerm(r.rewriteInterpolation(o.KeyString, "_tostring"))), nil
			} else if o.KeyQuery != nil {
				o.KeyQuery = r.rewriteScoped(o.KeyQuery)
			}
			if o.Val != nil {
				r.rewritePatterns([]*gojq.Pattern{o.Val})
			}
		}
	}
}

func (r *rewriter) declareVariable(name string) {
	if strings.HasPrefix(name, "$__") {
		r.refuse(name, "binds %s; names beginning with two underscores are reserved", name)
	}
	r.declare(name)
}

func (r *rewriter) checkVariable(name string) {
	switch {
	case r.isDeclared(name):
	case name == "$ENV":
		r.refuse(name, "reads the environment, which no program sees; leave $ENV out")
	default:
		r.refuse(name, "uses %s, which nothing binds; correct it", name)
	}
}

// rewriteTermWithSuffixes rewrites a term with its suffixes.
func (r *rewriter) rewriteTermWithSuffixes(t *gojq.Term) *gojq.Term {
	out := r.rewriteTerm(t)
	for i := 0; i < len(t.SuffixList); i++ {
		s := t.SuffixList[i]
		switch {
		case s.Iter:
			each := &gojq.Term{Type: gojq.TermTypeIdentity, SuffixList: []*gojq.Suffix{{Iter: true}}}
			if i+1 < len(t.SuffixList) && t.SuffixList[i+1].Optional {
				each.SuffixList = append(each.SuffixList, t.SuffixList[i+1])
				i++
			}
			out = groupTerm(pipe(termQuery(out), payThen("_each", termQuery(each))))
		case s.Index != nil:
			r.rewriteIndex(s.Index)
			out.SuffixList = append(out.SuffixList, s)
		default:
			out.SuffixList = append(out.SuffixList, s)
		}
	}
	return out
}

// rewriteTerm rewrites a term without its suffixes.
func (r *rewriter) rewriteTerm(t *gojq.Term) *gojq.Term {
	switch t.Type {
	case gojq.TermTypeRecurse:
		return r.rewriteCall(&gojq.Func{Name: "recurse"})
	case gojq.TermTypeIndex:
		r.rewriteIndex(t.Index)
		return &gojq.Term{Type: t.Type, Index: t.Index}
	case gojq.TermTypeFunc:
		return r.rewriteCall(t.Func)
	case gojq.TermTypeObject:
		for _, kv := range t.Object.KeyVals {
			r.rewriteMember(kv)
		}
		return &gojq.Term{Type: t.Type, Object: t.Object}
	case gojq.TermTypeArray:
		t.Array.Query = r.rewriteOptional(t.Array.Query)
		return &gojq.Term{Type: t.Type, Array: t.Array}
	case gojq.TermTypeUnary:
		defer r.enter()() // signs may follow one another
		operator := "_neg"
		if t.Unary.Op == gojq.OpAdd {
			operator = "_pos"
		}
		return groupTerm(pipe(termQuery(r.rewriteTermWithSuffixes(t.Unary.Term)), call(operator)))
	case gojq.TermTypeFormat:
		if !slices.Contains(formats, t.Format) {
			r.refuse(t.Format, "uses the format %s, which is not known; correct it", t.Format)
		}
		if t.Str == nil {
			return groupTerm(payThen(string(costDeep), termQuery(&gojq.Term{Type: t.Type, Format: t.Format})))
		}
		return groupTerm(r.rewriteInterpolation(t.Str, t.Format))
	case gojq.TermTypeString:
		if len(t.Str.Queries) == 0 {
			return &gojq.Term{Type: t.Type, Str: t.Str}
		}
		return groupTerm(r.rewriteInterpolation(t.Str, "@text"))
	case gojq.TermTypeIf, gojq.TermTypeTry, gojq.TermTypeReduce, gojq.TermTypeForeach, gojq.TermTypeLabel:
		return r.rewriteControl(t)
	case gojq.TermTypeQuery:
		return groupTerm(r.rewriteQuery(t.Query))
	default:
		plain := *t
		plain.SuffixList = nil
		return &plain
	}
}

func (r *rewriter) rewriteControl(t *gojq.Term) *gojq.Term {
	switch t.Type {
	case gojq.TermTypeIf:
		t.If.Cond, t.If.Then, t.If.Else = r.rewriteQuery(t.If.Cond), r.rewriteQuery(t.If.Then), r.rewriteOptional(t.If.Else)
		for _, e := range t.If.Elif {
			e.Cond, e.Then = r.rewriteQuery(e.Cond), r.rewriteQuery(e.Then)
		}
	case gojq.TermTypeTry:
		t.Try.Body, t.Try.Catch = r.rewriteScoped(t.Try.Body), r.rewriteCatch(t.Try.Catch)
	case gojq.TermTypeReduce:
		t.Reduce.Query, t.Reduce.Start = r.rewriteScoped(t.Reduce.Query), r.rewriteQuery(t.Reduce.Start)
		defer r.enter()()
		r.rewritePatterns(t.Reduce.Patterns)
		t.Reduce.Update = r.rewriteQuery(t.Reduce.Update)
	case gojq.TermTypeForeach:
		t.Foreach.Query, t.Foreach.Start = r.rewriteScoped(t.Foreach.Query), r.rewriteQuery(t.Foreach.Start)
		defer r.enter()()
		r.rewritePatterns(t.Foreach.Patterns)
		t.Foreach.Update, t.Foreach.Extract = r.rewriteQuery(t.Foreach.Update), r.rewriteOptional(t.Foreach.Extract)
	case gojq.TermTypeLabel:
		t.Label.Body = r.rewriteQuery(t.Label.Body)
	}
	plain := *t
	plain.SuffixList = nil
	if t.Type == gojq.TermTypeLabel {
		return groupTerm(termQuery(&plain)) // what follows would belong to its body
	}
	return &plain
}

func (r *rewriter) rewriteCatch(q *gojq.Query) *gojq.Query {
	if q == nil {
		return nil
	}
	return r.rewriteScoped(q)
}

func (r *rewriter) rewriteIndex(x *gojq.Index) {
	if x.Str != nil && len(x.Str.Queries) > 0 {
		x.Start, x.Str = r.rewriteInterpolation(x.Str, "@text"), nil
	}
	for _, bound := range []**gojq.Query{&x.Start, &x.End} {
		if *bound != nil && !isSmallLiteral(*bound) {
			*bound = pipe(r.rewriteScoped(*bound), call("_at"))
		}
	}
}

// isSmallLiteral reports whether an index is a literal within bounds, which needs no check.
func isSmallLiteral(q *gojq.Query) bool {
	if q.Term == nil || len(q.Term.SuffixList) > 0 {
		return false
	}
	switch q.Term.Type {
	case gojq.TermTypeString:
		return len(q.Term.Str.Queries) == 0
	case gojq.TermTypeNumber:
		n, err := strconv.Atoi(q.Term.Number)
		return err == nil && n <= maxIndex
	default:
		return false
	}
}

func (r *rewriter) rewriteMember(kv *gojq.ObjectKeyVal) {
	switch {
	case strings.HasPrefix(kv.Key, "$"):
		r.checkVariable(kv.Key)
	case kv.KeyString != nil && len(kv.KeyString.Queries) > 0:
		key := r.rewriteInterpolation(kv.KeyString, "@text")
		if kv.Val == nil {
			r.refuse("", "makes a member of a computed name without a value; write (name): .[name]")
		}
		kv.KeyQuery, kv.KeyString = key, nil
	case kv.KeyQuery != nil:
		kv.KeyQuery = r.rewriteQuery(kv.KeyQuery)
	}
	if kv.Val != nil {
		kv.Val = r.rewriteScoped(kv.Val)
	}
}

// rewriteInterpolation turns an interpolated string into a sum of strings.
func (r *rewriter) rewriteInterpolation(s *gojq.String, format string) *gojq.Query {
	var sum *gojq.Query
	for _, q := range s.Queries {
		part := q
		if q.Term == nil || q.Term.Str == nil {
			as := &gojq.Term{Type: gojq.TermTypeFormat, Format: format}
			if format == "@text" || format == "_tostring" {
				as = call("tostring").Term
			}
			part = pipe(r.rewriteScoped(q), payThen(string(costDeep), termQuery(as)))
		}
		if sum == nil {
			sum = part
		} else {
			sum = call("_addition", sum, part)
		}
	}
	return sum
}

func (r *rewriter) rewriteCall(f *gojq.Func) *gojq.Term {
	if strings.HasPrefix(f.Name, "$") {
		r.checkVariable(f.Name)
		return &gojq.Term{Type: gojq.TermTypeFunc, Func: f}
	}
	name := signature(f.Name, len(f.Args))
	if r.isDeclared(name) {
		return &gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: f.Name, Args: r.rewriteArguments(f.Args)}}
	}
	if strings.HasPrefix(f.Name, "_") && !r.isPrelude {
		r.refuse(f.Name, "calls %s, which is not defined; correct it", name)
	}
	if other, is := replacements[name]; is {
		return call(other, r.rewriteArguments(f.Args)...).Term
	}
	switch name {
	case "path/1":
		return groupTerm(pipe(call("path", r.rewriteQuery(f.Args[0])), call("_pathlength")))
	case "getpath/1":
		return call("getpath", pipe(r.rewriteScoped(f.Args[0]), call("_path"))).Term
	case "setpath/2":
		return groupTerm(payThen(string(costCopy), call("setpath", pipe(r.rewriteScoped(f.Args[0]), call("_path")), r.rewriteQuery(f.Args[1]))))
	case "delpaths/1":
		return groupTerm(payThen(string(costCopy), call("delpaths", pipe(r.rewriteScoped(f.Args[0]), call("_paths")))))
	}
	if cost, is := library[name]; is {
		args := r.rewriteArguments(f.Args)
		if cost == costNone {
			return call(f.Name, args...).Term
		}
		for i := range args {
			args[i] = pipe(termQuery(groupTerm(args[i])), call("_paid"))
		}
		return groupTerm(payThen(string(cost), call(f.Name, args...)))
	}
	if _, is := prelude()[name]; is {
		r.usedPrelude = append(r.usedPrelude, name)
		return call(f.Name, r.rewriteArguments(f.Args)...).Term
	}
	r.refuse(f.Name, "calls %s, which is not there: a program sees its document only, and gives the same answer always and everywhere; "+
		"leave it out", name)
	return nil
}

func (r *rewriter) rewriteArguments(all []*gojq.Query) []*gojq.Query {
	out := make([]*gojq.Query, len(all))
	for i, a := range all {
		out[i] = r.rewriteQuery(a)
	}
	return out
}

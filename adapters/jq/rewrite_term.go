package jq

import (
	"slices"
	"strconv"
	"strings"

	"github.com/itchyny/gojq"
)

// term rewrites a term with its suffixes.
func (r *rewriter) term(t *gojq.Term) *gojq.Term {
	out := r.bare(t)
	for i := 0; i < len(t.SuffixList); i++ {
		s := t.SuffixList[i]
		switch {
		case s.Iter:
			each := &gojq.Term{Type: gojq.TermTypeIdentity, SuffixList: []*gojq.Suffix{{Iter: true}}}
			if i+1 < len(t.SuffixList) && t.SuffixList[i+1].Optional {
				each.SuffixList = append(each.SuffixList, t.SuffixList[i+1])
				i++
			}
			out = group(pipe(term(out), first("_each", term(each))))
		case s.Index != nil:
			r.index(s.Index)
			out.SuffixList = append(out.SuffixList, s)
		default:
			out.SuffixList = append(out.SuffixList, s)
		}
	}
	return out
}

// bare rewrites a term without its suffixes.
func (r *rewriter) bare(t *gojq.Term) *gojq.Term {
	switch t.Type {
	case gojq.TermTypeRecurse:
		return r.function(&gojq.Func{Name: "recurse"})
	case gojq.TermTypeIndex:
		r.index(t.Index)
		return &gojq.Term{Type: t.Type, Index: t.Index}
	case gojq.TermTypeFunc:
		return r.function(t.Func)
	case gojq.TermTypeObject:
		for _, kv := range t.Object.KeyVals {
			r.member(kv)
		}
		return &gojq.Term{Type: t.Type, Object: t.Object}
	case gojq.TermTypeArray:
		t.Array.Query = r.optional(t.Array.Query)
		return &gojq.Term{Type: t.Type, Array: t.Array}
	case gojq.TermTypeUnary:
		defer r.enter()() // signs may follow one another
		operator := "_neg"
		if t.Unary.Op == gojq.OpAdd {
			operator = "_pos"
		}
		return group(pipe(term(r.term(t.Unary.Term)), call(operator)))
	case gojq.TermTypeFormat:
		if !slices.Contains(formats, t.Format) {
			r.refuse(t.Format, "uses the format %s, which is not known; correct it", t.Format)
		}
		if t.Str == nil {
			return group(first(string(deep), term(&gojq.Term{Type: t.Type, Format: t.Format})))
		}
		return group(r.text(t.Str, t.Format))
	case gojq.TermTypeString:
		if len(t.Str.Queries) == 0 {
			return &gojq.Term{Type: t.Type, Str: t.Str}
		}
		return group(r.text(t.Str, "@text"))
	case gojq.TermTypeIf, gojq.TermTypeTry, gojq.TermTypeReduce, gojq.TermTypeForeach, gojq.TermTypeLabel:
		return r.control(t)
	case gojq.TermTypeQuery:
		return group(r.query(t.Query))
	default:
		plain := *t
		plain.SuffixList = nil
		return &plain
	}
}

func (r *rewriter) control(t *gojq.Term) *gojq.Term {
	switch t.Type {
	case gojq.TermTypeIf:
		t.If.Cond, t.If.Then, t.If.Else = r.query(t.If.Cond), r.query(t.If.Then), r.optional(t.If.Else)
		for _, e := range t.If.Elif {
			e.Cond, e.Then = r.query(e.Cond), r.query(e.Then)
		}
	case gojq.TermTypeTry:
		t.Try.Body, t.Try.Catch = r.paren(t.Try.Body), r.catch(t.Try.Catch)
	case gojq.TermTypeReduce:
		t.Reduce.Query, t.Reduce.Start = r.paren(t.Reduce.Query), r.query(t.Reduce.Start)
		defer r.enter()()
		r.patterns(t.Reduce.Patterns)
		t.Reduce.Update = r.query(t.Reduce.Update)
	case gojq.TermTypeForeach:
		t.Foreach.Query, t.Foreach.Start = r.paren(t.Foreach.Query), r.query(t.Foreach.Start)
		defer r.enter()()
		r.patterns(t.Foreach.Patterns)
		t.Foreach.Update, t.Foreach.Extract = r.query(t.Foreach.Update), r.optional(t.Foreach.Extract)
	case gojq.TermTypeLabel:
		t.Label.Body = r.query(t.Label.Body)
	}
	plain := *t
	plain.SuffixList = nil
	if t.Type == gojq.TermTypeLabel {
		return group(term(&plain)) // what follows would belong to its body
	}
	return &plain
}

func (r *rewriter) catch(q *gojq.Query) *gojq.Query {
	if q == nil {
		return nil
	}
	return r.paren(q)
}

func (r *rewriter) index(x *gojq.Index) {
	if x.Str != nil && len(x.Str.Queries) > 0 {
		x.Start, x.Str = r.text(x.Str, "@text"), nil
	}
	for _, bound := range []**gojq.Query{&x.Start, &x.End} {
		if *bound != nil && !small(*bound) {
			*bound = pipe(r.paren(*bound), call("_at"))
		}
	}
}

// small reports whether an index is written out and needs no look.
func small(q *gojq.Query) bool {
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

func (r *rewriter) member(kv *gojq.ObjectKeyVal) {
	switch {
	case strings.HasPrefix(kv.Key, "$"):
		r.use(kv.Key)
	case kv.KeyString != nil && len(kv.KeyString.Queries) > 0:
		key := r.text(kv.KeyString, "@text")
		if kv.Val == nil {
			r.refuse("", "makes a member of a computed name without a value; write (name): .[name]")
		}
		kv.KeyQuery, kv.KeyString = key, nil
	case kv.KeyQuery != nil:
		kv.KeyQuery = r.query(kv.KeyQuery)
	}
	if kv.Val != nil {
		kv.Val = r.paren(kv.Val)
	}
}

// text takes a string with values in it apart: a sum of strings.
func (r *rewriter) text(s *gojq.String, format string) *gojq.Query {
	var sum *gojq.Query
	for _, q := range s.Queries {
		part := q
		if q.Term == nil || q.Term.Str == nil {
			as := &gojq.Term{Type: gojq.TermTypeFormat, Format: format}
			if format == "@text" || format == "_tostring" {
				as = call("tostring").Term
			}
			part = pipe(r.paren(q), first(string(deep), term(as)))
		}
		if sum == nil {
			sum = part
		} else {
			sum = call("_addition", sum, part)
		}
	}
	return sum
}

func (r *rewriter) function(f *gojq.Func) *gojq.Term {
	if strings.HasPrefix(f.Name, "$") {
		r.use(f.Name)
		return &gojq.Term{Type: gojq.TermTypeFunc, Func: f}
	}
	name := signature(f.Name, len(f.Args))
	if r.known(name) {
		return &gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: f.Name, Args: r.args(f.Args)}}
	}
	if strings.HasPrefix(f.Name, "_") && !r.trusted {
		r.refuse(f.Name, "calls %s, which is not defined; correct it", name)
	}
	if other, is := own[name]; is {
		return call(other, r.args(f.Args)...).Term
	}
	switch name {
	case "path/1":
		return group(pipe(call("path", r.query(f.Args[0])), call("_pathlength")))
	case "getpath/1":
		return call("getpath", pipe(r.paren(f.Args[0]), call("_path"))).Term
	case "setpath/2":
		return group(first(string(rewrites), call("setpath", pipe(r.paren(f.Args[0]), call("_path")), r.query(f.Args[1]))))
	case "delpaths/1":
		return group(first(string(rewrites), call("delpaths", pipe(r.paren(f.Args[0]), call("_paths")))))
	}
	if cost, is := library[name]; is {
		args := r.args(f.Args)
		if cost == free {
			return call(f.Name, args...).Term
		}
		for i := range args {
			args[i] = pipe(term(group(args[i])), call("_paid"))
		}
		return group(first(string(cost), call(f.Name, args...)))
	}
	if _, is := prelude()[name]; is {
		r.wanted = append(r.wanted, name)
		return call(f.Name, r.args(f.Args)...).Term
	}
	r.refuse(f.Name, "calls %s, which is not there: a program sees its document only, and gives the same answer always and everywhere; "+
		"leave it out", name)
	return nil
}

func (r *rewriter) args(all []*gojq.Query) []*gojq.Query {
	out := make([]*gojq.Query, len(all))
	for i, a := range all {
		out[i] = r.query(a)
	}
	return out
}

package jsonschema

import (
	"slices"

	"github.com/erpbackbone/backbone/domain/schema"
)

// application says which schemas one schema applies to its own value and to what the value
// holds.
type application struct {
	sameValue                     []string // all of them, $ref included
	oneOfMember                   []string // one of these applies to a member: properties, additionalProperties
	allOfMember                   []string // each of these may apply to a member: patternProperties
	oneOfElement                  []string // one of these applies to an element: items, additionalItems
	allOfElement                  []string // contains
	memberNames                   []string
	excludesObject, excludesArray bool
}

// checkCost refuses schemas that apply to a value without end ("$ref" in a circle)
// or so often that the work doubles with every level of the document.
func (c *stripped) checkCost() error {
	m := costMeter{applications: make(map[string]application, len(c.schemas)), costs: map[visit]int{}, states: map[string]visitState{}}
	for at, s := range c.schemas {
		m.applications[at] = c.application(at, s)
	}
	for at := range c.schemas {
		if m.isCircular(at) {
			return refuse("", "has references that lead in a circle to the same value; break the circle")
		}
	}
	for depth := 0; depth <= maxDocumentDepth; depth++ {
		most := m.mostAt("", depth)
		if most > maxEvaluations {
			return refuse("", "applies more than %d schemas to one value; use fewer alternatives", maxEvaluations)
		}
		if most == 0 {
			break // a schema applies to a value only through one that applies to the value around it
		}
	}
	return nil
}

func (c *stripped) application(at string, s any) (a application) {
	if target, ok := c.refs[at]; ok {
		return application{sameValue: []string{target}}
	}
	for _, p := range (schema.Node{At: at, Value: s}).Parts() {
		switch p.Target {
		case schema.SameValue:
			a.sameValue = append(a.sameValue, p.At)
		case schema.NamedMember, schema.OtherMembers:
			a.oneOfMember = append(a.oneOfMember, p.At)
		case schema.MatchingMembers:
			a.allOfMember = append(a.allOfMember, p.At)
		case schema.MemberNames:
			a.memberNames = append(a.memberNames, p.At)
		case schema.Elements, schema.OtherElements:
			a.oneOfElement = append(a.oneOfElement, p.At)
		case schema.SomeElement:
			a.allOfElement = append(a.allOfElement, p.At)
		case schema.NoValue:
		}
	}
	keywords, _ := s.(map[string]any)
	if types := typesOf(keywords["type"]); types != 0 {
		a.excludesObject, a.excludesArray = types&typeObject == 0, types&typeArray == 0
	}
	return a
}

// visit is the question how many schemas apply to a value that lies depth levels inside one to
// which the schema at a pointer applies.
type visit struct {
	at     string
	depth  int
	object bool // or array
}

type visitState int

const (
	visiting visitState = iota + 1
	visited
)

type costMeter struct {
	applications map[string]application
	costs        map[visit]int
	states       map[string]visitState
}

func (m *costMeter) isCircular(at string) bool {
	if state := m.states[at]; state != 0 {
		return state == visiting
	}
	m.states[at] = visiting
	if slices.ContainsFunc(m.applications[at].sameValue, m.isCircular) {
		return true
	}
	m.states[at] = visited
	return false
}

// mostAt gives how many schemas apply at most to one value that lies depth levels
// inside a value to which the schema applies, whatever the document.
func (m *costMeter) mostAt(at string, depth int) int {
	return max(m.count(visit{at, depth, true}), m.count(visit{at, depth, false}))
}

// maxCost bounds the counting; it is far above maxEvaluations.
const maxCost = 1 << 20

func (m *costMeter) count(v visit) int {
	if n, ok := m.costs[v]; ok {
		return n
	}
	a := m.applications[v.at]
	n := 0
	switch {
	case v.depth == 0:
		n = 1
	case v.object && a.excludesObject, !v.object && a.excludesArray:
		m.costs[v] = 0
		return 0
	case v.object:
		n = m.largest(a.oneOfMember, v.depth-1) + m.sum(a.allOfMember, v.depth-1)
		if v.depth == 1 {
			n += m.sum(a.memberNames, 0)
		}
	default:
		n = m.largest(a.oneOfElement, v.depth-1) + m.sum(a.allOfElement, v.depth-1)
	}
	for _, next := range a.sameValue {
		n += m.count(visit{next, v.depth, v.object})
	}
	n = min(n, maxCost)
	m.costs[v] = n
	return n
}

func (m *costMeter) largest(schemas []string, depth int) (n int) {
	for _, s := range schemas {
		n = max(n, m.mostAt(s, depth))
	}
	return n
}

func (m *costMeter) sum(schemas []string, depth int) (n int) {
	for _, s := range schemas {
		n += m.mostAt(s, depth)
	}
	return min(n, maxCost)
}

package jsonschema

import (
	"slices"

	"github.com/erpbackbone/backbone/domain/schema"
)

// application says which schemas one schema applies to its own value and to what the value
// holds. Schemas are numbered.
type application struct {
	sameValue                     []int // all of them, $ref included
	oneOfMember                   []int // one of these applies to a member: properties, additionalProperties
	allOfMember                   []int // each of these may apply to a member: patternProperties
	oneOfElement                  []int // one of these applies to an element: items, additionalItems
	allOfElement                  []int // contains
	memberNames                   []int
	excludesObject, excludesArray bool
}

// checkCost refuses schemas that apply to a value without end ("$ref" in a circle)
// or so often that the work doubles with every level of the document.
func (c *stripped) checkCost() error {
	numbers := make(map[string]int, len(c.schemas))
	for at := range c.schemas {
		numbers[at] = len(numbers)
	}
	m := costMeter{applications: make([]application, len(c.schemas)), states: make([]visitState, len(c.schemas))}
	for at, s := range c.schemas {
		m.applications[numbers[at]] = c.application(at, s, numbers)
	}
	for n := range m.applications {
		if m.isCircular(n) {
			return refuse("", "has references that lead in a circle to the same value; break the circle")
		}
	}
	root := numbers[""]
	counts, inner := make([]count, len(c.schemas)), make([]count, len(c.schemas))
	for depth := 0; depth <= maxDocumentDepth; depth++ {
		for _, n := range m.order {
			counts[n] = m.count(n, depth, counts, inner)
		}
		most := counts[root].most()
		if most > maxEvaluations {
			return refuse("", "applies more than %d schemas to one value; use fewer alternatives", maxEvaluations)
		}
		if most == 0 {
			break // a schema applies to a value only through one that applies to the value around it
		}
		counts, inner = inner, counts
	}
	return nil
}

func (c *stripped) application(at string, s any, numbers map[string]int) (a application) {
	if target, ok := c.refs[at]; ok {
		return application{sameValue: []int{numbers[target]}}
	}
	for _, p := range (schema.Node{At: at, Value: s}).Parts() {
		n := numbers[p.At]
		switch p.Target {
		case schema.SameValue:
			a.sameValue = append(a.sameValue, n)
		case schema.NamedMember, schema.OtherMembers:
			a.oneOfMember = append(a.oneOfMember, n)
		case schema.MatchingMembers:
			a.allOfMember = append(a.allOfMember, n)
		case schema.MemberNames:
			a.memberNames = append(a.memberNames, n)
		case schema.Elements, schema.OtherElements:
			a.oneOfElement = append(a.oneOfElement, n)
		case schema.SomeElement:
			a.allOfElement = append(a.allOfElement, n)
		case schema.NoValue:
		}
	}
	keywords, _ := s.(map[string]any)
	if types := typesOf(keywords["type"]); types != 0 {
		a.excludesObject, a.excludesArray = types&typeObject == 0, types&typeArray == 0
	}
	return a
}

type visitState int

const (
	visiting visitState = iota + 1
	visited
)

type costMeter struct {
	applications []application
	states       []visitState
	order        []int // of the schemas, each after those that it applies to the same value
}

func (m *costMeter) isCircular(n int) bool {
	if state := m.states[n]; state != 0 {
		return state == visiting
	}
	m.states[n] = visiting
	if slices.ContainsFunc(m.applications[n].sameValue, m.isCircular) {
		return true
	}
	m.states[n] = visited
	m.order = append(m.order, n)
	return false
}

// count says how many schemas apply at most to one value that lies some levels inside an object,
// or inside an array, to which a schema applies, whatever the document.
type count struct{ object, array int }

func (c count) most() int { return max(c.object, c.array) }

// maxCost bounds the counting; it is far above maxEvaluations.
const maxCost = 1 << 20

// count counts for a schema and values depth levels inside. counts has the schemas that it applies
// to the same value; inner has all schemas, one level less deep.
func (m *costMeter) count(n, depth int, counts, inner []count) (c count) {
	a := &m.applications[n]
	if depth == 0 {
		c = count{1, 1}
	} else {
		c.object = largest(a.oneOfMember, inner) + sum(a.allOfMember, inner)
		c.array = largest(a.oneOfElement, inner) + sum(a.allOfElement, inner)
	}
	if depth == 1 {
		c.object += sum(a.memberNames, inner)
	}
	for _, same := range a.sameValue {
		c.object += counts[same].object
		c.array += counts[same].array
	}
	if depth > 0 && a.excludesObject {
		c.object = 0
	}
	if depth > 0 && a.excludesArray {
		c.array = 0
	}
	return count{min(c.object, maxCost), min(c.array, maxCost)}
}

func largest(schemas []int, counts []count) (n int) {
	for _, s := range schemas {
		n = max(n, counts[s].most())
	}
	return n
}

func sum(schemas []int, counts []count) (n int) {
	for _, s := range schemas {
		n += counts[s].most()
	}
	return min(n, maxCost)
}

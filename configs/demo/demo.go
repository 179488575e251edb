// Package demo describes the demonstration tenant of `backbone dev`: its legal entities and one
// persona for each of the platform's roles. Modules describe their own set-up as stages of
// intents (Demo.Books), which cmd/cli submits as a customer would. The package does nothing
// itself.
package demo

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// Tenant is the demonstration tenant's id.
const Tenant = "demo"

// Entity is a legal entity of the demonstration.
type Entity struct {
	Code     string
	Name     string
	Currency string // book currency
	TimeZone string
	Home     string // ISO country code; reverse charge uses its standard rate
}

// Entities are the legal entities of the demonstration.
var Entities = []Entity{
	{Code: "USMF", Name: "Demo Manufacturing Inc.", Currency: "USD", TimeZone: "America/New_York", Home: "US"},
	{Code: "DEMF", Name: "Demo Fertigung GmbH", Currency: "EUR", TimeZone: "Europe/Berlin", Home: "DE"},
}

// Persona is a person or service of the demonstration. It holds one role.
type Persona struct {
	Role    string
	Token   string   // the name of its token; "": the role
	Name    string   // what it stands for in the demonstration
	Modules []string // of a service: those that it is bound to; a person has none
}

// TokenName is the name of the persona's token.
func (p Persona) TokenName() string { return cmp.Or(p.Token, p.Role) }

// Responsible is the role of the person who answers for the services.
const Responsible = "admin"

// Personas hold the platform's roles. Modules declare the personas of their own roles.
var Personas = []Persona{
	{Role: "module", Name: "Module service", Modules: []string{"ap", "crm", "equipment", "fleet", "hr", "mill", "press"}},
	{Role: "importer", Name: "Import service", Modules: []string{"ap"}},
	{Role: "auditor", Name: "Ada Auditor"},
	{Role: "compliance", Name: "Colin Compliance"},
	{Role: "compliance_approver", Name: "Celia Compliance"},
	{Role: "admin", Name: "Alex Admin"},
	{Role: "admin", Token: "second_admin", Name: "Sam Admin"}, // confirms what Alex proposes
	{Role: "operator", Name: "Olga Operator"},
}

// FirstYear and LastYear bound the demonstration's calendar and rates.
const (
	FirstYear = 2010
	LastYear  = 2030
)

// Periods lists the months of the calendar, "2010-01" to "2030-12".
func Periods() []string {
	var out []string
	for y := FirstYear; y <= LastYear; y++ {
		for m := 1; m <= 12; m++ {
			out = append(out, fmt.Sprintf("%d-%02d", y, m))
		}
	}
	return out
}

// Step is one intent of the set-up, submitted as a persona.
type Step struct {
	As      string
	Type    string
	Payload json.RawMessage
}

// Lane is a list of steps that run one after another.
type Lane []Step

// Stage is a set of lanes that may run in parallel.
type Stage struct {
	Title string
	Lanes []Lane
}

// Steps counts the steps of stages.
func Steps(stages []Stage) int {
	n := 0
	for _, s := range stages {
		for _, l := range s.Lanes {
			n += len(l)
		}
	}
	return n
}

// Package demo is the demonstration tenant of `backbone dev`, as data: its legal entities
// and its holders of the platform's roles. Modules bring their books, as stages of
// intents that a customer would submit too.
package demo

import (
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

// Persona is a person or service of the demonstration. Each holds the one role
// that is its name.
type Persona struct {
	Role    string
	Service bool   // a service identity, not a person
	Name    string // display name in the principals directory
}

// Personas hold the platform's roles. The roles of modules name theirs themselves.
var Personas = []Persona{
	{Role: "module", Service: true, Name: "Module service"},
	{Role: "importer", Service: true, Name: "Import service"},
	{Role: "auditor", Name: "Ada Auditor"},
	{Role: "compliance", Name: "Colin Compliance"},
	{Role: "compliance_approver", Name: "Celia Compliance"},
	{Role: "admin", Name: "Alex Admin"},
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

// Lane is a list of steps that must run one after another.
type Lane []Step

// Stage is a set of lanes that may run side by side.
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

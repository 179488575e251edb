package contract

import "github.com/erpbackbone/backbone/application/module"

// ReadModelCloseChecklist is the path of the checklist of a period's close. A module adds rows
// to it with a read model that has PartOf set to this path, ChecklistParams and
// ChecklistColumns, and rows of type ChecklistRow.
const ReadModelCloseChecklist = "gl/close-checklist"

// ParamPeriod is the parameter of the checklist.
const ParamPeriod = "period"

// States of an item of the checklist.
const (
	ChecklistDone          = "done"
	ChecklistOpen          = "open"
	ChecklistNotApplicable = "not_applicable"
)

// What an open item of the checklist blocks.
const (
	BlocksHardClose = "hard" // gl.close_period with level hard is refused
	BlocksNothing   = "soft" // people should look at it; nothing is refused
)

// ChecklistRow is an item of the checklist.
type ChecklistRow struct {
	Module   string   `json:"module"`
	Item     string   `json:"item"`
	State    string   `json:"state"`
	Count    int      `json:"count"`
	Blocking string   `json:"blocking"`
	IDs      []string `json:"ids"`
	NextStep string   `json:"next_step"`
}

// ChecklistIDs bounds the ids of a row.
const ChecklistIDs = 5

// NewChecklistRow makes the row of an item: done if nothing is left, else open with the first
// ids and the next step.
func NewChecklistRow(moduleName, item, blocking, nextStep string, left []string) ChecklistRow {
	r := ChecklistRow{Module: moduleName, Item: item, State: ChecklistDone, Count: len(left), Blocking: blocking, IDs: left[:min(len(left), ChecklistIDs)]}
	if len(left) > 0 {
		r.State, r.NextStep = ChecklistOpen, nextStep
	}
	if r.IDs == nil {
		r.IDs = []string{}
	}
	return r
}

// ChecklistParams are the parameters of the checklist and of each part of it.
func ChecklistParams() []module.Param {
	return []module.Param{{Name: ParamPeriod, Type: module.ParamString, Required: true, Description: "period, as 2026-03"}}
}

// ChecklistColumns are the columns of the checklist and of each part of it.
func ChecklistColumns() []module.Column {
	return []module.Column{
		{Name: "module", Type: "string", Description: "module that the item is about"},
		{Name: "item", Type: "string", Description: "what is checked"},
		{Name: "state", Type: "string", Description: "done, open or not_applicable"},
		{Name: "count", Type: "integer", Description: "what is left"},
		{Name: "blocking", Type: "string", Description: "hard: while it is open, a hard close is refused; soft: nothing is refused"},
		{Name: "ids", Type: "object", Description: "the first of what is left, at most 5"},
		{Name: "next_step", Type: "string", Description: "intent or report to go on with"},
	}
}

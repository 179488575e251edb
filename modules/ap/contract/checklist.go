package contract

import gl "github.com/erpbackbone/backbone/modules/gl/contract"

// ParamPeriod is the parameter of the ledger's checklist of a period's close.
const ParamPeriod = gl.ParamPeriod

// ChecklistRow is an item of that checklist.
type ChecklistRow = gl.ChecklistRow

// NewChecklistRow makes the row of an item of accounts payable, which refuses nothing while it
// is open.
func NewChecklistRow(item, nextStep string, left []string) ChecklistRow {
	return gl.NewChecklistRow(ModuleName, item, gl.BlocksNothing, nextStep, left)
}

// NewBlockingRow makes the row of an item that refuses a hard close while it is open.
func NewBlockingRow(item, nextStep string, left []string) ChecklistRow {
	return gl.NewChecklistRow(ModuleName, item, gl.BlocksHardClose, nextStep, left)
}

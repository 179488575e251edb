package ap

import (
	"github.com/erpbackbone/backbone/application/module"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// ReadModelCloseChecklist has the rows of accounts payable in the ledger's checklist of a
// period's close.
const ReadModelCloseChecklist = "close-checklist"

func registerCloseChecklist(r *module.Registrar) {
	r.ReadModel(module.ReadModel{
		Name: ReadModelCloseChecklist, PartOf: gl.ReadModelCloseChecklist, Projection: OpenItems, Reads: []string{LedgerProjection}, Example: "--period 2026-03",
		Description: "What accounts payable has left to do before a period is closed for good; gl/close-checklist has it with the rows of the ledger. Documents count by the date of the document.",
		Params:      gl.ChecklistParams(), Columns: gl.ChecklistColumns(),
	})
}

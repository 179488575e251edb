package ap

import "github.com/erpbackbone/backbone/application/module"

// ReadModelSubledgerControl compares accounts payable with the ledger. It is under the
// ledger's path, where an accountant looks for it, and declared here, because the ledger does
// not know its subledgers.
const ReadModelSubledgerControl = "/gl/subledger-control"

// LedgerProjection is the ledger's projection that fills its view of control lines.
const LedgerProjection = "gl.ledger"

func registerSubledgerControl(r *module.Registrar) {
	r.ReadModel(module.ReadModel{
		Name: ReadModelSubledgerControl, Projection: OpenItems, Reads: []string{LedgerProjection}, Command: "subledger-control", Example: "--by-vendor",
		Description: "What the documents of accounts payable leave open, beside the balance of the control accounts, at the same sequence. Both are credit balances. The differences must be 0.",
		Params: []module.Param{
			{Name: "by_vendor", Type: module.ParamBool, Description: "true gives a row for each vendor and currency"},
			{Name: "vendor", Type: module.ParamString, Description: "vendor id"},
		},
		Columns: []module.Column{
			{Name: "control_account", Type: "string", Description: "control accounts with lines in the row"},
			{Name: "vendor_id", Type: "string", Description: "vendor, by vendor; empty for lines without one"},
			{Name: "currency", Type: "string", Description: "document currency"},
			{Name: "subledger", Type: "amount", Description: "open amount of the documents, document currency"},
			{Name: "ledger", Type: "amount", Description: "credit balance of the control accounts, document currency"},
			{Name: "difference", Type: "amount", Description: "subledger less ledger, document currency"},
			{Name: "subledger_functional", Type: "amount", Description: "open amount of the documents, functional currency"},
			{Name: "ledger_functional", Type: "amount", Description: "credit balance of the control accounts, functional currency"},
			{Name: "difference_functional", Type: "amount", Description: "subledger less ledger, functional currency"},
		},
	})
}

package gl

import (
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// roles are the roles that the ledger declares. Controllers and CFOs also approve documents
// of subledgers, so they read contacts and bank accounts.
func roles() []module.Role {
	return []module.Role{
		{Name: "gl_accountant", Persona: "Greta Ledger", Description: "posts journals and keeps the chart of accounts", Approves: true},
		{
			Name: "controller", Persona: "Carl Controller", Description: "closes periods and approves up to a limit", Approves: true,
			Reads: []shredding.Class{shredding.Contact, shredding.Bank, shredding.FreeText},
		},
		{
			Name: "cfo", Persona: "Fiona Finance", Description: "approves what is over the controller's limit", Approves: true,
			Reads: []shredding.Class{shredding.Contact, shredding.Bank, shredding.FreeText},
		},
		{
			Name: "treasurer", Persona: "Tomas Treasurer", Description: "pays vendors and reconciles bank accounts", Approves: true,
			Reads: []shredding.Class{shredding.Contact, shredding.Bank, shredding.Identity, shredding.FreeText},
		},
	}
}

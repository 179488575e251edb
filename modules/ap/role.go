package ap

import (
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// roles are the roles that accounts payable declares. The roles controller, cfo and
// treasurer are declared by the general ledger.
func roles() []module.Role {
	return []module.Role{
		{
			Name: "ap_clerk", Persona: "Paula Clerk", Description: "submits documents and writes to vendors",
			Reads: []shredding.Class{shredding.Contact, shredding.FreeText},
		},
		{
			Name: "approver", Persona: "Amir Approver", Description: "approves documents up to a limit", Approves: true,
			Reads: []shredding.Class{shredding.Contact, shredding.Bank, shredding.FreeText},
		},
		{
			Name: "vendor_admin", Persona: "Vera Vendors", Description: "keeps the vendor master", Approves: true,
			Reads: []shredding.Class{shredding.Contact, shredding.Identity, shredding.Tax, shredding.Bank, shredding.FreeText},
		},
	}
}

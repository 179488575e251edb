package ap

import (
	"slices"

	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/text"
)

// freeTexts are the members of intents that people write for people: they hold no number of a bank
// account or card, as they are kept for ever.
var freeTexts = []string{
	"address", "bank", "comment", "description", "evidence_ref", "filename", "function", "holder", "name", "reason", "text", "vendor_name", "verification",
}

// accountMembers are the members whose values are accounts. They are sealed, or of the legal
// entity itself, or of the chart of accounts.
var accountMembers = []string{"account", "iban", "payee_accounts"}

// checkText checks a string of an intent. No string has characters that its reader does not see. A
// free text has no account or card number, all other values but accounts no IBAN: references and
// registration numbers often have the check digit of a card. Faults: those of text.Check,
// pii.in_identifier.
func checkText(member, pointer, s string) error {
	if s == "" {
		return nil
	}
	if slices.Contains(freeTexts, member) {
		if member == "reason" { // planners and schemas say which reasons are required
			if err := text.CheckVisible(pointer, s); err != nil {
				return err
			}
			return shredding.CheckNoAccountNumber(pointer, s)
		}
		return text.Check(pointer, s)
	}
	if member != "invoice_number" { // which has a stricter rule of its own
		if err := text.CheckVisible(pointer, s); err != nil {
			return err
		}
	}
	if slices.Contains(accountMembers, member) {
		return nil
	}
	return shredding.CheckNoIBAN(pointer, s)
}

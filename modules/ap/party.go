package ap

import (
	"fmt"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/vatid"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// checkBuyerIdentity refuses VAT ids of the legal entity whose form or check digits are wrong:
// no paper that is right would match them.
func checkBuyerIdentity(b *contract.BuyerIdentity) error {
	if b == nil {
		return nil
	}
	for i, id := range b.VATIDs {
		if verdict := vatid.Check(id); verdict != vatid.Valid && verdict != vatid.Unknown {
			return fault.New(fault.Invalid, "ap.buyer.vat_id_invalid",
				"the VAT id of the legal entity is invalid: %s; compare it with the letter of the tax office", wrongVATID(verdict)).
				WithField(fmt.Sprintf("/buyer/vat_ids/%d", i)).With("verdict", string(verdict))
		}
	}
	return nil
}

// wrongVATID says what is wrong with a VAT id that is not valid.
func wrongVATID(v vatid.Verdict) string {
	if v == vatid.WrongDigits {
		return "its check digits do not fit, so a character is wrong"
	}
	return "it has not the form of its country"
}

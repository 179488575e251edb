package ap

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/vatid"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
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

// sellerFields declares the seller's name on a submitted paper as personal data of the vendor.
func sellerFields() []eventtype.PIIField {
	return []eventtype.PIIField{{
		Path: "$." + sellerMember, Class: string(shredding.Identity), Subject: json.RawMessage(`{"path":"$.vendor_id","type":"vendor"}`),
	}}
}

// compareSeller compares the seller's name on a paper with that of the vendor, which it opens if the
// vendor is a natural person, and returns the document's seller_match. Neither name leaves it.
func compareSeller(ctx context.Context, s module.State, vendor *domain.Vendor, paper string) (contract.OpenText, error) {
	if !vendor.Master.NaturalPerson {
		return domain.CompareSeller(paper, vendor.Master.Name), nil
	}
	if len(vendor.Person) == 0 {
		return contract.SellerNotChecked, nil
	}
	opened, err := s.Open(ctx, vendor.Person)
	if err != nil {
		return "", err
	}
	var person struct {
		Name string `json:"name"`
	}
	if string(opened) != shredding.Redacted {
		if err := json.Unmarshal(opened, &person); err != nil {
			return "", fmt.Errorf("person of vendor %s: %w", vendor.Master.VendorID, err)
		}
	}
	return domain.CompareSeller(paper, person.Name), nil
}

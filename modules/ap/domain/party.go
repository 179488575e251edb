package domain

import (
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/companyname"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/vatid"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// CompareBuyer compares the buyer on a paper with the legal entity and returns the document's
// buyer_match. The strongest identifier that both have decides: VAT id, registration id,
// electronic address; names count where no identifier can be compared. entityName is the name
// under which the backbone keeps the books; it counts beside the names of the settings.
func CompareBuyer(b contract.Buyer, own contract.BuyerIdentity, entityName string) string {
	for _, id := range []struct {
		paper string
		own   []string
		match string
	}{
		{b.VATID, own.VATIDs, contract.BuyerByVATID},
		{b.RegistrationID, own.RegistrationIDs, contract.BuyerByRegistrationID},
		{b.EndpointID, own.EndpointIDs, contract.BuyerByEndpointID},
	} {
		if vatid.Normalise(id.paper) == "" || len(id.own) == 0 {
			continue
		}
		if slices.ContainsFunc(id.own, func(own string) bool { return sameIdentifier(own, id.paper) }) {
			return id.match
		}
		return contract.BuyerDiffers
	}
	names := own.Names
	if entityName != "" {
		names = append(slices.Clone(names), entityName)
	}
	paper := slices.DeleteFunc(slices.Clone(b.Names), func(name string) bool { return strings.TrimSpace(name) == "" })
	if len(names) == 0 || len(paper) == 0 {
		return contract.BuyerNotChecked
	}
	for _, name := range paper {
		if slices.ContainsFunc(names, func(own string) bool { return companyname.SameWithForm(own, name) }) {
			return contract.BuyerByName
		}
	}
	return contract.BuyerDiffers
}

// sameIdentifier compares an identifier of the settings with one of a paper. The scheme of an
// electronic address counts only if the settings have it too.
func sameIdentifier(own, paper string) bool {
	own, paper = vatid.Normalise(own), vatid.Normalise(paper)
	if _, id, schemed := strings.Cut(paper, ":"); schemed && !strings.Contains(own, ":") {
		paper = id
	}
	return own == paper
}

// CompareSeller compares the name of a seller who may be a natural person with the vendor's and returns
// the document's seller_match. An erased name compares as none.
func CompareSeller(paper, vendor string) contract.OpenText {
	switch {
	case strings.TrimSpace(paper) == "" || strings.TrimSpace(vendor) == "" || isRedacted(vendor):
		return contract.SellerNotChecked
	case companyname.Same(paper, vendor):
		return contract.SellerByName
	default:
		return contract.SellerDiffers
	}
}

// PartyFindings holds a document that is addressed to another buyer, and one of a file whose
// seller has another name than the vendor that its identifier found. It names neither name: both may
// be personal data.
func PartyFindings(d *contract.Document, vendor *Vendor) []Finding {
	var found []Finding
	if d.BuyerMatch == contract.BuyerDiffers {
		found = append(found, Finding{
			Kind: contract.HoldBuyerDiffers, Blocks: contract.BlocksApproval,
			Reason: "the document names another buyer than this legal entity; what identifies it is the section buyer of ap.configure",
		})
	}
	if d.SellerMatch == contract.SellerDiffers {
		return append(found, sellerDiffers())
	}
	paper, master := d.VendorName, vendor.Master.Name
	if d.SourceDocument == nil || vendor.Master.NaturalPerson || paper == "" || master == "" || isRedacted(paper) || isRedacted(master) {
		return found
	}
	if !companyname.Same(paper, master) {
		found = append(found, sellerDiffers())
	}
	return found
}

func sellerDiffers() Finding {
	return Finding{
		Kind: contract.HoldSellerDiffers, Blocks: contract.BlocksApproval,
		Reason: "the seller's name on the document is not that of the vendor with its identifier",
	}
}

func isRedacted(text string) bool { return `"`+text+`"` == shredding.Redacted }

package ap

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// findPossibleDuplicates searches earlier documents by tag for documents that may be
// the same one: a similar number, the same total within windowDays, or the same number and
// total at another vendor with the VAT id. It returns the
// tags of d and at most one finding, which names the first such document. A document with
// the same number is no finding but a fault: d is refused.
//
// The search becomes an append condition. When two documents with the same tag race, the
// append of the second fails, and its next planning finds the first. The business key
// "number" refuses the same number on every path, raw appends included.
func findPossibleDuplicates(ctx context.Context, s module.State, k contract.Kind, d *contract.Document, vendor *domain.Vendor, c money.Currency, windowDays int) (own []string, found []domain.Finding, err error) {
	rules := map[string]string{}
	var wanted []string
	if own, err = matchTags(k, d, vendor); err != nil {
		return nil, nil, err
	}
	if tag, ok := domain.NumberTag(k, d.VendorID, d.InvoiceNumber); ok {
		rules[tag] = domain.RuleSameNumber
	}
	if tag, ok := domain.PartyTag(k, vendor.Master.VATID, d.InvoiceNumber, c, d.TotalAmount); ok {
		rules[tag] = domain.RuleSameParty
	}
	wanted = append(wanted, own...)
	for day := -windowDays; day <= windowDays; day++ {
		tag := domain.TotalTag(k, d.VendorID, c, d.TotalAmount, d.InvoiceDate.AddDays(day))
		rules[tag] = domain.RuleSameTotal
		if day != 0 {
			wanted = append(wanted, tag)
		}
	}
	events, err := s.Tagged(ctx, wanted...)
	if err != nil {
		return nil, nil, err
	}
	var suspect possibleDuplicate
	seen := map[string]bool{}
	for _, e := range events {
		if seen[e.Stream.ID] || e.Stream.ID == d.ID() || e.Stream.Type != k.StreamType() {
			continue
		}
		seen[e.Stream.ID] = true
		earlier, err := loadDocument(ctx, s, k, e.Stream.ID)
		if err != nil {
			return nil, nil, err
		}
		if domain.SameNumber(earlier.Data.InvoiceNumber, d.InvoiceNumber) && earlier.Data.VendorID == d.VendorID {
			return nil, nil, earlier.DuplicateFault(d, earlier.Holder())
		}
		if earlier.State == domain.StateRejected || earlier.State == domain.StateVoided {
			continue // a paper that is not booked is no duplicate
		}
		seller := vendor
		if earlier.Data.VendorID != d.VendorID {
			if seller, err = loadVendor(ctx, s, earlier.Data.VendorID); err != nil {
				return nil, nil, err
			}
		}
		tags, err := matchTags(k, &earlier.Data, seller) // of its latest body: a correction may have changed them
		if err != nil {
			return nil, nil, err
		}
		for _, tag := range tags {
			if rule, ok := rules[tag]; ok {
				if suspect.DocumentID == "" {
					suspect.DocumentID = e.Stream.ID
				}
				if !slices.Contains(suspect.Rules, rule) {
					suspect.Rules = append(suspect.Rules, rule)
				}
			}
		}
	}
	if suspect.DocumentID != "" {
		slices.Sort(suspect.Rules)
		found = append(found, domain.Finding{
			Kind: contract.HoldDuplicateSuspect, Blocks: contract.BlocksApproval,
			Reason: "an earlier document looks like the same paper", Detail: suspect,
		})
	}
	return own, found, nil
}

// matchTags are the tags by which later documents find this one.
func matchTags(k contract.Kind, d *contract.Document, vendor *domain.Vendor) ([]string, error) {
	c, err := money.LookupCurrency(d.Currency, d.InvoiceDate.Time())
	if err != nil {
		return nil, err
	}
	var tags []string
	if tag, ok := domain.NumberTag(k, d.VendorID, d.InvoiceNumber); ok {
		tags = append(tags, tag)
	}
	if tag, ok := domain.PartyTag(k, vendor.Master.VATID, d.InvoiceNumber, c, d.TotalAmount); ok {
		tags = append(tags, tag)
	}
	return append(tags, domain.TotalTag(k, d.VendorID, c, d.TotalAmount, d.InvoiceDate)), nil
}

// possibleDuplicate is the detail of a DUPLICATE_SUSPECT finding.
type possibleDuplicate struct {
	DocumentID string   `json:"document_id"` // the first possible duplicate
	Rules      []string `json:"rules"`       // rules by which any earlier document matches, sorted
}

// onDuplicateDocument makes the fault for a number that another document holds.
func onDuplicateDocument(k contract.Kind) func(context.Context, module.Input, module.State, string, fault.Holder) error {
	return func(ctx context.Context, in module.Input, s module.State, eventType string, h fault.Holder) error {
		var p contract.Submission
		if err := module.DecodePayload(in.Payload, &p); err != nil {
			return err
		}
		earlier := &domain.Document{Kind: k}
		if h.DocumentID != "" {
			loaded, err := loadDocument(ctx, s, k, h.DocumentID)
			if err != nil {
				return err
			}
			earlier = loaded
		}
		return earlier.DuplicateFault(&p.Document, h)
	}
}

package ap

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
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
	search := duplicateSearch{kind: k, document: d, vendor: vendor, rules: map[string]string{}, seen: map[string]bool{}}
	var wanted []string
	if own, err = matchTags(k, d, vendor); err != nil {
		return nil, nil, err
	}
	if tag, ok := domain.NumberTag(k, d.VendorID, d.InvoiceNumber); ok {
		search.rules[tag] = domain.RuleSameNumber
	}
	if tag, ok := domain.PartyTag(k, vendor.Master.VATID, d.InvoiceNumber, c, d.TotalAmount); ok {
		search.rules[tag] = domain.RuleSameParty
	}
	wanted = append(wanted, own...)
	for day := -windowDays; day <= windowDays; day++ {
		tag := domain.TotalTag(k, d.VendorID, c, d.TotalAmount, d.InvoiceDate.AddDays(day))
		search.rules[tag] = domain.RuleSameTotal
		if day != 0 {
			wanted = append(wanted, tag)
		}
	}
	events, err := s.Tagged(ctx, wanted...)
	if err == nil {
		err = search.compare(ctx, s, events)
	}
	if err == nil && len(events) > 0 && search.found.DocumentID == "" {
		// The first documents with the tags are rejected or have other figures by now. Later ones may
		// not, and Tagged sets no condition for a tag that is taken.
		if events, err = readTagged(ctx, s, wanted); err == nil {
			err = search.compare(ctx, s, events)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if search.found.DocumentID != "" {
		slices.Sort(search.found.Rules)
		found = append(found, domain.Finding{
			Kind: contract.HoldDuplicateSuspect, Blocks: contract.BlocksApproval,
			Reason: "an earlier document looks like the same paper", Detail: search.found,
		})
	}
	return own, found, nil
}

// readTagged reads all events with any of the tags. That there is no further one becomes an append
// condition.
func readTagged(ctx context.Context, s module.State, tags []string) (events []event.Recorded, err error) {
	var items []concurrency.Item
	for _, tag := range tags {
		items = append(items, concurrency.Item{Tags: []string{tag}})
	}
	err = s.Decide(ctx, module.Projector{Items: items, WithoutData: true, Apply: func(e event.Recorded, _ []byte) error {
		events = append(events, e)
		return nil
	}})
	return events, err
}

// duplicateSearch compares a document with earlier ones.
type duplicateSearch struct {
	kind     contract.Kind
	document *contract.Document
	vendor   *domain.Vendor    // of the document
	rules    map[string]string // by which an earlier document with the tag matches
	seen     map[string]bool   // ids of documents that were compared
	found    possibleDuplicate
}

// compare adds the documents of the events that may be the same one.
func (search *duplicateSearch) compare(ctx context.Context, s module.State, events []event.Recorded) error {
	k, d := search.kind, search.document
	for _, e := range events {
		if search.seen[e.Stream.ID] || e.Stream.ID == d.ID() || e.Stream.Type != k.StreamType() {
			continue
		}
		search.seen[e.Stream.ID] = true
		earlier, err := loadDocument(ctx, s, k, e.Stream.ID)
		if err != nil {
			return err
		}
		if domain.SameNumber(earlier.Data.InvoiceNumber, d.InvoiceNumber) && earlier.Data.VendorID == d.VendorID {
			return earlier.DuplicateFault(d, earlier.Holder())
		}
		if earlier.State == domain.StateRejected || earlier.State == domain.StateVoided {
			continue // a paper that is not booked is no duplicate
		}
		seller := search.vendor
		if earlier.Data.VendorID != d.VendorID {
			if seller, err = loadVendor(ctx, s, earlier.Data.VendorID); err != nil {
				return err
			}
		}
		tags, err := matchTags(k, &earlier.Data, seller) // of its latest body: a correction may have changed them
		if err != nil {
			return err
		}
		for _, tag := range tags {
			if rule, ok := search.rules[tag]; ok {
				if search.found.DocumentID == "" {
					search.found.DocumentID = e.Stream.ID
				}
				if !slices.Contains(search.found.Rules, rule) {
					search.found.Rules = append(search.found.Rules, rule)
				}
			}
		}
	}
	return nil
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

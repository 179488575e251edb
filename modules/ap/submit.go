package ap

import (
	"context"
	"fmt"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// planSubmit plans the submission of a document: the event itself, what is found
// about it (validated, or one hold per finding), and the match keys it is the
// first to have.
func planSubmit(k contract.Kind) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return func(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
		var p contract.Submission
		if err := decode(in.Payload, &p); err != nil {
			return module.Plan{}, err
		}
		d := p.Document
		d.SetID(k, in.DocumentID(0).String())
		settings, err := loadSettings(ctx, s)
		if err != nil {
			return module.Plan{}, err
		}
		vendor, err := loadVendor(ctx, s, d.VendorID)
		if err != nil {
			return module.Plan{}, err
		}
		complete(&d, vendor, settings)
		if err := domain.CheckDocument(k, &d); err != nil {
			return module.Plan{}, err
		}
		currency, err := money.LookupCurrency(d.Currency, d.InvoiceDate.Time())
		if err != nil {
			return module.Plan{}, err
		}
		if err := checkWithholding(&d, settings); err != nil {
			return module.Plan{}, err
		}
		date, err := postingDate(in, p.PostingDate, d.InvoiceDate)
		if err != nil {
			return module.Plan{}, err
		}
		ledger := gl.NewLedger(s)
		books, err := ledger.Settings(ctx)
		if err != nil {
			return module.Plan{}, err
		}
		period, err := ledger.CheckPeriod(ctx, contract.ModuleName, date)
		if err != nil {
			return module.Plan{}, err
		}
		coded, err := code(ctx, ledger, settings, vendor, books, &d)
		if err != nil {
			return module.Plan{}, err
		}
		dimensions, err := headDimensions(k, &d, vendor, books)
		if err != nil {
			return module.Plan{}, err
		}
		keys, suspects, err := matchKeys(ctx, s, k, &d, currency, settings.DuplicateWindowDays)
		if err != nil {
			return module.Plan{}, err
		}
		findings := append(suspects, coded.findings...)
		findings = append(findings, domain.TaxFindings(&d, currency, settings.TaxTolerance,
			func(group string) bool { return books.TaxGroups[group].ReverseCharge })...)
		findings = append(findings, domain.PayeeFindings(&d)...)

		plan := module.Plan{
			Streams: []concurrency.StreamExpectation{{Stream: k.Stream(d.ID()), Expected: concurrency.NoStream()}},
			Rules:   append([]event.RuleEvaluation{coded.rule}, findingRule(findings)),
			Facts:   factsOf(in),
		}
		plan.Events = submissionEvents(k, &d, date, dimensions, period.Tags, findings, coded.warnings)
		for _, key := range keys {
			plan.Events = append(plan.Events, event.Draft{
				Type: contract.EventMatchKeyRecorded, EffectiveDate: date, Stream: key.stream, CausedByIndex: 1,
				Data: contract.MatchKeyRecorded{DocumentRef: contract.RefTo(k, d.ID()), Rule: key.rule},
			})
		}
		return plan, nil
	}
}

// complete fills in what the submission leaves to the master data.
func complete(d *contract.Document, vendor *domain.Vendor, settings *domain.Settings) {
	if vendor.Master.NaturalPerson {
		d.VendorName = ""
	}
	if d.DueDate == nil {
		terms, source := settings.DefaultTerms, contract.DueDateFromDefault
		if vendor.Master.Terms != nil {
			terms, source = *vendor.Master.Terms, contract.DueDateFromVendor
		}
		due := d.InvoiceDate.AddDays(terms.NetDays)
		d.DueDate, d.DueDateSource = &due, source
	} else if d.DueDateSource == "" {
		d.DueDateSource = contract.DueDateFromDocument
	}
}

func checkWithholding(d *contract.Document, settings *domain.Settings) error {
	for i, w := range d.Withholding {
		if _, known := settings.WithholdingCodes[w.Code]; !known {
			return fault.New(fault.NotFound, "ap.withholding_code.not_found",
				"the settings have no such withholding code; add it with ap.configure or correct it").
				WithField(fmt.Sprintf("/withholding/%d/code", i))
		}
	}
	return nil
}

func submissionEvents(k contract.Kind, d *contract.Document, date event.Date, dimensions map[string]string, tags []string, findings []domain.Finding, warnings []contract.Warning) []event.Draft {
	doc := &domain.Document{Kind: k, Data: *d}
	submitted := draft(k, doc, contract.Submitted, *d, date, "", tags)
	submitted.Dimensions = dimensions
	events := []event.Draft{submitted}
	if len(findings) == 0 {
		validated := draft(k, doc, contract.Validated, contract.DocumentValidated{
			DocumentRef: contract.RefTo(k, d.ID()), Match: "off", Warnings: warnings,
		}, date, "", tags)
		validated.CausedByIndex = 1
		return append(events, validated)
	}
	for i, f := range findings {
		held := draft(k, doc, contract.Held, contract.DocumentHeld{
			DocumentRef: contract.RefTo(k, d.ID()), HoldID: holdID(d.ID(), i+1), Kind: f.Kind, Reason: f.Reason, Blocks: f.Blocks, Finding: f.Detail,
		}, date, "", tags)
		held.CausedByIndex = 1
		events = append(events, held)
	}
	return events
}

// holdID names the n-th hold of a document, so that the id alone leads to it.
func holdID(documentID string, n int) string { return fmt.Sprintf("%s-H%d", documentID, n) }

func findingRule(findings []domain.Finding) event.RuleEvaluation {
	r := event.RuleEvaluation{RuleID: "ap.submit.findings", RuleName: "Findings that hold a document", Result: event.RuleConditionFalse}
	for _, f := range findings {
		r.Result = event.RuleFired
		r.ActionsTaken = append(r.ActionsTaken, "hold:"+f.Kind)
	}
	return r
}

type matchKey struct {
	stream event.StreamID
	rule   string
}

// matchKeys looks for earlier documents that may be the same paper. keys are
// those that no earlier document has; suspects has one finding per earlier
// document. The number itself being taken is a refusal.
//
// Every key's stream is read at the version it has, so that of two documents
// that race for a key the second is planned again and then sees the first.
func matchKeys(ctx context.Context, s module.State, k contract.Kind, d *contract.Document, c money.Currency, windowDays int) (keys []matchKey, suspects []domain.Finding, err error) {
	type candidate struct {
		matchKey
		own bool // the document's own key, not one of a day nearby
	}
	var candidates []candidate
	if stream, ok := domain.NumberKey(k, d.VendorID, d.InvoiceNumber); ok {
		candidates = append(candidates, candidate{matchKey{stream, domain.RuleSameNumber}, true})
	}
	for day := -windowDays; day <= windowDays; day++ {
		stream := domain.TotalKey(k, d.VendorID, c, d.TotalAmount, d.InvoiceDate.AddDays(day))
		candidates = append(candidates, candidate{matchKey{stream, domain.RuleSameTotal}, day == 0})
	}
	byDocument := map[string]int{}
	for _, m := range candidates {
		first, _, err := module.Load[*domain.MatchKey](ctx, s, m.stream.Type, m.stream.ID)
		if err != nil {
			return nil, nil, err
		}
		if first.DocumentID == "" {
			if m.own {
				keys = append(keys, m.matchKey)
			}
			continue
		}
		earlier, err := loadDocument(ctx, s, k, first.DocumentID)
		if err != nil {
			return nil, nil, err
		}
		if domain.SameNumber(earlier.Data.InvoiceNumber, d.InvoiceNumber) && earlier.Data.VendorID == d.VendorID {
			return nil, nil, earlier.Duplicate(d, earlier.Holder())
		}
		if earlier.State == domain.StateRejected {
			if m.own {
				keys = append(keys, m.matchKey) // a rejected paper suspects nobody; from now on this one has the key
			}
			continue
		}
		if i, seen := byDocument[first.DocumentID]; seen {
			detail := suspects[i].Detail.(suspicion)
			detail.Rules = append(detail.Rules, m.rule)
			suspects[i].Detail = detail
			continue
		}
		byDocument[first.DocumentID] = len(suspects)
		suspects = append(suspects, domain.Finding{
			Kind: contract.HoldDuplicateSuspect, Blocks: contract.BlocksApproval,
			Reason: "an earlier document of this vendor looks like the same paper",
			Detail: suspicion{DocumentID: first.DocumentID, Rules: []string{m.rule}},
		})
	}
	return keys, suspects, nil
}

// suspicion is the finding of a DUPLICATE_SUSPECT hold.
type suspicion struct {
	DocumentID string   `json:"document_id"`
	Rules      []string `json:"rules"`
}

// onDuplicateDocument words a number that is taken.
func onDuplicateDocument(k contract.Kind) func(context.Context, module.Input, module.State, string, fault.Holder) error {
	return func(ctx context.Context, in module.Input, s module.State, eventType string, h fault.Holder) error {
		var p contract.Submission
		if err := decode(in.Payload, &p); err != nil {
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
		return earlier.Duplicate(&p.Document, h)
	}
}

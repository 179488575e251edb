package ap

import (
	"context"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// planSubmit plans the submission of a document: the submitted event, then either the
// validated event or one held event per finding. No document is posted here: every one
// waits for an approval.
func planSubmit(k contract.Kind) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return module.PlanOf(func(ctx context.Context, in module.Input, s module.State, p contract.Submission) (plan module.Plan, err error) {
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
		// The stored intent must not hold the person's name either, also when a later check
		// refuses the plan.
		if kept := keptSubmission(in.Payload, &d, vendor); kept != nil {
			defer func() { plan.Kept = kept }()
		}
		applyDefaults(&d, vendor, settings)
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
		coded, err := codeLines(ctx, ledger, settings, vendor, books, &d)
		if err != nil {
			return module.Plan{}, err
		}
		dimensions, err := headDimensions(k, &d, vendor, books)
		if err != nil {
			return module.Plan{}, err
		}
		matchTags, found, err := findPossibleDuplicates(ctx, s, k, &d, currency, settings.DuplicateWindowDays)
		if err != nil {
			return module.Plan{}, err
		}
		findings := append(found, coded.findings...)
		findings = append(findings, domain.TaxFindings(&d, currency, settings.TaxTolerance,
			func(group string) bool { return books.TaxGroups[group].ReverseCharge })...)
		findings = append(findings, domain.PayeeFindings(&d)...)

		plan = module.Plan{
			Streams: []concurrency.StreamExpectation{{Stream: k.Stream(d.ID()), Expected: concurrency.NoStream()}},
			Rules:   append([]event.RuleEvaluation{coded.rule}, findingRule(findings)),
			Facts:   factsOf(in),
		}
		plan.Events = submissionEvents(k, &d, date, dimensions, period.Tags, findings, coded.warnings)
		plan.Events[0].Tags = append(slices.Clone(plan.Events[0].Tags), matchTags...)
		return plan, nil
	})
}

// applyDefaults fills in the due date from the vendor's terms, else from the default
// terms. It drops the name of a natural person, which submissions cannot seal.
func applyDefaults(d *contract.Document, vendor *domain.Vendor, settings *domain.Settings) {
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

// submissionEvents drafts the submitted event and the events for its findings. Only the
// submitted event carries the period's tags: a finding has no financial effect.
func submissionEvents(k contract.Kind, d *contract.Document, date event.Date, dimensions map[string]string, tags []string, findings []domain.Finding, warnings []contract.Warning) []event.Draft {
	doc := &domain.Document{Kind: k, Data: *d}
	submitted := draft(k, doc, contract.Submitted, *d, date, tags)
	submitted.Dimensions = dimensions
	events := []event.Draft{submitted}
	if len(findings) == 0 {
		validated := draft(k, doc, contract.Validated, contract.DocumentValidated{
			DocumentRef: contract.RefTo(k, d.ID()), Match: "off", Warnings: warnings,
		}, date, nil)
		validated.CausedByIndex = 1
		return append(events, validated)
	}
	for i, f := range findings {
		held := draft(k, doc, contract.Held, contract.DocumentHeld{
			DocumentRef: contract.RefTo(k, d.ID()), HoldID: holdID(d.ID(), i+1), Kind: f.Kind, Reason: f.Reason, Blocks: f.Blocks, Finding: f.Detail,
		}, date, nil)
		held.CausedByIndex = 1
		events = append(events, held)
	}
	return events
}

// holdID is the id of a document's n-th hold. It begins with the document's id, so that
// findHold can load the document from the hold's id alone.
func holdID(documentID string, n int) string { return fmt.Sprintf("%s-H%d", documentID, n) }

func findingRule(findings []domain.Finding) event.RuleEvaluation {
	r := event.RuleEvaluation{RuleID: "ap.submit.findings", RuleName: "Findings that hold a document", Result: event.RuleConditionFalse}
	for _, f := range findings {
		r.Result = event.RuleFired
		r.ActionsTaken = append(r.ActionsTaken, "hold:"+f.Kind)
	}
	return r
}

// findPossibleDuplicates searches earlier submissions by tag for documents that may be
// the same one: a similar number, or the same total within windowDays. It returns the
// tags of d and at most one finding, which names the first such document. A document with
// the same number is no finding but a fault: d is refused.
//
// The search becomes an append condition. When two documents with the same tag race, the
// append of the second fails, and its next planning finds the first. The business key
// "number" refuses the same number on every path, raw appends included.
func findPossibleDuplicates(ctx context.Context, s module.State, k contract.Kind, d *contract.Document, c money.Currency, windowDays int) (own []string, found []domain.Finding, err error) {
	rules := map[string]string{}
	var wanted []string
	if tag, ok := domain.NumberTag(k, d.VendorID, d.InvoiceNumber); ok {
		rules[tag], own = domain.RuleSameNumber, append(own, tag)
	}
	own = append(own, domain.TotalTag(k, d.VendorID, c, d.TotalAmount, d.InvoiceDate))
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
		if seen[e.Stream.ID] || e.Type != k.Event(contract.Submitted) {
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
		if earlier.State == domain.StateRejected {
			continue // a rejected document is no duplicate
		}
		if suspect.DocumentID == "" {
			suspect.DocumentID = e.Stream.ID
		}
		for _, tag := range e.Tags {
			if rule, ok := rules[tag]; ok && !slices.Contains(suspect.Rules, rule) {
				suspect.Rules = append(suspect.Rules, rule)
			}
		}
	}
	if suspect.DocumentID != "" {
		slices.Sort(suspect.Rules)
		found = append(found, domain.Finding{
			Kind: contract.HoldDuplicateSuspect, Blocks: contract.BlocksApproval,
			Reason: "an earlier document of this vendor looks like the same paper", Detail: suspect,
		})
	}
	return own, found, nil
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

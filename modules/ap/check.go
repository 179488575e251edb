package ap

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// checker checks bodies of documents of a vendor: what is wrong in itself is refused, what a
// person has to look at is a finding.
type checker struct {
	kind     contract.Kind
	state    module.State
	settings *domain.Settings
	vendor   *domain.Vendor
	ledger   *gl.Ledger
	books    gl.Settings
}

func newChecker(ctx context.Context, s module.State, k contract.Kind, vendorID string) (*checker, error) {
	c := &checker{kind: k, state: s, ledger: gl.NewLedger(s)}
	var err error
	if c.settings, err = loadSettings(ctx, s); err != nil {
		return nil, err
	}
	if c.vendor, err = loadVendor(ctx, s, vendorID); err != nil {
		return nil, err
	}
	c.books, err = c.ledger.Settings(ctx)
	return c, err
}

// checkedBody is a body that may be stored, with what was found about it.
type checkedBody struct {
	kind       contract.Kind
	body       contract.Document // with defaults and coding
	dimensions map[string]string // of the document as a whole
	period     gl.Period
	matchTags  []string
	findings   []domain.Finding
	warnings   []contract.Warning
	coding     event.RuleEvaluation
	match      *orderMatch
}

// check fills in defaults and coding of a body, refuses what is wrong in itself and finds what
// holds the document.
func (c *checker) check(ctx context.Context, d *contract.Document, date event.Date) (*checkedBody, error) {
	if err := c.vendor.CheckNotBlocked(contract.BlockAll); err != nil {
		return nil, err
	}
	applyDefaults(d, c.vendor, c.settings)
	if err := domain.CheckDocument(c.kind, d); err != nil {
		return nil, err
	}
	currency, err := money.LookupCurrency(d.Currency, d.InvoiceDate.Time())
	if err != nil {
		return nil, err
	}
	// First of all, so that a paper that comes again is recognised whatever has changed since.
	tags, found, err := findPossibleDuplicates(ctx, c.state, c.kind, d, c.vendor, currency, c.settings.DuplicateWindowDays)
	if err != nil {
		return nil, err
	}
	if err := checkPapers(ctx, c.state, c.kind, d); err != nil {
		return nil, err
	}
	if err := checkWithholding(d, c.settings); err != nil {
		return nil, err
	}
	period, err := c.ledger.CheckPeriod(ctx, contract.ModuleName, date)
	if err != nil {
		return nil, err
	}
	settings := c.settings.Match
	if settings.OrderRequired, err = c.orderRequired(ctx, d, date); err != nil {
		return nil, err
	}
	match, err := matchOrder(ctx, c.state, settings, c.kind, d, currency)
	if err != nil {
		return nil, err
	}
	coded, err := codeLines(ctx, c.ledger, c.settings, c.vendor, c.books, match.vendorOrder(d), d)
	if err != nil {
		return nil, err
	}
	dimensions, err := headDimensions(c.kind, d, c.vendor, c.books)
	if err != nil {
		return nil, err
	}
	invalid, err := codingFindings(ctx, c.ledger, d, dimensions, date)
	if err != nil {
		return nil, err
	}
	findings := slices.Concat(found, coded.findings, invalid, match.result.Findings)
	findings = append(findings, domain.TaxFindings(d, currency, c.settings.TaxTolerance, func(group string) (bool, bool) {
		g, configured := c.books.TaxGroups[group]
		return g.ReverseCharge, configured
	})...)
	findings = append(findings, domain.WithholdingFindings(d, currency, c.settings)...)
	findings = append(findings, domain.PayeeFindings(d)...)
	findings = append(findings, domain.PartyFindings(d, c.vendor)...)
	if c.settings.HoldWarnings {
		findings = append(findings, domain.WarningFindings(d)...)
	}
	return &checkedBody{
		kind: c.kind, body: *d, dimensions: dimensions, period: period, matchTags: tags,
		findings: findings, warnings: coded.warnings, coding: coded.rule, match: match,
	}, nil
}

// orderRequired reports whether a document that names no purchase order is held for it. Only
// invoices of goods and services are: credit memos give back, and what a prepayment is for is on the
// invoice that uses it. The vendor's exception comes before the settings. A total that has no
// exchange rate on the date counts as above the limit.
func (c *checker) orderRequired(ctx context.Context, d *contract.Document, date event.Date) (bool, error) {
	m := c.settings.Match
	if m.Policy == contract.MatchOff || c.kind != contract.Invoice || !isStandard(d) || domain.NamesOrder(d) {
		return false, nil
	}
	switch c.vendor.OrderRequired {
	case contract.OrderRequiredAlways:
		return true, nil
	case contract.OrderRequiredNever:
		return false, nil
	}
	if !m.OrderRequired || m.OrderRequiredAbove.IsZero() {
		return m.OrderRequired, nil
	}
	total, _, _, err := c.ledger.FunctionalAmount(ctx, d.TotalAmount, d.Currency, date)
	if strings.HasPrefix(fault.CodeOf(err), "gl.rate.") {
		return true, nil
	}
	return err == nil && total.Cmp(m.OrderRequiredAbove) > 0, err
}

func (b *checkedBody) rules() []event.RuleEvaluation {
	return []event.RuleEvaluation{b.coding, findingRule(b.findings)}
}

// bodyEvent drafts the event that has the body. Only this event carries the period's tags: a
// finding has no financial effect.
func (b *checkedBody) bodyEvent(action string, data any, date event.Date) event.Draft {
	e := draft(b.kind, &domain.Document{Kind: b.kind, Data: b.body}, action, data, date, b.period.Tags)
	e.Dimensions = b.dimensions
	e.Tags = append(e.Tags, b.matchTags...)
	return e
}

// outcome drafts what the check says, caused by the first event of the plan: what the document
// bills of its purchase order, a hold for each finding that has none, a release for each hold whose
// finding is gone, and, if nothing was found, that the document is valid. It leaves holds alone
// that a person placed.
func (b *checkedBody) outcome(holds []domain.Hold, date event.Date) []event.Draft {
	doc := &domain.Document{Kind: b.kind, Data: b.body, Holds: holds}
	out := b.match.billingDrafts(date)
	out = append(out, holdChanges(doc, b.findings, func(kind string) bool { return !contract.PlacedByPerson(kind) }, date)...)
	if len(b.findings) == 0 {
		out = append(out, validatedDraft(doc, b.match, b.warnings, date))
	}
	return out
}

// holdChanges drafts a hold for each finding that has none, and a release for each hold whose
// finding is gone, of the kinds of holds that the check decides about. Their cause is the
// first event of the plan.
func holdChanges(doc *domain.Document, findings []domain.Finding, decides func(holdKind string) bool, date event.Date) []event.Draft {
	ref := contract.RefTo(doc.Kind, doc.Data.ID())
	var out []event.Draft
	add := func(action string, data any) {
		e := draft(doc.Kind, doc, action, data, date, nil)
		e.CausedByIndex = 1
		out = append(out, e)
	}
	kept := make([]bool, len(findings))
	for _, h := range doc.Holds {
		if h.Released || !decides(h.Kind) {
			continue
		}
		if i := slices.IndexFunc(findings, func(f domain.Finding) bool { return f.CoveredBy(h) }); i >= 0 {
			kept[i] = true
			continue
		}
		add(contract.HoldReleased, contract.HoldReleasedData{DocumentRef: ref, HoldID: h.ID, Kind: h.Kind, Reason: "the finding is gone", FindingGone: true})
	}
	next := len(doc.Holds) + 1
	for i, f := range findings {
		if kept[i] {
			continue
		}
		add(contract.Held, contract.DocumentHeld{
			DocumentRef: ref, HoldID: holdID(doc.Data.ID(), next), Kind: f.Kind, Reason: f.Reason, Blocks: f.Blocks, Finding: f.Detail,
		})
		next++
	}
	return out
}

// withoutWaived leaves out the findings whose hold a person released since the body is as it is.
func withoutWaived(findings []domain.Finding, holds []domain.Hold) []domain.Finding {
	return slices.DeleteFunc(findings, func(f domain.Finding) bool {
		return slices.ContainsFunc(holds, func(h domain.Hold) bool { return h.Waived && f.CoveredBy(h) })
	})
}

// validatedDraft drafts that a document passed every check.
func validatedDraft(doc *domain.Document, match *orderMatch, warnings []contract.Warning, date event.Date) event.Draft {
	e := draft(doc.Kind, doc, contract.Validated, contract.DocumentValidated{
		DocumentRef: contract.RefTo(doc.Kind, doc.Data.ID()), Match: match.policy, Lines: match.result.Lines, Warnings: warnings,
	}, date, nil)
	e.CausedByIndex = 1
	return e
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

package einvoice

import (
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

// Rule is one rule of EN 16931 or of its bindings. Each can be checked alone, on a whole
// document or on a part of one.
type Rule struct {
	ID        string // "BR-CO-15"
	BT        string // the business term that is wrong when the rule is violated
	Statement string // the rule in one sentence
	Severity  string // SeverityError refuses the document, SeverityWarning does not
	check     check
}

type check func(Rule, *Element) []fault.Violation

// Check returns the violations of this rule in the order of its elements, at most one more than
// MaxFindings.
func (r Rule) Check(root *Element) []fault.Violation { return r.check(r, root) }

// appliesTo reports whether the rule speaks of the document's syntax. The rules of the
// binding to UBL say nothing of CII but where a second value would be ambiguous there too.
func (r Rule) appliesTo(root *Element) bool {
	return root.Origin == nil || !strings.HasPrefix(r.ID, "UBL-") || r.ID == "UBL-SR-12" || r.ID == "UBL-SR-18" || r.ID == "UBL-SR-48"
}

// Rules lists every rule that is checked, in the order of findings.
func Rules() []Rule { return slices.Clone(rules) }

// required makes a rule whose violation refuses the document.
func required(id, bt, statement string, c check) Rule {
	return Rule{ID: id, BT: bt, Statement: statement, Severity: SeverityError, check: c}
}

// advised makes a rule whose violation is reported only.
func advised(id, bt, statement string, c check) Rule {
	return Rule{ID: id, BT: bt, Statement: statement, Severity: SeverityWarning, check: c}
}

var rules = slices.Concat(presenceRules, calculationRules, decimalRules, categoryRules(), splitPaymentRules, codeRules, syntaxRules, peppolRules)

// Elements that several rules use.
const (
	tagTotals     = "cac:LegalMonetaryTotal"
	tagTaxTotal   = "cac:TaxTotal"
	tagSubtotal   = "cac:TaxSubtotal"
	tagCharge     = "cac:AllowanceCharge"
	tagLineNet    = "cbc:LineExtensionAmount"
	tagTaxAmount  = "cbc:TaxAmount"
	tagCurrency   = "cbc:DocumentCurrencyCode"
	tagExclusive  = "cbc:TaxExclusiveAmount"
	tagInclusive  = "cbc:TaxInclusiveAmount"
	tagAllowances = "cbc:AllowanceTotalAmount"
	tagCharges    = "cbc:ChargeTotalAmount"
	tagPrepaid    = "cbc:PrepaidAmount"
	tagRounding   = "cbc:PayableRoundingAmount"
	tagPayable    = "cbc:PayableAmount"
)

// amountDecimals is the number of decimals that UBL-DT-01 allows, whatever the
// currency.
const amountDecimals = 2

// lineTag is the name of a line of this document.
func lineTag(root *Element) string { return "cac:" + root.Name + "Line" }

// typeCodeTag is the name of the type code of this document.
func typeCodeTag(root *Element) string { return "cbc:" + root.Name + "TypeCode" }

// violation makes a violation at an element. Its detail is the rule's statement. Of the
// document's values only amounts are ever added.
func (r Rule) violation(at *Element) fault.Violation {
	return fault.Violation{
		Code: CodeRuleViolated, Rule: r.ID, Severity: r.Severity, BT: r.BT,
		Detail: r.Statement, Element: at.Path(), Line: at.Line,
	}
}

// missing makes the violation for an absent path of tags below an element.
func (r Rule) missing(below *Element, tags ...string) []fault.Violation {
	v := r.violation(below)
	if below.Origin == nil {
		v.Element += "/" + strings.Join(tags, "/")
	}
	v.Detail += " It is missing here."
	return []fault.Violation{v}
}

// compare returns a violation if got differs from expected. tag is the element of the
// amount; below is the element that contains it or should.
func (r Rule) compare(currency string, below *Element, tag string, expected, got money.Number) []fault.Violation {
	if got.Equal(expected) {
		return nil
	}
	return []fault.Violation{r.differing(currency, below, tag, expected, got)}
}

func (r Rule) differing(currency string, below *Element, tag string, expected, got money.Number) fault.Violation {
	var v fault.Violation
	if at := below.Find(tag); at != nil {
		v = r.violation(at)
	} else {
		v = r.violation(below)
		if below.Origin == nil {
			v.Element += "/" + tag
		}
	}
	v.Expected = expected.Fixed(amountDecimals)
	v.Got = got.Fixed(amountDecimals)
	v.Difference = got.Sub(expected).Fixed(amountDecimals)
	if len(currency) == 3 {
		v.Currency = currency
	}
	return v
}

// scope selects the elements that a rule speaks of.
type scope func(root *Element) []*Element

// document selects the document itself.
func document(root *Element) []*Element { return []*Element{root} }

// at selects every element down a path from the root.
func at(tags ...string) scope {
	return func(root *Element) []*Element { return root.All(tags...) }
}

// inLines selects the lines, or every element down a path from a line.
func inLines(tags ...string) scope {
	return func(root *Element) []*Element { return root.All(append([]string{lineTag(root)}, tags...)...) }
}

// anywhere selects every element down a path of tags that begins at any depth.
func anywhere(tags ...string) scope {
	return func(root *Element) []*Element {
		found := root.ByTag(tags[0])
		if len(tags) == 1 {
			return found
		}
		var out []*Element
		for _, e := range found {
			out = append(out, e.All(tags[1:]...)...)
		}
		return out
	}
}

// anywhereOf selects every element with one of the tags, those of the first tag first.
func anywhereOf(tags ...string) scope {
	return func(root *Element) []*Element {
		var out []*Element
		for _, tag := range tags {
			out = append(out, root.ByTag(tag)...)
		}
		return out
	}
}

// where selects those elements of a scope that satisfy a condition.
func (s scope) where(holds func(*Element) bool) scope {
	return func(root *Element) []*Element {
		var out []*Element
		for _, e := range s(root) {
			if holds(e) {
				out = append(out, e)
			}
		}
		return out
	}
}

// below selects every element down a path from an element of a scope.
func (s scope) below(tags ...string) scope {
	return func(root *Element) []*Element {
		var out []*Element
		for _, e := range s(root) {
			out = append(out, e.All(tags...)...)
		}
		return out
	}
}

// each makes the check that every element of a scope satisfies a condition.
func each(s scope, holds func(*Element) bool) check {
	return func(r Rule, root *Element) []fault.Violation {
		var out []fault.Violation
		for _, e := range s(root) {
			if len(out) > MaxFindings {
				break
			}
			if !holds(e) {
				out = append(out, r.violation(e))
			}
		}
		return out
	}
}

// eachHas makes the check that every element of a scope has an element with a value down
// the path of tags.
func eachHas(s scope, tags ...string) check {
	return func(r Rule, root *Element) []fault.Violation {
		var out []fault.Violation
		for _, e := range s(root) {
			if len(out) > MaxFindings {
				break
			}
			if !has(e, tags...) {
				out = append(out, r.missing(e, tags...)...)
			}
		}
		return out
	}
}

// atMost makes the check that each element of a scope has at most limit elements down the
// path of tags. The violation names the first that is too many.
func atMost(limit int, s scope, tags ...string) check {
	return func(r Rule, root *Element) []fault.Violation {
		var out []fault.Violation
		for _, e := range s(root) {
			if found := e.All(tags...); len(found) > limit && len(out) <= MaxFindings {
				out = append(out, r.violation(found[limit]))
			}
		}
		return out
	}
}

// has reports whether an element with a value is down the path of tags. A group has a value
// by being there. Other than Value, has takes a placeholder for a value, as the published
// rules do.
func has(e *Element, tags ...string) bool {
	for _, found := range e.All(tags...) {
		if found.Space == NamespaceAggregate || found.Text != "" {
			return true
		}
	}
	return false
}

// either reports whether at least one of two elements has a value.
func either(first, second string) func(*Element) bool {
	return func(e *Element) bool { return has(e, first) || has(e, second) }
}

// isVAT reports whether a tax category or tax registration belongs to VAT.
func isVAT(e *Element) bool { return strings.EqualFold(e.Value("cac:TaxScheme", "cbc:ID"), "VAT") }

// isAllowance and isCharge distinguish allowances from charges. One without a readable
// indicator is neither; mapping refuses it.
func isAllowance(e *Element) bool {
	charge, ok := parseIndicator(e.Value("cbc:ChargeIndicator"))
	return ok && !charge
}

func isCharge(e *Element) bool {
	charge, ok := parseIndicator(e.Value("cbc:ChargeIndicator"))
	return ok && charge
}

// present makes the check that an element exists and is neither empty nor a placeholder.
func present(tags ...string) check {
	return func(r Rule, root *Element) []fault.Violation {
		if root.Value(tags...) != "" {
			return nil
		}
		return r.missing(root, tags...)
	}
}

func presentTypeCode(r Rule, root *Element) []fault.Violation {
	return present(typeCodeTag(root))(r, root)
}

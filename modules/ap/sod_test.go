package ap_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/moduletest"
)

// dutiesFixture takes the steps of testdata/sod.txt. Who takes those that a row does not name is in
// persons; none of them is in the table.
type dutiesFixture struct {
	*books
	kind    string // of documents
	n       int
	persons map[string]string
	taken   map[string]event.ID // the first event of each step
}

func newDutiesFixture(t *testing.T, kind string, secondPerson bool) *dutiesFixture {
	t.Helper()
	b := newPayingBooks(t)
	b.execute("controller", "gl.close_period", object{"module": "ap", "period": "2025-02", "level": "soft"})
	b.execute("admin", "ap.configure", object{"second_person": secondPerson})
	return &dutiesFixture{books: b, kind: kind}
}

// do takes a step that takes effect at once.
func (b *dutiesFixture) do(step, role, intentType string, payload object) recorded {
	b.tb.Helper()
	out, err := b.submitAs(moduletest.Acting("t", b.persons[step], role), intentType, payload)
	require.NoError(b.tb, err)
	require.Equal(b.tb, intent.Executed, out.Status)
	b.taken[step] = out.Events[0].ID
	return b.events(out)[0]
}

// wait takes a step that waits for another person.
func (b *dutiesFixture) wait(step, role, intentType string, payload object) *attempt {
	b.tb.Helper()
	out, err := b.submitAs(moduletest.Acting("t", b.persons[step], role), intentType, payload)
	require.NoError(b.tb, err)
	require.Equal(b.tb, intent.PendingApproval, out.Status)
	return &attempt{decides: &out}
}

// attempt is the second step of a row: an intent, or the approval of one that waits.
type attempt struct {
	intentType string
	payload    object
	decides    *pipeline.Outcome
}

// prepare takes the steps of a row up to the second one.
func (b *dutiesFixture) prepare(d *moduletest.Duty) *attempt {
	b.tb.Helper()
	b.n++
	b.taken = map[string]event.ID{}
	b.persons = map[string]string{
		"draft": "human:dora", "submit": "human:sam", "correct": "human:cora", "approve": "human:alba", "request-account": "human:rita",
		"approve-account": "human:vera", "propose": "human:petra", "approve-run": "human:carla", "execute": "human:tom",
	}
	b.persons[d.First] = d.FirstBy
	switch {
	case d.First == "configure":
		return b.wait("configure", "admin", "ap.configure", object{"duplicate_window_days": b.n % 30})
	case strings.HasSuffix(d.Second, "-account"):
		request := b.requestAccount()
		text := map[string]string{"approve-account": "verification", "reject-account": "reason"}[d.Second]
		return &attempt{intentType: "ap." + strings.TrimSuffix(d.Second, "-account") + "_bank_change", payload: object{"request_id": request, text: "called back"}}
	case d.Rule == "S3" || d.Rule == "S4" || d.Rule == "S5" || d.First == "void-payment":
		return b.prepareRun(d)
	default:
		return b.prepareDocument(d)
	}
}

// requestAccount requests a bank account for a vendor of its own.
func (b *dutiesFixture) requestAccount() (request any) {
	b.tb.Helper()
	b.vendor(fmt.Sprint("P", b.n), nil)
	return b.do("request-account", "vendor_admin", "ap.request_bank_change", bankRequest(fmt.Sprint("P", b.n), nil)).data["request_id"]
}

// submitDocument drafts, submits and corrects a document as far as the row names these steps.
func (b *dutiesFixture) submitDocument(vendor, amount, date string, more object) (id string) {
	b.tb.Helper()
	field, p := b.kind+"_id", documentPayload(vendor, fmt.Sprintf("N%dX", b.n), amount, object{"invoice_date": date})
	for k, v := range more {
		p[k] = v
	}
	if b.persons["draft"] != "human:dora" {
		p[field] = b.do("draft", "ap_clerk", "ap.draft_"+b.kind, object{"description": "a draft"}).Stream.ID
	}
	id = b.do("submit", "ap_clerk", "ap.submit_"+b.kind, p).Stream.ID
	if b.persons["correct"] != "human:cora" {
		delete(p, "vendor_id")
		delete(p, "invoice_number")
		p[field], p["reason"] = id, "typed wrong"
		b.do("correct", "ap_clerk", "ap.correct_"+b.kind, p)
	}
	return id
}

func (b *dutiesFixture) prepareDocument(d *moduletest.Duty) *attempt {
	b.tb.Helper()
	amount, date, more := fmt.Sprintf("100.%02d", b.n%100), fmt.Sprintf("2025-03-%02d", 1+b.n/100), object{}
	switch {
	case d.Second == "approve-again":
		amount = fmt.Sprintf("300000.%02d", b.n%100) // takes two approvals
	case d.Second == "release":
		more["payee_differs"] = true
	case d.First == "post-late":
		date = "2025-02-" + date[8:]
	}
	id := b.submitDocument("V1", amount, date, more)
	document := object{b.kind + "_id": id}
	approve := &attempt{intentType: "ap.approve_" + b.kind, payload: document}
	switch {
	case d.First == "post-late":
		b.persons["approve"] = d.FirstBy
		return b.wait("approve", "approver", approve.intentType, document)
	case d.Second == "approve-again":
		b.do("approve", "controller", approve.intentType, document)
	case d.Second == "release":
		return &attempt{intentType: "ap.release_hold", payload: object{"hold_id": id + "-H1", "reason": "checked"}}
	case d.First == "void":
		b.do("approve", "approver", approve.intentType, document)
		return b.wait("void", "controller", "ap.void_"+b.kind, object{b.kind + "_id": id, "reason": "never delivered"})
	}
	return approve
}

func (b *dutiesFixture) prepareRun(d *moduletest.Duty) *attempt {
	b.tb.Helper()
	request := b.requestAccount()
	b.do("approve-account", "vendor_admin", "ap.approve_bank_change", object{"request_id": request, "verification": "called back"})
	id := b.submitDocument(fmt.Sprint("P", b.n), "100", "2025-03-15", nil)
	b.do("approve", "controller", "ap.approve_invoice", object{"invoice_id": id})
	run := b.do("propose", "ap_clerk", "ap.propose_payment_run", object{"bank_account": "MAIN", "pay_date": "2025-03-20", "documents": []object{{"invoice_id": id}}}).Stream.ID
	switch d.Second {
	case "approve-run":
		return &attempt{intentType: "ap.approve_payment_run", payload: object{"run_id": run}}
	case "reject-run":
		return &attempt{intentType: "ap.reject_payment_run", payload: object{"run_id": run, "reason": "not now"}}
	}
	b.do("approve-run", "controller", "ap.approve_payment_run", object{"run_id": run})
	switch d.Second {
	case "export":
		return &attempt{intentType: "ap.export_payment_run", payload: object{"run_id": run}}
	case "execute":
		return &attempt{intentType: "ap.execute_payment", payload: execution(run+"-P1", nil)}
	}
	b.do("execute", "treasurer", "ap.execute_payment", execution(run+"-P1", nil))
	return b.wait("void-payment", "treasurer", "ap.void_payment", object{"payment_id": run + "-P1", "reason": "returned"})
}

// try tries the second step of a row in a role and compares what comes of it with the table. It reports
// whether the step was taken.
func (b *dutiesFixture) try(d *moduletest.Duty, a *attempt, role string) bool {
	b.tb.Helper()
	cell := fmt.Sprintf("%s by %s, %s by %s as %s", d.First, d.FirstBy, d.Second, d.SecondBy, role)
	by, before := moduletest.Acting("t", d.SecondBy, role), b.head()
	var err error
	if a.decides != nil {
		_, err = b.decide(by, *a.decides)
	} else {
		_, err = b.submitAs(by, a.intentType, a.payload)
	}
	want, rule := d.Outcomes[role], ""
	switch want {
	case "ok":
		require.NoError(b.tb, err, cell)
		return true
	case "-":
		want = "intent.forbidden"
	case "person":
		want = "intent.approval_needs_person"
	case "limit":
		want = "ap.approval.over_limit"
	default:
		want, rule = "sod.same_person", want
	}
	require.Equal(b.tb, want, fault.CodeOf(err), "%s: %v", cell, err)
	f, _ := fault.As(err)
	require.Equal(b.tb, fault.Forbidden, f.Kind, cell)
	if rule != "" {
		require.Equal(b.tb, rule, f.Attributes["rule"], cell)
	}
	if a.decides != nil {
		b.requireOnly(before, intent.DecisionRefused)
		return false
	}
	b.requireOnly(before, intent.Refused)
	if rule != "" {
		require.Equal(b.tb, b.taken[d.First].String(), f.Attributes["earlier_event"], cell)
	}
	stored, _, err := b.pipeline.Get(b.tb.Context(), b.entity, ulid.MustParse(f.IntentID))
	require.NoError(b.tb, err)
	require.Equal(b.tb, []string{want, rule}, []string{stored.Refusal.Code, stored.Refusal.Rule}, cell)
	return false
}

// TestSegregationOfDuties goes through testdata/sod.txt: each rule from S1 to S6 and S8, each role, by
// persons, by agents and services for persons, and by services. The report counts every refusal.
func TestSegregationOfDuties(t *testing.T) {
	t.Parallel()
	newBooks(t) // builds the catalog
	pairs := map[[2]string][]moduletest.Duty{}
	for _, d := range moduletest.ReadDuties(t, catalog.RoleNames()) {
		pairs[[2]string{d.First, d.Second}] = append(pairs[[2]string{d.First, d.Second}], d)
	}
	for pair, duties := range pairs {
		for _, kind := range []string{"invoice", "credit_memo"} {
			ofRun := slices.Contains([]string{"S3", "S4", "S5"}, duties[0].Rule) || pair[0] == "configure" || pair[0] == "void-payment"
			if ofRun && kind == "credit_memo" {
				continue // payments pay invoices
			}
			t.Run(fmt.Sprintf("%s %s and %s", kind, pair[0], pair[1]), func(t *testing.T) {
				t.Parallel()
				b := newDutiesFixture(t, kind, duties[0].Rule == "S8")
				refused := map[string]int{}
				for i := range duties {
					d := &duties[i]
					var a *attempt
					for role, outcome := range d.Outcomes {
						if a == nil {
							a = b.prepare(d)
						}
						if b.try(d, a, role) {
							a = nil
						} else {
							refused[outcome]++
						}
					}
				}
				b.requireReported(refused)
			})
		}
	}
}

// requireReported checks that the report of refused attempts has each refusal of the table, by rule.
func (b *dutiesFixture) requireReported(refused map[string]int) {
	b.tb.Helper()
	report, err := b.pipeline.Segregation(b.tb.Context(), pipeline.SegregationRequest{LegalEntities: []ports.LegalEntity{b.entity}})
	require.NoError(b.tb, err)
	reported := map[string]int{}
	for _, r := range report.Refusals {
		switch r.Code {
		case "intent.forbidden":
			reported["-"] += r.Times
		case "intent.approval_needs_person":
			reported["person"] += r.Times
		case "ap.approval.over_limit":
			reported["limit"] += r.Times
		default:
			reported[r.Rule] += r.Times
		}
	}
	require.Equal(b.tb, refused, reported)
}

// TestApprove_OnePersonAtOnce lets one person approve at the same time what takes two persons, directly and
// through agents: one approval is recorded, the document is not posted.
func TestApprove_OnePersonAtOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"invoice", "credit_memo"} {
		b := newBooks(t)
		b.vendor("V1", nil)
		id := b.execute("ap_clerk", "ap.submit_"+kind, documentPayload("V1", "TWO", "300000", nil)).Events[0].Stream.ID
		errs := make([]error, 18)
		var wg sync.WaitGroup
		for i := range errs {
			by := []string{"human:bob", "agent:bot>bob", "agent:helper>bob"}[i%3]
			role := []string{"controller", "cfo"}[i%2]
			wg.Go(func() {
				_, errs[i] = b.submitAs(moduletest.Acting("t", by, role), "ap.approve_"+kind, object{kind + "_id": id})
			})
		}
		wg.Wait()
		recorded := 0
		for _, err := range errs {
			if err == nil {
				recorded++
				continue
			}
			f, _ := fault.As(err)
			require.Equal(t, "sod.same_person", fault.CodeOf(err), "%v", err)
			require.Equal(t, "S2", f.Attributes["rule"])
		}
		require.Equal(t, 1, recorded)
		d := b.document(contract.Kind(kind), id)
		require.Len(t, d.Approvers, 1)
		require.Equal(t, domain.StateValidated, d.State)
	}
}

// TestRoles checks that every intent refuses all roles except those that it is for.
func TestRoles(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	roles := []string{"ap_clerk", "approver", "vendor_admin", "treasurer", "gl_accountant", "controller", "cfo", "admin", "auditor", "module", "importer", "compliance", "operator"}
	allowed := map[string]string{
		"ap.register_vendor":       "vendor_admin ap_clerk module importer",
		"ap.submit_invoice":        "ap_clerk module importer",
		"ap.submit_credit_memo":    "ap_clerk module importer",
		"ap.approve_invoice":       "approver controller cfo",
		"ap.approve_credit_memo":   "approver controller cfo",
		"ap.reject_invoice":        "approver controller",
		"ap.reject_credit_memo":    "approver controller",
		"ap.release_hold":          "approver controller",
		"ap.set_vendor_contact":    "vendor_admin ap_clerk",
		"ap.remove_vendor_contact": "vendor_admin ap_clerk",
		"ap.propose_payment_run":   "ap_clerk treasurer",
		"ap.exclude_payment":       "ap_clerk treasurer",
		"ap.approve_payment_run":   "controller cfo",
		"ap.reject_payment_run":    "controller cfo",
		"ap.export_payment_run":    "treasurer",
		"ap.execute_payment":       "treasurer module",
		"ap.fail_payment":          "treasurer module",
		"ap.void_payment":          "treasurer",
		"ap.import_payment_status": "treasurer",
		"ap.discard_draft":         "ap_clerk module",
		"ap.apply_credit":          "ap_clerk",
		"ap.unapply_credit":        "ap_clerk",
		"ap.apply_prepayment":      "ap_clerk",
		"ap.unapply_prepayment":    "ap_clerk",
		"ap.configure":             "admin",
		"ap.request_bank_change":   "vendor_admin ap_clerk",
		"ap.approve_bank_change":   "vendor_admin controller",
		"ap.reject_bank_change":    "vendor_admin controller",
		"ap.record_purchase_order": "ap_clerk module",
		"ap.record_goods_receipt":  "ap_clerk module",
		"ap.change_vendor":         "vendor_admin",
		"ap.block_vendor":          "vendor_admin controller",
		"ap.unblock_vendor":        "vendor_admin controller",
	}
	for _, kind := range []string{"invoice", "credit_memo"} {
		for verb, may := range map[string]string{
			"draft": "ap_clerk module", "validate": "ap_clerk module", "correct": "ap_clerk", "reinstate": "ap_clerk",
			"hold": "ap_clerk approver controller treasurer", "void": "controller",
		} {
			allowed["ap."+verb+"_"+kind] = may
		}
	}
	for _, i := range catalog.IntentTypes() {
		if strings.HasPrefix(i.Type, "ap.") {
			require.Contains(t, allowed, i.Type, "who may submit it")
		}
	}
	for intentType, may := range allowed {
		for _, role := range roles {
			_, err := b.submit(role, intentType, object{})
			forbidden := fault.CodeOf(err) == "intent.forbidden"
			require.Equal(t, strings.Contains(" "+may+" ", " "+role+" "), !forbidden, "%s as %s", intentType, role)
		}
	}
}

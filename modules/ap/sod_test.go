package ap_test

import (
	"encoding/csv"
	"os"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// actor reads "<type>:<person>[>on behalf of]".
func actor(text, role string) pipeline.Caller {
	kind, rest, _ := strings.Cut(text, ":")
	id, principal, delegated := strings.Cut(rest, ">")
	a := event.Actor{Type: event.ActorType(kind), ID: id, Name: role}
	if delegated {
		a.Details.OnBehalfOf = &event.Delegate{Type: "human", ID: principal}
	}
	return pipeline.Caller{Principal: ports.Principal{TenantID: "t", PersonID: id, PrincipalID: id, ActorType: a.Type, Roles: []string{role}}, Actor: a}
}

// TestSegregationOfDuties goes through the table in testdata, for both kinds of
// documents.
func TestSegregationOfDuties(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/sod.csv")
	require.NoError(t, err)
	defer file.Close()
	reader := csv.NewReader(file)
	reader.Comment = '#'
	rows, err := reader.ReadAll()
	require.NoError(t, err)
	require.Greater(t, len(rows), 20)
	for _, kind := range []string{"invoice", "credit_memo"} {
		for _, row := range rows[1:] {
			if row[0] == "S5" {
				continue // of bank accounts, see TestSegregationOfDuties_BankAccount
			}
			first, firstActor, second, secondActor, role, outcome := row[1], row[2], row[3], row[4], row[5], row[6]
			t.Run(kind+"/"+strings.Join(row[1:6], " "), func(t *testing.T) {
				t.Parallel()
				b := newBooks(t)
				b.vendor("V1", nil)
				submitter, amount := firstActor, "100"
				if first == "approve" {
					submitter, amount = "human:ann", "300000"
				}
				more := object{}
				if second == "release" {
					more["payee_differs"] = true
				}
				submitted, err := b.submitAs(actor(submitter, "ap_clerk"), "ap.submit_"+kind, documentPayload("V1", "A", amount, more))
				require.NoError(t, err)
				id := object{kind + "_id": submitted.Events[0].Stream.ID}
				earlier := submitted.Events[0].ID
				if first == "approve" {
					recorded, err := b.submitAs(actor(firstActor, "controller"), "ap.approve_"+kind, id)
					require.NoError(t, err)
					if outcome == "S2" {
						earlier = recorded.Events[0].ID
					}
				}
				intentType := "ap.approve_" + kind
				if second == "release" {
					intentType = "ap.release_hold"
					id["hold_id"], id["reason"] = submitted.Events[0].Stream.ID+"-H1", "checked"
				}
				before := b.head()
				_, err = b.submitAs(actor(secondActor, role), intentType, id)
				switch outcome {
				case "ok":
					require.NoError(t, err)
				case "S1", "S2", "S6":
					f := b.requireRefusal("sod.same_person", before, err)
					require.Equal(t, fault.Forbidden, f.Kind)
					require.Equal(t, outcome, f.Attributes["rule"])
					require.Equal(t, earlier.String(), f.Attributes["earlier_event"])
					b.requireStoredRule(outcome, "sod.same_person", f.IntentID, actor(secondActor, role))
				default:
					f := b.requireRefusal(outcome, before, err)
					b.requireStoredRule("", outcome, f.IntentID, actor(secondActor, role))
				}
			})
		}
	}
}

// requireStoredRule checks the rule of segregation that a refused submission keeps in the intent, and
// that the report counts it under that rule. It is "" for other refusals.
func (b *books) requireStoredRule(rule, code, intentID string, c pipeline.Caller) {
	b.tb.Helper()
	stored, _, err := b.pipeline.Get(b.tb.Context(), b.entity, ulid.MustParse(intentID))
	require.NoError(b.tb, err)
	require.Equal(b.tb, code, stored.Refusal.Code)
	require.Equal(b.tb, rule, stored.Refusal.Rule)
	report, err := b.pipeline.Segregation(b.tb.Context(), pipeline.SegregationRequest{LegalEntities: []ports.LegalEntity{b.entity}})
	require.NoError(b.tb, err)
	require.Len(b.tb, report.Refusals, 1)
	row := report.Refusals[0]
	require.Equal(b.tb, []any{c.Actor.ID, "submit", code, rule, 1, intentID}, []any{row.ActorID, row.Attempt, row.Code, row.Rule, row.Times, row.LastIntent.String()})
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

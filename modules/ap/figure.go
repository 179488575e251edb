package ap

import (
	"encoding/json"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
)

// registerFigures declares the figures that lead to documents and payments: the open amount of a
// document, the balance of a vendor, a payment, a payment run, and what the tax summary has of a tax
// group.
func registerFigures(r *module.Registrar) {
	r.Figure(module.Figure{
		Name: "document", Description: "open amount of an invoice or credit memo, by its id", ReadModel: module.ReadModelPath(contract.ModuleName, ReadModelDocument), Param: "id",
		EventTypes: documentEventTypes(), Values: func(e event.Recorded, _ json.RawMessage) []string { return []string{e.Stream.ID} },
	})
	r.Figure(module.Figure{
		Name: "vendor", Description: "balance of a vendor, by its id", ReadModel: module.ReadModelPath(contract.ModuleName, ReadModelStatement), Param: "vendor",
		EventTypes: documentEventTypes(), Values: func(e event.Recorded, data json.RawMessage) []string {
			var d struct {
				VendorID string `json:"vendor_id"`
			}
			if json.Unmarshal(data, &d) != nil {
				return nil
			}
			return []string{d.VendorID}
		},
	})
	history := module.ReadModelPath(contract.ModuleName, ReadModelPaymentHistory)
	r.Figure(module.Figure{
		Name: "payment", Description: "a payment, by its id", ReadModel: history, Param: "payment",
		EventTypes: paymentEventTypes(), Values: func(_ event.Recorded, data json.RawMessage) []string { return paymentsOf(data) },
	})
	r.Figure(module.Figure{
		Name: "payment_run", Description: "a payment run, by its id", ReadModel: history, Param: "run",
		EventTypes: paymentEventTypes(), Values: func(e event.Recorded, data json.RawMessage) []string {
			if e.Stream.Type == contract.StreamPaymentRun {
				return []string{e.Stream.ID}
			}
			var runs []string
			for _, payment := range paymentsOf(data) {
				runs = append(runs, contract.RunOfPayment(payment))
			}
			return runs
		},
	})
	r.Figure(module.Figure{
		Name: "tax", Description: "what the tax summary has of a tax group, by its code", ReadModel: module.ReadModelPath(contract.ModuleName, ReadModelTaxLines), Param: "tax_group",
		EventTypes: []string{gl.EventJournalPosted}, Values: taxGroupsOf,
	})
}

// paymentEventTypes are the events behind a payment.
func paymentEventTypes() []string {
	types := []string{
		contract.EventRunProposed, contract.EventPaymentExcluded, contract.EventRunApproved, contract.EventRunRejected, contract.EventRunExported,
		contract.EventPaymentExecuted, contract.EventPaymentFailed, contract.EventPaymentVoided, contract.EventPaymentStatus,
	}
	for _, k := range contract.Kinds() {
		types = append(types, k.Event(contract.Paid), k.Event(contract.PartiallyPaid), k.Event(contract.PaymentReversed))
	}
	return types
}

// paymentsOf are the payments that an event's data name.
func paymentsOf(data json.RawMessage) []string {
	var d struct {
		PaymentID string `json:"payment_id"`
		Payments  []struct {
			PaymentID string `json:"payment_id"`
		} `json:"payments"`
	}
	_ = json.Unmarshal(data, &d) // of an approval, payments is a number: then it names none
	out := []string{d.PaymentID}
	for _, p := range d.Payments {
		out = append(out, p.PaymentID)
	}
	return out
}

// taxGroupsOf are the tax groups of a journal of the module.
func taxGroupsOf(_ event.Recorded, data json.RawMessage) []string {
	var j struct {
		SourceModule string `json:"source_module"`
		Lines        []struct {
			TaxCode     string `json:"tax_code"`
			Description string `json:"description"`
		} `json:"lines"`
	}
	if json.Unmarshal(data, &j) != nil || j.SourceModule != contract.ModuleName {
		return nil
	}
	var groups []string
	for _, l := range j.Lines {
		if !strings.HasPrefix(l.Description, contract.TextWithholding) { // whose code is no tax group
			groups = append(groups, l.TaxCode)
		}
	}
	return groups
}

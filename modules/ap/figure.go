package ap

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// registerFigures declares the figures that lead to documents: the open amount of a document,
// the balance of a vendor.
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
}

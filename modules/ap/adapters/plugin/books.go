package plugin

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/configs/demo"
)

// settings of payables in the demonstration. Every legal entity is the buyer whom the sample
// documents name, so that each can import them.
const settings = `{"default_terms":{"net_days":30},"second_person":false,
"buyer":{"vat_ids":["DE999000197"],"registration_ids":["HRB 99199"],"names":["Demo Manufacturing GmbH","Demo Manufacturing Inc."]}}`

// books makes the demonstration's intents for payables: settings, and open periods. The general
// ledger opens its periods first.
func books(demo.Entity) ([]demo.Stage, error) {
	lanes := []demo.Lane{{{As: "admin", Type: "ap.configure", Payload: json.RawMessage(settings)}}}
	for _, period := range demo.Periods() {
		payload, err := json.Marshal(map[string]string{"module": "ap", "period": period})
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, demo.Lane{{As: "controller", Type: "gl.open_period", Payload: payload}})
	}
	return []demo.Stage{{Title: "payables", Lanes: lanes}}, nil
}

package plugin

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/configs/demo"
)

// books makes the demonstration's intents for payables: default terms of payment, and open
// periods. The general ledger opens its periods first.
func books(demo.Entity) ([]demo.Stage, error) {
	lanes := []demo.Lane{{{As: "admin", Type: "ap.configure", Payload: json.RawMessage(`{"default_terms":{"net_days":30},"second_person":false}`)}}}
	for _, period := range demo.Periods() {
		payload, err := json.Marshal(map[string]string{"module": "ap", "period": period})
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, demo.Lane{{As: "controller", Type: "gl.open_period", Payload: payload}})
	}
	return []demo.Stage{{Title: "payables", Lanes: lanes}}, nil
}

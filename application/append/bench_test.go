package append_test

import (
	"encoding/json"
	"testing"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
)

// BenchmarkPrepare prepares a typical event: no personal data, a few references.
func BenchmarkPrepare(b *testing.B) {
	t := newAppendFixture(b)
	draft := orderPlaced(func(d *event.Draft) {
		d.Data = json.RawMessage(`{"amount":12.5,"note":"as ordered","number":"O-7","customer":"c-1"}`)
		d.Entities = []event.EntityRef{{Type: "customer", ID: "c-1", Role: "buyer"}}
		d.Dimensions = map[string]string{"cost_center": "042"}
		d.Tags = []string{"q1"}
	})
	batch := t.batch(draft)
	batch.Drafts = []event.Draft{draft}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.preparer.Prepare(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}

var _ module.Sealer = (*fakeSealer)(nil)

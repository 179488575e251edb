package ap_test

import (
	"fmt"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/test/typestest"
)

// TestVendorCodec stores and loads a vendor's state between the events of random histories and
// compares the result with a fold that never stored it.
func TestVendorCodec(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(typestest.Schemas{}, gl.New(), ap.New())
	require.NoError(t, err)
	fold, ok := catalog.Fold(contract.StreamVendor)
	require.True(t, ok)
	rapid.Check(t, func(rt *rapid.T) {
		straight, stored := fold.New(), fold.New()
		for n := range rapid.IntRange(0, 20).Draw(rt, "events") {
			e := event.Recorded{Skeleton: event.Skeleton{Sequence: event.Sequence(n + 1), ID: ulid.Make()}}
			contact := fmt.Sprintf(`{"vendor_id":"V-1","contact_id":"C-%d","name":{"$pii":"x"}}`, rapid.IntRange(1, 4).Draw(rt, "contact"))
			data := contact
			switch rapid.IntRange(0, 7).Draw(rt, "type") {
			case 0:
				e.Type, data = contract.EventVendorRegistered, `{"vendor_id":"V-1","name":"Nordbau","country":"DE","natural_person":false,"terms":{"net_days":14,"discount_percent":2.50},"default_dimensions":{"department":"FIN"}}`
			case 1:
				e.Type = contract.EventContactRemoved
			case 2:
				e.Type, data = contract.EventVendorBlocked, fmt.Sprintf(`{"vendor_id":"V-1","scope":%q,"reason":"x","status":"blocked"}`, rapid.SampledFrom([]string{"payment", "all"}).Draw(rt, "scope"))
			case 3:
				e.Type, e.ActorType, e.ActorID = contract.EventBankRequested, event.Human, "ann"
				data = `{"vendor_id":"V-1","request_id":"V-1-B1","currency":"EUR","iban":"[REDACTED]","holder":"[REDACTED]","evidence_ref":"x","reason":"x"}`
			case 4:
				e.Type, e.ActorType, e.ActorID = contract.EventBankChanged, event.Human, "bob"
				data = `{"vendor_id":"V-1","request_id":"V-1-B1","currency":"EUR","verification":"x"}`
			case 5:
				e.Type = contract.EventVendorChanged
				data = rapid.SampledFrom([]string{`{"vendor_id":"V-1","reason":"x","person":"[REDACTED]"}`, `{"vendor_id":"V-1","reason":"x"}`}).Draw(rt, "change")
			default:
				e.Type = contract.EventContactRecorded
			}
			require.NoError(rt, fold.Apply(straight, e, []byte(data)))
			require.NoError(rt, fold.Apply(stored, e, []byte(data)))
			if rapid.Bool().Draw(rt, "store") {
				text, err := fold.Codec.Encode(stored)
				require.NoError(rt, err)
				require.NotContains(rt, string(text), "$pii")
				stored, err = fold.Codec.Decode(text)
				require.NoError(rt, err)
			}
		}
		require.Equal(rt, straight, stored)
	})
}

// TestPurchaseOrderCodec stores and loads an order's state between the events of random histories.
func TestPurchaseOrderCodec(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(typestest.Schemas{}, gl.New(), ap.New())
	require.NoError(t, err)
	fold, ok := catalog.Fold(contract.StreamOrder)
	require.True(t, ok)
	rapid.Check(t, func(rt *rapid.T) {
		straight, stored := fold.New(), fold.New()
		for n := range rapid.IntRange(0, 20).Draw(rt, "events") {
			e := event.Recorded{Skeleton: event.Skeleton{Sequence: event.Sequence(n + 1), ID: ulid.Make()}}
			var data string
			switch rapid.IntRange(0, 3).Draw(rt, "type") {
			case 0:
				e.Type = contract.EventOrderRecorded
				data = fmt.Sprintf(`{"po_reference":"P","revision":%d,"vendor_id":"V1","currency":"EUR","status":"open","lines":[{"po_line_reference":"P-1","quantity":2.50,"unit_price":1,"price_base_quantity":12,"dimensions":{"department":"FIN"}}]}`, n)
			case 1:
				e.Type = contract.EventReceiptRecorded
				data = fmt.Sprintf(`{"receipt_number":"R%d","po_reference":"P","lines":[{"po_line_reference":"1","quantity":%d.50}]}`, n, rapid.IntRange(1, 9).Draw(rt, "quantity"))
			default:
				e.Type = contract.EventOrderBilled
				data = fmt.Sprintf(`{"invoice_id":"I%d","po_reference":"P","vendor_id":"V%d","lines":[{"po_line_reference":"1","quantity":%d,"change":1}]}`,
					rapid.IntRange(1, 3).Draw(rt, "document"), rapid.IntRange(1, 2).Draw(rt, "vendor"), rapid.IntRange(0, 3).Draw(rt, "billed"))
			}
			require.NoError(rt, fold.Apply(straight, e, []byte(data)))
			require.NoError(rt, fold.Apply(stored, e, []byte(data)))
			if rapid.Bool().Draw(rt, "store") {
				text, err := fold.Codec.Encode(stored)
				require.NoError(rt, err)
				stored, err = fold.Codec.Decode(text)
				require.NoError(rt, err)
			}
		}
		straightText, err := fold.Codec.Encode(straight)
		require.NoError(rt, err)
		storedText, err := fold.Codec.Encode(stored)
		require.NoError(rt, err)
		require.JSONEq(rt, string(straightText), string(storedText))
	})
}

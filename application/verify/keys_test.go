package verify_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
)

// keyedEvent appends an event with references, tags and a business key, and stores its rows.
func (v *tamperedLog) keyedEvent(t *testing.T, le ports.LegalEntity, receipt string) {
	t.Helper()
	p := v.prepared(le)
	p.Tags = []string{"q1"}
	p.Payload = []byte(`{"data":{"receipt":"` + receipt + `","till":7},"dimensions":{},"entity_refs":[` +
		`{"entity_type":"till","entity_id":"T\u002d1","role":"subject"},{"entity_type":"clerk","entity_id":"C-1","role":"by"},{"entity_type":"till","entity_id":"T-1","role":"place"}]}`)
	p.PayloadHash = event.HashPayload(p.Salt, p.Payload)
	result, err := v.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{p}})
	require.NoError(t, err)
	n := result.Events[0].Sequence
	for _, key := range []string{"tag:q1", "entity:clerk:C-1", "entity:till:T-1"} {
		v.keys = append(v.keys, ports.EventKey{Sequence: n, TypeNumber: 3, Key: key})
	}
	v.claims = append(v.claims, ports.ClaimedKey{Sequence: n, EventID: p.ID, BusinessKey: event.BusinessKey{EventType: p.Type, Key: "receipt\x1f7\x1f" + receipt, Document: receipt}})
}

// TestRun_Keys changes rows of the key index and of business keys.
func TestRun_Keys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tamper func(*tamperedLog)
		want   []place
	}{
		"as they must be":      {func(*tamperedLog) {}, nil},
		"in another order":     {func(v *tamperedLog) { slices.Reverse(v.keys); slices.Reverse(v.claims) }, nil},
		"a key is missing":     {func(v *tamperedLog) { v.keys = v.keys[1:] }, []place{{verify.KeyMismatch, 1}}},
		"a key is there twice": {func(v *tamperedLog) { v.keys = append(v.keys, v.keys[4]) }, []place{{verify.KeyMismatch, 2}}},
		"another key":          {func(v *tamperedLog) { v.keys[0].Key = "tag:q2" }, []place{{verify.KeyMismatch, 1}}},
		"another type":         {func(v *tamperedLog) { v.keys[0].TypeNumber = 4 }, []place{{verify.KeyMismatch, 1}}},
		"a key of two events":  {func(v *tamperedLog) { v.keys[0].Sequence = 1500 }, []place{{verify.KeyMismatch, 1}, {verify.KeyMismatch, 1500}}},
		"a key of no event":    {func(v *tamperedLog) { v.keys[0].Sequence = 1501 }, []place{{verify.KeyMismatch, 0}, {verify.KeyMismatch, 1}}},
		"a key before all":     {func(v *tamperedLog) { v.keys[0].Sequence = 0 }, []place{{verify.KeyMismatch, 0}, {verify.KeyMismatch, 1}}},
		"a key far before all": {func(v *tamperedLog) { v.keys[0].Sequence = ^event.Sequence(4) }, []place{{verify.KeyMismatch, 0}, {verify.KeyMismatch, 1}}},
		"a claim is missing":   {func(v *tamperedLog) { v.claims = v.claims[:1] }, []place{{verify.BusinessKeyMismatch, 2}}},
		"another claim":        {func(v *tamperedLog) { v.claims[0].Key = "receipt\x1f7\x1fR-9" }, []place{{verify.BusinessKeyMismatch, 1}}},
		"another document":     {func(v *tamperedLog) { v.claims[0].Document = "R-9" }, []place{{verify.BusinessKeyMismatch, 1}}},
		"another event's id":   {func(v *tamperedLog) { v.claims[0].EventID = v.claims[1].EventID }, []place{{verify.BusinessKeyMismatch, 1}}},
		"claims of each other": {func(v *tamperedLog) { v.claims[0].Key, v.claims[1].Key = v.claims[1].Key, v.claims[0].Key }, []place{{verify.BusinessKeyMismatch, 1}, {verify.BusinessKeyMismatch, 2}}},
		"an unregistered type": {func(v *tamperedLog) {
			v.claims = append(v.claims, ports.ClaimedKey{BusinessKey: event.BusinessKey{EventType: "x.y.z"}})
		}, nil},
		"a claim of no event":   {func(v *tamperedLog) { v.claims[0].Sequence = 1501 }, []place{{verify.BusinessKeyMismatch, 0}, {verify.BusinessKeyMismatch, 1}}},
		"an edited event alone": {func(v *tamperedLog) { v.tamper = editReceipt }, []place{{verify.PayloadMismatch, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault()
			v.types = []eventtype.Registration{
				{Type: "till.cash.moved", SchemaVersion: 1, Number: 3, BusinessKeys: []eventtype.BusinessKeyRule{{Name: "receipt", Fields: []string{"till", "receipt"}, Document: "receipt"}}},
				{Type: "till.cash.counted", SchemaVersion: 1, Number: 4},
			}
			le := v.entity(t, "A", 0)
			for i := range 2 {
				v.keyedEvent(t, le, "R-"+strconv.Itoa(i))
			}
			v.grow(t, le, 1498)
			c.tamper(v)
			r := v.run(t)[0]
			require.Equal(t, append([]place{}, c.want...), places(r), "%v", r.Findings)
		})
	}
}

// editReceipt changes the payload of the first event, from which its keys follow.
func editReceipt(_ event.PartitionID, events []event.Recorded) []event.Recorded {
	events = slices.Clone(events)
	events[0].Payload = []byte(`{"data":{},"dimensions":{},"entity_refs":[]}`)
	return events
}

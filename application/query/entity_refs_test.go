package query_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
)

// TestEntityRefs_EqualDecoder encodes references as stored, with blanks and with arbitrary
// texts, and compares them with encoding/json's.
func TestEntityRefs_EqualDecoder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.SampledFrom([]string{"vendor", "V-1", "V-2", "subject", "", `a"b`, "é", `\`, "]", ",", "{"}), rapid.StringN(0, 6, -1))
		reference := rapid.Custom(func(t *rapid.T) event.EntityRef {
			return event.EntityRef{Type: text.Draw(t, "type"), ID: text.Draw(t, "id"), Role: text.Draw(t, "role")}
		})
		var events []event.Recorded
		want := []event.EntityRef(nil)
		seen := map[event.EntityRef]bool{}
		for range rapid.IntRange(0, 4).Draw(t, "events") {
			list := rapid.SliceOfN(reference, 0, 4).Draw(t, "references")
			encode := json.Marshal
			if rapid.Bool().Draw(t, "with blanks") {
				encode = func(v any) ([]byte, error) { return json.MarshalIndent(v, "", " ") }
			}
			raw, err := encode(map[string]any{"data": map[string]any{"entity_refs": 1}, "dimensions": map[string]string{}, "entity_refs": list})
			require.NoError(t, err)
			events = append(events, event.Recorded{Payload: raw})
			var body event.Body
			require.NoError(t, json.Unmarshal(raw, &body))
			for _, r := range body.EntityRefs {
				if !seen[r] {
					seen[r] = true
					want = append(want, r)
				}
			}
		}
		got, err := query.References(events)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestEntityRefs_UnusualPayloads(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]string{"taken out": "", "without": `{"data":{}}`, "none": `{"entity_refs":[]}`, "null": `{"entity_refs":null}`} {
		got, err := query.References([]event.Recorded{{Payload: []byte(payload)}})
		require.NoError(t, err, name)
		require.Empty(t, got, name)
	}
	for _, payload := range []string{`{"entity_refs":7}`, `{"entity_refs":[7]}`, `{"entity_refs":[{"entity_type":"vendor","entity_id":1,"role":"subject"}]}`} {
		_, err := query.References([]event.Recorded{{Payload: []byte(payload)}})
		require.Error(t, err, payload)
	}
	got, err := query.References([]event.Recorded{{Payload: []byte(`{"entity_refs":[{"entity_type":"vendor","role":"subject"}]}`)}})
	require.NoError(t, err)
	require.Equal(t, []event.EntityRef{{Type: "vendor", Role: "subject"}}, got, "as the decoder reads it")
}

// BenchmarkEntityRefs reads the references of a process of a thousand events.
func BenchmarkEntityRefs(b *testing.B) {
	payload := []byte(`{"data":{"vendor_id":"V-1","lines":[{"amount":1,"text":"services as agreed"},{"amount":2,"text":"services as agreed"}]},"dimensions":{"department":"ENG"},` +
		`"entity_refs":[{"entity_type":"vendor","entity_id":"V-1","role":"subject"},{"entity_type":"invoice","entity_id":"01M7YBZ9XF2MF7JXWR99SYJZ19","role":"document"}]}`)
	events := make([]event.Recorded, 1000)
	for i := range events {
		events[i].Payload = payload
	}
	b.ReportAllocs()
	for b.Loop() {
		_, err := query.References(events)
		require.NoError(b, err)
	}
}

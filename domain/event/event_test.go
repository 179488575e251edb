package event_test

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
)

func TestParseStreamID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]event.StreamID{
		"invoice/I-1":     {Type: "invoice", ID: "I-1"},
		"account/a/b":     {Type: "account", ID: "a/b"},
		"period/2026/03/": {Type: "period", ID: "2026/03/"},
	} {
		got, err := event.ParseStreamID(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		require.Equal(t, text, got.String())
	}
	for _, text := range []string{"", "/", "invoice", "invoice/", "/I-1"} {
		_, err := event.ParseStreamID(text)
		require.Error(t, err, text)
	}
}

func TestParseID(t *testing.T) {
	t.Parallel()
	id, err := event.ParseID("01JQ8E6Z6G3V5T8C9N2M4K7R1P")
	require.NoError(t, err)
	require.Equal(t, "01JQ8E6Z6G3V5T8C9N2M4K7R1P", id.String())
	for _, text := range []string{"", "01JQ8E6Z6G3V5T8C9N2M4K7R1", "01JQ8E6Z6G3V5T8C9N2M4K7R1U", "81JQ8E6Z6G3V5T8C9N2M4K7R1P"} {
		_, err := event.ParseID(text)
		require.Error(t, err, text)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	require.Equal(t, "entity:vendor:V-1", event.EntityRef{Type: "vendor", ID: "V-1", Role: "seller"}.Key())
	require.Equal(t, "tag:q1-close", event.TagKey("q1-close"))
}

func TestSeriesNumberFormat(t *testing.T) {
	t.Parallel()
	s := event.SeriesNumber{Prefix: "GJ-2026-", Width: 6}
	require.Equal(t, "GJ-2026-000001", s.Format(1))
	require.Equal(t, "GJ-2026-1234567", s.Format(1234567), "a number outgrows the width without being cut")
	require.Equal(t, "V7", event.SeriesNumber{Prefix: "V"}.Format(7))
}

func prepared() event.Prepared {
	const token = "series:01J"
	return event.Prepared{
		Skeleton: event.Skeleton{
			Stream: event.StreamID{Type: "journal", ID: token}, Tags: []string{"q1", "no:" + token},
			Source: event.Source{System: "s", Channel: "c", Reference: token}, CorrelationID: token,
		},
		Payload:      []byte(`{"data":{"number":"` + token + `","again":"` + token + `"}}`),
		Keys:         []string{"entity:journal:" + token, "tag:q1"},
		BusinessKeys: []event.BusinessKey{{EventType: "gl.journal.posted", Key: "number\x1f" + token, Document: token}},
		Series:       []event.SeriesNumber{{Series: "GJ", Token: token}},
	}
}

func TestReplaceToken_Copies(t *testing.T) {
	t.Parallel()
	original := prepared()
	attempt := original // shares every slice
	attempt.ReplaceToken("series:01J", "GJ-000001")

	require.Equal(t, prepared(), original)
	require.Equal(t, "GJ-000001", attempt.Stream.ID)
	require.Equal(t, []string{"q1", "no:GJ-000001"}, attempt.Tags)
	require.Equal(t, "GJ-000001", attempt.Source.Reference)
	require.JSONEq(t, `{"data":{"number":"GJ-000001","again":"GJ-000001"}}`, string(attempt.Payload))
	require.Equal(t, []string{"entity:journal:GJ-000001", "tag:q1"}, attempt.Keys)
	require.Equal(t, []event.BusinessKey{{EventType: "gl.journal.posted", Key: "number\x1fGJ-000001", Document: "GJ-000001"}}, attempt.BusinessKeys)
	require.Equal(t, "series:01J", attempt.CorrelationID, "a correlation is not a document number")

	// A second attempt on the same request gets another number.
	second := original
	second.ReplaceToken("series:01J", "GJ-000002")
	require.Equal(t, "GJ-000002", second.Stream.ID)
	require.Equal(t, "GJ-000001", attempt.Stream.ID)
	require.Contains(t, string(attempt.Payload), "GJ-000001")
}

func TestReplaceToken_NilCollections(t *testing.T) {
	t.Parallel()
	p := event.Prepared{Payload: []byte(`{}`)}
	p.ReplaceToken("x", "y")
	require.Nil(t, p.Tags)
	require.Nil(t, p.Keys)
}

func TestSize_GrowsWithContent(t *testing.T) {
	t.Parallel()
	small, large := event.Prepared{}, event.Prepared{}
	large.Payload, large.Keys, large.RulesEvaluated = make([]byte, 1000), []string{"entity:a:b"}, json.RawMessage(`[1]`)
	require.Equal(t, small.Size()+1000+10+3, large.Size())
}

func TestData(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"data":{"a":[1,{"data":2}]},"dimensions":{},"entity_refs":[]}`: `{"a":[1,{"data":2}]}`,
		`{"dimensions":{"data":"x"},"data":null}`:                        `null`,
	} {
		r := event.Recorded{Payload: []byte(payload)}
		data, err := r.Data()
		require.NoError(t, err, payload)
		require.Equal(t, want, string(data))
		body, err := r.Body()
		require.NoError(t, err)
		require.Equal(t, string(body.Data), string(data), "as Body has it")
	}
	for _, payload := range []string{"", "null", "[]", `{"dimensions":{}}`, `{"data"`, `{"data":{`} {
		_, err := event.Recorded{Payload: []byte(payload)}.Data()
		require.ErrorContains(t, err, "payload of event", payload)
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	r := event.Recorded{Payload: []byte(`{"data":{"amount":1.50, "a" : "<"},"dimensions":{"cost_center":"100"},"entity_refs":[{"entity_type":"vendor","entity_id":"V-1","role":"seller"}]}`)}
	body, err := r.Body()
	require.NoError(t, err)
	require.Equal(t, `{"amount":1.50, "a" : "<"}`, string(body.Data), "verbatim")
	require.Equal(t, map[string]string{"cost_center": "100"}, body.Dimensions)
	require.Equal(t, []event.EntityRef{{Type: "vendor", ID: "V-1", Role: "seller"}}, body.EntityRefs)

	_, err = event.Recorded{}.Body()
	require.Error(t, err, "archived")
	_, err = event.Recorded{Payload: []byte(`{"data"`)}.Body()
	require.Error(t, err)
}

func TestActor(t *testing.T) {
	t.Parallel()
	s := event.Skeleton{ActorType: event.Agent, ActorID: "p-1", ActorName: "clerk", ActorDetails: json.RawMessage(`{"on_behalf_of":{"type":"human","id":"p-2"},"session_id":"x"}`)}
	a, err := s.Actor()
	require.NoError(t, err)
	require.Equal(t, event.Actor{Type: event.Agent, ID: "p-1", Name: "clerk", Details: event.ActorDetails{OnBehalfOf: &event.Delegate{Type: "human", ID: "p-2"}, SessionID: "x"}}, a)
	require.False(t, a.Details.IsZero())

	a, err = event.Skeleton{ActorType: event.Human, ActorID: "p-1"}.Actor()
	require.NoError(t, err)
	require.True(t, a.Details.IsZero())
	_, err = event.Skeleton{ActorDetails: json.RawMessage(`[]`)}.Actor()
	require.Error(t, err)
}

func TestMicros(t *testing.T) {
	t.Parallel()
	berlin := time.FixedZone("CET", 3600)
	got := event.Micros(time.Date(2026, 1, 1, 0, 30, 0, 1999, berlin))
	require.Equal(t, time.Date(2025, 12, 31, 23, 30, 0, 1000, time.UTC), got)
	require.True(t, event.Micros(time.Time{}).IsZero())
}

func TestDateText(t *testing.T) {
	t.Parallel()
	var d event.Date
	require.NoError(t, d.UnmarshalText([]byte("2026-03-31")))
	require.Equal(t, "2026-04-01", d.AddDays(1).String())
	text, err := json.Marshal(map[string]event.Date{"d": d})
	require.NoError(t, err)
	require.Equal(t, `{"d":"2026-03-31"}`, string(text))
	for _, bad := range []string{"", "2026-3-31", "2026-13-01", "31.03.2026", "2026-03-31T00:00:00Z"} {
		require.Error(t, d.UnmarshalText([]byte(bad)), bad)
	}
	require.Panics(t, func() { event.MustDate("x") })
}

// base is a skeleton with every optional field set.
func base() event.Skeleton {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return event.Skeleton{
		Partition: 7, Sequence: 2, ID: event.ID{1}, Type: "a.b", SchemaVersion: 1, OccurredAt: at, RecordedAt: at, EffectiveDate: 1,
		Scope:     event.Scope{TenantID: "acme", LegalEntity: "USMF", Division: "d", Region: "r", Site: "s", Custom: json.RawMessage(`{"a":"b"}`)},
		ActorType: event.Human, ActorID: "p", ActorName: "n", ActorDetails: json.RawMessage(`{}`), CausedBy: event.ID{2}, CausedByPartition: 8,
		IntentID: event.ID{3}, CorrelationID: "c", Stream: event.StreamID{Type: "t", ID: "i"}, StreamVersion: 1, Tags: []string{"x", "y"},
		Source: event.Source{System: "sys", Channel: "ch", Reference: "ref"}, RulesEvaluated: json.RawMessage(`[]`),
		PII: map[string]string{"/a": "contact"}, PayloadHash: event.Hash{1}, ContentEncoding: "gzip",
	}
}

// TestChainChecksum_EveryField changes one field after the other: each changes the checksum.
func TestChainChecksum_EveryField(t *testing.T) {
	t.Parallel()
	reference := base()
	seen := [][]byte{reference.AppendPreimage(nil)}
	for name, change := range map[string]func(*event.Skeleton){
		"partition": func(s *event.Skeleton) { s.Partition++ }, "sequence": func(s *event.Skeleton) { s.Sequence++ },
		"id": func(s *event.Skeleton) { s.ID[15]++ }, "type": func(s *event.Skeleton) { s.Type = "a.c" },
		"schema version": func(s *event.Skeleton) { s.SchemaVersion++ },
		"occurred at":    func(s *event.Skeleton) { s.OccurredAt = s.OccurredAt.Add(time.Microsecond) },
		"recorded at":    func(s *event.Skeleton) { s.RecordedAt = s.RecordedAt.Add(time.Microsecond) },
		"effective date": func(s *event.Skeleton) { s.EffectiveDate++ },
		"tenant":         func(s *event.Skeleton) { s.Scope.TenantID = "x" }, "legal entity": func(s *event.Skeleton) { s.Scope.LegalEntity = "x" },
		"division": func(s *event.Skeleton) { s.Scope.Division = "" }, "region": func(s *event.Skeleton) { s.Scope.Region = "" },
		"site": func(s *event.Skeleton) { s.Scope.Site = "" }, "custom": func(s *event.Skeleton) { s.Scope.Custom = json.RawMessage(`{"a": "b"}`) },
		"division moved": func(s *event.Skeleton) { s.Scope.Division, s.Scope.Region = s.Scope.Region, s.Scope.Division },
		"actor type":     func(s *event.Skeleton) { s.ActorType = event.Agent }, "actor id": func(s *event.Skeleton) { s.ActorID = "q" },
		"actor name": func(s *event.Skeleton) { s.ActorName = "" }, "actor details": func(s *event.Skeleton) { s.ActorDetails = nil },
		"caused by": func(s *event.Skeleton) { s.CausedBy = event.ID{} }, "caused by partition": func(s *event.Skeleton) { s.CausedByPartition = 0 },
		"intent": func(s *event.Skeleton) { s.IntentID = event.ID{} }, "correlation": func(s *event.Skeleton) { s.CorrelationID = "d" },
		"stream type": func(s *event.Skeleton) { s.Stream.Type = "u" }, "stream id": func(s *event.Skeleton) { s.Stream.ID = "j" },
		"stream version": func(s *event.Skeleton) { s.StreamVersion++ },
		"tags":           func(s *event.Skeleton) { s.Tags = []string{"y", "x"} }, "tags joined": func(s *event.Skeleton) { s.Tags = []string{"xy"} },
		"no tags": func(s *event.Skeleton) { s.Tags = nil },
		"system":  func(s *event.Skeleton) { s.Source.System = "" }, "channel": func(s *event.Skeleton) { s.Source.Channel = "" },
		"reference": func(s *event.Skeleton) { s.Source.Reference = "" }, "rules": func(s *event.Skeleton) { s.RulesEvaluated = nil },
		"pii": func(s *event.Skeleton) { s.PII = map[string]string{"/b": "contact"} }, "payload hash": func(s *event.Skeleton) { s.PayloadHash[31]++ },
		"encoding": func(s *event.Skeleton) { s.ContentEncoding = "" },
	} {
		s := base()
		change(&s)
		image := s.AppendPreimage(nil)
		require.False(t, slices.ContainsFunc(seen, func(b []byte) bool { return slices.Equal(b, image) }), name)
		seen = append(seen, image)
	}
	same := base()
	same.Checksum = event.Hash{9}
	require.Equal(t, seen[0], same.AppendPreimage(nil), "the checksum is not part of itself")
	same.Tags, reference.Tags = []string{}, nil
	same.PII, reference.PII = map[string]string{}, nil
	require.Equal(t, reference.AppendPreimage(nil), same.AppendPreimage(nil), "empty collections are absent")
}

// FuzzPreimage reads the preimage of a skeleton back: tags ascend, and each text is found as it
// was, so that other skeletons have other preimages.
func FuzzPreimage(f *testing.F) {
	f.Add("a.b", "acme", "d", "c", "i", "x", "ref", `{"a":"b"}`)
	f.Add("", "", "", "", "", "", "", "")
	f.Add("\x00\x04\x00\x00", "\x00", "\xff", "\x00\x1a", "é", "\x00\x00\x00\x01x", "\x00\x21", "null")
	f.Fuzz(func(t *testing.T, eventType, tenant, division, correlation, stream, tag, reference, custom string) {
		s := base()
		s.Type, s.Scope.TenantID, s.Scope.Division, s.CorrelationID, s.Stream.ID, s.Source.Reference = eventType, tenant, division, correlation, stream, reference
		s.Tags, s.Scope.Custom = []string{tag}, json.RawMessage(custom)
		found, last := map[uint16]string{}, uint16(0)
		for rest := s.AppendPreimage(nil); len(rest) > 0; {
			require.GreaterOrEqual(t, len(rest), 6)
			number, length := binary.BigEndian.Uint16(rest), int(binary.BigEndian.Uint32(rest[2:]))
			require.Greater(t, number, last)
			require.GreaterOrEqual(t, len(rest)-6, length)
			found[number], last, rest = string(rest[6:6+length]), number, rest[6+length:]
		}
		for number, want := range map[uint16]string{4: eventType, 9: tenant, 11: division, 14: custom, 22: correlation, 24: stream, 29: reference} {
			got, present := found[number]
			require.Equal(t, want, got)
			require.True(t, present || want == "")
		}
		require.Contains(t, found[26], tag)
	})
}

package archive_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

const partition event.PartitionID = 7

// records draws records whose payloads are JSON of all kinds, as they may be stored.
func records(t *rapid.T) (out []archive.Record) {
	sequence := event.Sequence(rapid.IntRange(1, 100).Draw(t, "first"))
	for range rapid.IntRange(1, 30).Draw(t, "records") {
		r := archive.Record{Sequence: sequence, EventID: event.ID{byte(sequence)}, Payload: []byte(rapid.SampledFrom([]string{
			`{"data":{"a":1.50}}`, `{"data":{"text":"<b>&amp;\u00fc\n"}}`, "{\n  \"data\": {\"a\": [1,\t2]}\r\n}", `{ "data" : { "ü" : null } }`,
		}).Draw(t, "payload"))}
		copy(r.Salt[:], rapid.SliceOfN(rapid.Byte(), len(r.Salt), len(r.Salt)).Draw(t, "salt"))
		if rapid.Bool().Draw(t, "redacted") {
			r.Redactions = []event.Redaction{{RequestID: event.ID{9}, Pointers: []string{"/data/a~1b", "/data/<c>"}, At: time.Date(2024, 5, 1, 12, 30, 0, 123000, time.UTC)}}
		}
		out = append(out, r)
		sequence += event.Sequence(rapid.IntRange(1, 3).Draw(t, "gap"))
	}
	return out
}

func TestEncode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := records(t)
		first, last := want[0].Sequence, want[len(want)-1].Sequence+2
		object, m, err := archive.Encode(partition, first, last, want)
		require.NoError(t, err)
		digest := sha256.Sum256(object)
		require.Equal(t, hex.EncodeToString(digest[:]), m.Digest)
		got, err := archive.Decode(object, digest)
		require.NoError(t, err)
		require.Equal(t, want, got)
		content := archive.ContentHash(partition, got)
		require.Equal(t, m.Content, hex.EncodeToString(content[:]))
		f, l, ok := archive.ObjectRange(m.Object)
		require.True(t, ok)
		require.Equal(t, []event.Sequence{first, last}, []event.Sequence{f, l})
		lines := 0
		for i := range want {
			lines += want[i].LineBytes()
		}
		require.LessOrEqual(t, m.Lines, lines, "the bound of a segment counts rather too many")
		again, _, err := archive.Encode(partition, first, last, want)
		require.NoError(t, err)
		require.True(t, bytes.Equal(object, again))
	})
}

// TestContentHash_Frozen pins the format, which the database computes too.
func TestContentHash_Frozen(t *testing.T) {
	t.Parallel()
	r := archive.Record{Sequence: 3, Payload: []byte(`{"data":{}}`)}
	hash := r.Hash()
	text := append([]byte("\x00\x00\x00\x13backbone/archive/v1\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x03"), hash[:]...)
	require.Equal(t, event.Hash(sha256.Sum256(text)), archive.ContentHash(partition, []archive.Record{r}))
}

// TestDecode_RefusesHostileFiles reads files that an attacker with access to the store has made.
func TestDecode_RefusesHostileFiles(t *testing.T) {
	t.Parallel()
	pack := func(lines string) []byte {
		encoder, err := zstd.NewWriter(nil)
		require.NoError(t, err)
		return encoder.EncodeAll([]byte(lines), nil)
	}
	salt := strings.Repeat("0", 32)
	good := `{"sequence":1,"event_id":"01J00000000000000000000000","salt":"` + salt + `","payload_hash":"","payload":{}}` + "\n"
	_, err := archive.Decode(pack(good), sha256.Sum256(pack(good)))
	require.NoError(t, err)
	_, err = archive.Decode(pack(good), event.Hash{})
	require.Equal(t, archive.CodeObjectDamaged, fault.CodeOf(err), "another file")
	for name, lines := range map[string]string{
		"no JSON": "x\n", "long salt": strings.Replace(good, salt, salt+salt+"00", 1), "short salt": strings.Replace(good, salt, "00", 1),
		"not ascending": good + good, "too many lines": strings.Repeat("\n", archive.MaxRecords+1), "a bomb": strings.Repeat("0", 64<<20),
	} {
		object := pack(lines)
		_, err := archive.Decode(object, sha256.Sum256(object))
		require.Equal(t, archive.CodeObjectDamaged, fault.CodeOf(err), name)
	}
	_, err = archive.Decode([]byte("no archive"), sha256.Sum256([]byte("no archive")))
	require.Equal(t, archive.CodeObjectDamaged, fault.CodeOf(err))
}

func TestStates(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := map[string]archive.State{}
		var states []archive.State
		for n := range rapid.IntRange(1, 200).Draw(t, "states") {
			s := archive.State{
				Key: event.EntityKey("invoice", rapid.StringN(1, 20, 60).Draw(t, "id")), AsOf: uint64(n + 1), Fold: "1", EffectiveThrough: event.MustDate("2021-03-04"),
				State: []byte(`{"text":"` + strings.Repeat("x", rapid.IntRange(0, 2000).Draw(t, "size")) + `"}`),
			}
			if _, known := want[s.Key]; !known {
				want[s.Key], states = s, append(states, s)
			}
		}
		pages, err := archive.PackStates(states)
		require.NoError(t, err)
		for key, s := range want {
			var page archive.StatePage
			for _, p := range pages {
				if p.FirstKey <= key {
					page = p
				}
			}
			found, err := archive.FindState(page.Packed, key)
			require.NoError(t, err)
			require.Equal(t, &s, found)
		}
		found, err := archive.FindState(pages[0].Packed, "entity:invoice:")
		require.NoError(t, err)
		require.Nil(t, found)
	})
	_, err := archive.FindState([]byte("no page"), "k")
	require.Equal(t, archive.CodeObjectDamaged, fault.CodeOf(err))
}

func FuzzDecode(f *testing.F) {
	object, _, err := archive.Encode(partition, 1, 2, []archive.Record{{Sequence: 1, Payload: []byte(`{"data":{}}`)}, {Sequence: 2, Payload: []byte("{\n}")}})
	require.NoError(f, err)
	f.Add(object)
	f.Fuzz(func(_ *testing.T, object []byte) {
		_, _ = archive.Decode(object, sha256.Sum256(object))
		_, _ = archive.FindState(object, "entity:invoice:1")
	})
}

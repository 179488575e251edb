package shredding_test

import (
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

func TestCopySealed(t *testing.T) {
	t.Parallel()
	at := shredding.Location{Partition: 17, Kind: shredding.KindEvent, Record: ulid.MustParse("01ARZ3NDEKTSV4RRFFQ69G5FAV"), Type: "hr.employee.hired", SchemaVersion: 2, Pointer: "/data"}
	plain := `{ "n":1.50,"a~b":[{"$pii":"` + knownEnvelope + `","sub":"employee:E-1"}, 2],"x":{"y":{"$pii":"` + knownEnvelope + `","sub":"employee:E-2"}} }`
	copied, err := shredding.CopySealed([]byte(plain), at)
	require.NoError(t, err)
	found, err := shredding.FindSealed(copied)
	require.NoError(t, err)
	require.Len(t, found, 2)
	for i, want := range []string{"/data/a~0b/0", "/data/x/y"} {
		require.NotNil(t, found[i].Origin)
		o := *found[i].Origin
		require.Equal(t, want, o.Pointer)
		o.Pointer = at.Pointer
		require.Equal(t, at, o)
	}
	require.True(t, strings.HasPrefix(string(copied), `{ "n":1.50,"a~b":[`), "every other byte stays")

	elsewhere := at
	elsewhere.Type, elsewhere.Pointer = "other.type.made", "/other"
	again, err := shredding.CopySealed(copied, elsewhere)
	require.NoError(t, err)
	require.Equal(t, string(copied), string(again), "a copy of a copy tells of the original")

	none := []byte(`{"a":1}`)
	same, err := shredding.CopySealed(none, at)
	require.NoError(t, err)
	require.Same(t, &none[0], &same[0])
	_, err = shredding.CopySealed([]byte(`{"a":{"$pii":1}}`), at)
	require.Error(t, err)
}

func TestDetachAndAttach(t *testing.T) {
	t.Parallel()
	at := knownLocation()
	at.Pointer = "/data"
	envelope, err := newBox(t).seal(shredding.Field{Pointer: "/data/email"}, []byte(`"ada"`))
	require.NoError(t, err)
	sealed := func(origin *shredding.Location) string {
		return string(shredding.Sealed{Envelope: envelope, Subject: "person:p-1", Origin: origin}.Append(nil))
	}
	other := at
	other.Pointer, other.Record = "/data/elsewhere", event.ID{1}
	stored := `{"a": ` + sealed(nil) + `,"b":{"c":[1,` + sealed(&other) + `]}}`
	bare, held, err := shredding.Detach([]byte(stored), at)
	require.NoError(t, err)
	require.Equal(t, `{"a": {"$pii":"0"},"b":{"c":[1,{"$pii":"1"}]}}`, string(bare))
	require.Equal(t, "/data/a", held[0].Origin.Pointer)
	require.Equal(t, other, *held[1].Origin, "it says by itself where it was sealed")

	document, placed, err := shredding.Attach([]byte(`{"x":{ "$pii" : "1" },"y~":[{"$pii":"0"},{"$pii":"0"}]}`), held)
	require.NoError(t, err)
	found, err := shredding.FindSealed(document)
	require.NoError(t, err)
	require.Len(t, found, 3)
	for i, want := range []string{"/x", "/y~0/0", "/y~0/1"} {
		require.Equal(t, want, found[i].Pointer)
		require.Equal(t, want, placed[i].Pointer)
		require.Equal(t, placed[i].Origin, found[i].Origin)
		require.Equal(t, envelope, found[i].Envelope)
	}
	require.Equal(t, other, *found[0].Origin)

	for _, forged := range []string{
		`{"a":{"$pii":"2"}}`, `{"a":{"$pii":0}}`, `{"a":{"$pii":"0","x":1}}`, `{"$pii":"00"}`, `{"a":{"\u0024pii":"0"},"b":{"$pii":"0"}}`, `{"a":[{"$PII":"0"},{"$pii":"1"}]}`,
		`{"a":{"$pii":{"$pii":"0"}}}`,
	} {
		_, _, err := shredding.Attach([]byte(forged), held)
		require.Contains(t, []string{"pii.token_forged", "pii.reserved_name"}, fault.CodeOf(err), forged)
	}
	for _, forged := range []string{`{"a":{"$pii":"0"}}`, `{"\u0024pii":"0"}`} {
		_, _, err = shredding.Attach([]byte(forged), nil)
		require.Error(t, err, forged)
	}
	plain := []byte(`{"a":1}`)
	bare, held, err = shredding.Detach(plain, at)
	require.NoError(t, err)
	require.Empty(t, held)
	require.Equal(t, plain, bare)
}

// A program that repeats a token makes no document that fills the memory.
func TestAttachLimit(t *testing.T) {
	t.Parallel()
	envelope, err := newBox(t).seal(shredding.Field{Pointer: "/data/email"}, []byte(`"`+strings.Repeat("a", 10_000)+`"`))
	require.NoError(t, err)
	at := knownLocation()
	held := []shredding.Sealed{{Envelope: envelope, Subject: "person:p-1", Origin: &at}}
	document, _, err := shredding.Attach([]byte(`{"a":[`+strings.Repeat(`{"$pii":"0"},`, 100)+`0]}`), held)
	require.NoError(t, err)
	require.Greater(t, len(document), 1_000_000)
	_, _, err = shredding.Attach([]byte(`{"a":[`+strings.Repeat(`{"$pii":"0"},`, 80_000)+`0]}`), held)
	require.Equal(t, "pii.document_too_large", fault.CodeOf(err))
}

package shredding_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

func TestSealedValuesAreMovedAsTokens(t *testing.T) {
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
func TestRepeatedTokensAreBounded(t *testing.T) {
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

package shredding_test

import (
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/shredding"
)

func TestCopiesTellWhereTheyWereSealed(t *testing.T) {
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

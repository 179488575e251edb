package verify

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/test/testkit/allfields"
)

func TestEventLine_KeepsEveryField(t *testing.T) {
	t.Parallel()
	var want event.Recorded
	allfields.Fill(&want.Skeleton)
	allfields.Fill(&want.Salt)
	want.Payload = []byte(`{"data":{}}`)

	text, err := encodeLine(lineOf(&want, nil))
	require.NoError(t, err)
	var line eventLine
	require.True(t, decodeLine(text, &line))
	got, _, ok := line.recorded(want.Partition)
	require.True(t, ok)
	require.Equal(t, want, got)
}

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	require.Equal(t, "DEMF|vendor|vat:DE1", idempotencyKey("DEMF", "vendor", "vat:DE1"))
	for _, unfit := range []string{"party:ÅNGSTRÖM", "party:" + strings.Repeat("9", 300), "a b", "a\nb"} {
		key := idempotencyKey("DEMF", "vendor", unfit)
		require.Len(t, key, 64)
		require.NotEqual(t, key, idempotencyKey("USMF", "vendor", unfit))
	}
	long := idempotencyKey("DEMF", "vendor", strings.Repeat("9", maxKey-len("DEMF|vendor|")))
	require.Len(t, long, maxKey)
	require.Len(t, long+"|"+digest("x"), 255)
}

func TestProgress_CountsByStatus(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newProgress(&out, 3)
	p.step(FileResult{Status: StatusAccepted})
	p.step(FileResult{Status: StatusRefused})
	p.step(FileResult{Status: StatusDuplicate})
	p.close()
	require.Contains(t, out.String(), "3/3")
	require.Contains(t, out.String(), "1 accepted, 1 duplicate, 1 refused")

	out.Reset()
	p = newProgress(&out, 3)
	p.step(FileResult{Status: StatusAccepted})
	p.close() // an import that ended early does not hang
	require.Contains(t, out.String(), "1/3")
	require.False(t, isTerminal(&out))
}

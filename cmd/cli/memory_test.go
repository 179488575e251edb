package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGCPercentFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		live    uint64
		percent int
	}{{0, 400}, {1 << 20, 400}, {38 << 20, 400}, {48 << 20, 300}, {64 << 20, 200}, {96 << 20, 100}, {192 << 20, 100}, {8 << 30, 100}} {
		require.Equal(t, c.percent, gcPercentFor(c.live), "%d MiB", c.live>>20)
	}
}

package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRetrySchedulesAreReadable(t *testing.T) {
	t.Parallel()
	require.Equal(t, "never; a failure is a dead letter at once", scheduleText(nil))
	require.Equal(t, "0s, 10s, 1m, 1m20s, 1h, 1h10m, 2h0m5s; then a dead letter, 4h12m35s after the first attempt", scheduleText([]int64{0, 10, 60, 80, 3600, 4200, 7205}))
}

package cli

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForbidCoreDumps(t *testing.T) {
	require.NoError(t, forbidCoreDumps())
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_CORE, &limit))
	require.Zero(t, limit.Cur)
	require.Zero(t, limit.Max)
}

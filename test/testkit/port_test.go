package testkit_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

func TestAddressesAreFreeAndDifferent(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 20 {
		address := testkit.Address(t)
		require.False(t, seen[address])
		seen[address] = true
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
	}
}

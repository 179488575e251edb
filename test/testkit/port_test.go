package testkit_test

import (
	"net"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

func TestAddress(t *testing.T) {
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

// TestAddressDuringForks reserves addresses while programs are started, each of which holds
// inherited descriptors until its exec.
func TestAddressDuringForks(t *testing.T) {
	t.Parallel()
	end, programs := make(chan struct{}), sync.WaitGroup{}
	t.Cleanup(programs.Wait)
	t.Cleanup(sync.OnceFunc(func() { close(end) }))
	for range 4 {
		programs.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					if err := exec.Command("true").Run(); err != nil {
						t.Errorf("true: %v", err)
						return
					}
				}
			}
		})
	}
	for range 300 {
		l, err := net.Listen("tcp", testkit.Address(t))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}

package testkit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// reserved holds the addresses that this process has returned.
var reserved sync.Map

// Address reserves a free TCP address on the loopback interface for a server that a test
// kills and restarts there. The port lies below the ephemeral range: an ephemeral port may
// go to another program while the server is down, or to the client that connects to it,
// which would then talk to itself.
func Address(t testing.TB) string {
	t.Helper()
	const lowest, count = 20_000, 10_000
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(count))
		if _, taken := reserved.LoadOrStore(address, true); taken {
			continue
		}
		if !isFree(address) {
			continue
		}
		return address
	}
	t.Fatal("testkit: no free port on the loopback interface")
	return ""
}

// isFree reports whether an address has no listener. It connects instead of listening: a
// process that is forked at that moment would inherit the listener and hold the port until
// its exec.
func isFree(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		_ = conn.Close() // a program listens there
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

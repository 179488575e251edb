package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
)

// given remembers which addresses this process was given.
var given sync.Map

// Address is a TCP address on the loopback interface that nobody listens on, for a server
// that is killed and comes back there. The port lies below those that systems give to
// whoever asks for any: of those, another program may get it while the server is away, or
// a client that knocks there gets it for its own end and talks to itself.
func Address(t testing.TB) string {
	t.Helper()
	const lowest, count = 20_000, 10_000
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(count))
		if _, taken := given.LoadOrStore(address, true); taken {
			continue
		}
		if !free(t, address) {
			continue
		}
		return address
	}
	t.Fatal("testkit: no free port on the loopback interface")
	return ""
}

// free tells whether nobody listens on an address. No process is started meanwhile: until it
// runs its program it would keep the port.
func free(t testing.TB, address string) bool {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	if err := l.Close(); err != nil {
		t.Fatalf("testkit: giving %s back: %v", address, err)
	}
	return true
}

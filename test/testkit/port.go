package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
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
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue // somebody is there
		}
		if err := l.Close(); err != nil {
			t.Fatalf("testkit: giving %s back: %v", address, err)
		}
		return address
	}
	t.Fatal("testkit: no free port on the loopback interface")
	return ""
}

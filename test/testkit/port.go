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
		if !free(address) {
			continue
		}
		return address
	}
	t.Fatal("testkit: no free port on the loopback interface")
	return ""
}

// free tells whether nobody listens on an address. It knocks: if it listened there itself,
// a program that is being started meanwhile would keep the port open until it runs.
func free(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		_ = conn.Close() // somebody is there
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

package configs

import (
	"fmt"
	"time"
)

// Subscriptions configures the persistent subscriptions.
type Subscriptions struct {
	PerTenant int           `config:"per_tenant"` // subscriptions of one tenant
	PollBytes int           `config:"poll_bytes"` // payloads of the answer to one poll; a larger event is answered alone
	Sweep     time.Duration `config:"sweep"`      // how often a node looks for expired leases and due retries
	Recheck   time.Duration `config:"recheck"`    // how often a poll that waits for open messages reads what other nodes acknowledged
	Measure   time.Duration `config:"measure"`    // how often a node measures subscriptions and removes what deleted ones left
	Orphans   time.Duration `config:"orphans"`    // how often a node looks for parked messages whose subscription an older node deleted
}

func defaultSubscriptions() Subscriptions {
	return Subscriptions{PerTenant: 1000, PollBytes: 8 << 20, Sweep: 500 * time.Millisecond, Recheck: 500 * time.Millisecond, Measure: 15 * time.Second, Orphans: time.Hour}
}

func (s Subscriptions) validate() error {
	for _, n := range [...]struct {
		key              string
		value, low, high int
	}{
		{"per_tenant", s.PerTenant, 1, 100_000}, {"poll_bytes", s.PollBytes, 64 << 10, 256 << 20},
	} {
		if n.value < n.low || n.value > n.high {
			return &Error{Key: "subscriptions." + n.key, Problem: fmt.Sprintf("is out of range; use %d to %d", n.low, n.high)}
		}
	}
	for _, d := range [...]struct {
		key              string
		value, low, high time.Duration
	}{
		{"sweep", s.Sweep, 50 * time.Millisecond, time.Minute}, {"recheck", s.Recheck, 50 * time.Millisecond, time.Minute}, {"measure", s.Measure, time.Second, 10 * time.Minute},
		{"orphans", s.Orphans, time.Minute, 24 * time.Hour},
	} {
		if d.value < d.low || d.value > d.high {
			return &Error{Key: "subscriptions." + d.key, Problem: fmt.Sprintf("is out of range; use %s to %s", d.low, d.high)}
		}
	}
	return nil
}

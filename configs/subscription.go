package configs

import "time"

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

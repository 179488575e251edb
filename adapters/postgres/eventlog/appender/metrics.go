package appender

import (
	"time"
)

// Metrics observes the append engine. Its methods are called on the hot path and
// must not block.
type Metrics interface {
	// ObserveAppend reports one request: from queueing to its answer, how many events
	// it carried, and the fault code ("" is success).
	ObserveAppend(latency time.Duration, events int, code string)
	// ObserveGroup reports one transaction: how many requests and events shared it
	// and how long it took.
	ObserveGroup(requests, events int, duration time.Duration)
	// ObserveQueue reports what waits for an appender.
	ObserveQueue(appender, requests, bytes int)
	// ObserveDetours reports in how many partitions appends wait for a lock that
	// another session holds.
	ObserveDetours(partitions int)
}

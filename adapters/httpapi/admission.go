package httpapi

import (
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// admission bounds the requests with a body that are in flight, and the bytes of their bodies, on
// this node and for each principal. A request that is over a limit is refused before its body is
// read: a wait would hold its connection, and the caller knows better when to try again.
type admission struct {
	limits Limits

	mu         sync.Mutex
	node       usage
	principals map[admitted]usage
}

// admitted is a principal of a tenant.
type admitted struct{ tenant, principal string }

// usage is what requests in flight occupy.
type usage struct {
	requests int
	bytes    int64
}

// retryBusy is the Retry-After of a refusal. Most requests end in less.
const retryBusy = time.Second

// ticket is the right of one request to be in flight.
type ticket struct {
	admission *admission
	who       admitted
	bytes     int64
}

// enter admits a request with a body of so many bytes. Faults: http.principal_busy,
// http.server_busy.
func (a *admission) enter(who admitted, bytes int64) (*ticket, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	own := a.principals[who]
	if own.requests >= a.limits.PrincipalRequests || own.bytes+bytes > a.limits.PrincipalBytes {
		return nil, fault.New(fault.TooMany, "http.principal_busy",
			"you have as many requests in flight, or bytes of their bodies, as one principal may have; wait for answers, then send again").
			WithRetryAfter(retryBusy)
	}
	if a.node.requests >= a.limits.Requests || a.node.bytes+bytes > a.limits.Bytes {
		return nil, fault.New(fault.Unavailable, "http.server_busy",
			"this server has as many requests in flight, or bytes of their bodies, as it may hold; send again in a moment").
			WithRetryAfter(retryBusy)
	}
	a.add(who, 1, bytes)
	return &ticket{a, who, bytes}, nil
}

// add counts a change of a principal's usage; a.mu is locked.
func (a *admission) add(who admitted, requests int, bytes int64) {
	own := a.principals[who]
	own.requests, own.bytes = own.requests+requests, own.bytes+bytes
	a.node.requests, a.node.bytes = a.node.requests+requests, a.node.bytes+bytes
	if own.requests == 0 {
		delete(a.principals, who)
		return
	}
	a.principals[who] = own
}

// received gives back what the body had less than was announced.
func (t *ticket) received(bytes int64) {
	t.admission.mu.Lock()
	defer t.admission.mu.Unlock()
	t.admission.add(t.who, 0, bytes-t.bytes)
	t.bytes = bytes
}

// leave ends the request.
func (t *ticket) leave() {
	t.admission.mu.Lock()
	defer t.admission.mu.Unlock()
	t.admission.add(t.who, -1, -t.bytes)
}

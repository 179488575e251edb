package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

const (
	loadEntity  = "USMF"
	loadVendor  = "V-LOAD"
	loadClients = 16

	fullSpeed = time.Nanosecond // the pause of a load that only the server slows down
)

// load is clients that submit invoices and raw events under idempotency keys, and repeat each
// request until it is acknowledged, also while the server is down.
type load struct {
	server atomic.Pointer[dev]
	stop   chan struct{}
	done   sync.WaitGroup

	acknowledged atomic.Int64
	repeats      atomic.Int64 // requests sent again because the answer did not come

	mutex    sync.Mutex
	told     []confirmation
	invoices int // of the confirmations
	failures []error
}

// startLoad starts the load on a server that has the vendor and the event type. Each client sends
// a request as soon as the one before is acknowledged, but at most one in a pause.
func startLoad(t *testing.T, d *dev, pause time.Duration) *load {
	t.Helper()
	registerMachines(t, d)
	d.as(t, "vendor_admin").must(t, loadEntity, "ap.register_vendor", object{"vendor_id": loadVendor, "name": "Load Ltd", "country": "US"})
	l := &load{stop: make(chan struct{})}
	l.server.Store(d)
	for worker := range loadClients {
		l.done.Add(1)
		go func() {
			defer l.done.Done()
			pace := time.NewTicker(pause)
			defer pace.Stop()
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				case <-pace.C:
				}
				if err := l.one(fmt.Sprintf("%d-%d", worker, i), i%2 == 0); err != nil {
					l.mutex.Lock()
					l.failures = append(l.failures, err)
					l.mutex.Unlock()
					return
				}
			}
		}()
	}
	return l
}

// one sends a request until it is acknowledged, and returns an error for an answer that no
// crash explains.
func (l *load) one(key string, asInvoice bool) error {
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for {
		out, again, err := l.send(key, asInvoice)
		if err == nil {
			l.mutex.Lock()
			defer l.mutex.Unlock()
			l.told = append(l.told, confirmation{key, loadEntity, out})
			if asInvoice {
				l.invoices++
			}
			l.acknowledged.Add(1)
			return nil
		}
		if !again {
			return fmt.Errorf("%s: %w", key, err)
		}
		l.repeats.Add(1)
		<-pause.C
	}
}

func (l *load) send(key string, asInvoice bool) (out outcome, again bool, err error) {
	d := l.server.Load()
	var a answer
	if asInvoice {
		a, err = clientOf(d.devFile, "ap_clerk").submit(loadEntity, "ap.submit_invoice", invoice(loadVendor, "L-"+key), "Idempotency-Key", "invoice-"+key)
	} else {
		a, err = clientOf(d.devFile, "module").do("POST", "/api/events", batch(machineServiced(loadEntity, "M-"+key, `{"hours":1}`)), "Idempotency-Key", "event-"+key)
	}
	switch {
	case err != nil: // no server, or it ended during the request
		return out, true, err
	case a.status >= 500, a.code() == "idempotency.in_progress":
		return out, true, errors.New(a.String())
	case a.status != http.StatusCreated && (a.status != http.StatusOK || a.header.Get("Idempotency-Replayed") != "true"):
		return out, false, errors.New(a.String())
	}
	return out, false, a.decode(&out)
}

// await waits for more acknowledgements.
func (l *load) await(t *testing.T, more int64) {
	t.Helper()
	target := l.acknowledged.Load() + more
	testkit.Eventually(t, 2*time.Minute, func() bool {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		require.Empty(t, l.failures)
		return l.acknowledged.Load() >= target
	}, "acknowledgements; so far ", l.acknowledged.Load())
}

// finish ends the load after the acknowledgement of all requests in flight, and requires that the log
// has each acknowledged event once, and what the simulation requires of logs.
func (l *load) finish(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.done.Wait()
	require.Empty(t, l.failures)
	d := l.server.Load()
	j := judge(t, d.DSN)
	j.requireConfirmed(t, l.told)
	invoices, raw := 0, 0
	events := j.books[j.partitions[loadEntity]]
	for i := range events {
		switch e := &events[i]; e.Type {
		case "ap.invoice.submitted":
			if bytes.Contains(e.Payload, []byte(`"`+loadVendor+`"`)) { // others are of the test's own
				invoices++
			}
		case machineType:
			raw++
		}
	}
	// Every request was repeated until it was acknowledged, so there is no other event.
	require.Equal(t, []int{l.invoices, len(l.told) - l.invoices}, []int{invoices, raw})
	requireBooksAgree(t, d, loadEntity)
	t.Logf("%d invoices and %d raw events, %d requests sent again", invoices, raw, l.repeats.Load())
}

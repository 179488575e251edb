package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

const (
	fleetWriters  = 8
	fleetMachines = 6                     // in each legal entity
	fleetPace     = 25 * time.Millisecond // of a writer, at most
	fleetAhead    = 1000                  // events that writers may be ahead of the slowest subscriber
)

// fleetEntities are the legal entities of the writers; the first has books.
var fleetEntities = []string{"USMF", "FLTA", "FLTB", "FLTC"}

// writers append at all nodes. Each repeats a request at the next node, under the same key,
// until it is acknowledged.
type writers struct {
	fleet   *fleet
	readers *readers
	cancel  context.CancelFunc
	done    sync.WaitGroup

	acknowledged atomic.Int64 // events
	machines     atomic.Int64 // of them about machines
	held         atomic.Int64 // turns that writers skipped for the slowest subscriber

	mutex    sync.Mutex
	told     []confirmation
	failures []error
}

// startWriters starts writers that are at most fleetAhead events ahead of the slowest
// subscriber: on a slow machine one that gets its events one by one would otherwise need
// longer for the rest than the drill waits.
func startWriters(t *testing.T, f *fleet, r *readers) *writers {
	t.Helper()
	f.as(t, "vendor_admin", http.StatusCreated, "/api/intents", `{"type":"ap.register_vendor","legal_entity":"USMF","payload":{"vendor_id":"V-FLEET","name":"Fleet Ltd","country":"US"}}`)
	ctx, cancel := context.WithCancel(context.Background())
	w := &writers{fleet: f, readers: r, cancel: cancel}
	t.Cleanup(cancel)
	for writer := range fleetWriters {
		w.done.Go(func() {
			pace := time.NewTicker(fleetPace)
			defer pace.Stop()
			for i := 0; ; {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
				}
				if int(w.machines.Load())-r.slowest() > fleetAhead {
					w.held.Add(1)
					continue
				}
				if err := w.writeOne(writer, i); err != nil {
					w.mutex.Lock()
					w.failures = append(w.failures, err)
					w.mutex.Unlock()
					return
				}
				i++
			}
		})
	}
	return w
}

// slowest is how many events about machines the slowest of the readers has that get these
// events only.
func (r *readers) slowest() int {
	least := math.MaxInt
	for _, b := range []*deliveryLog{r.group, r.clumsy, r.hook} {
		seen, _, _ := b.count()
		least = min(least, seen)
	}
	return least
}

// as sends a request that must succeed, since there is no fault.
func (f *fleet) as(t *testing.T, role string, status int, path, body string) {
	t.Helper()
	require.NoError(t, f.client(f.nodes[0], role).want(status, nil, "POST", path, body))
}

// writeOne writes one request. Ending the traffic does not cancel a request in flight.
func (w *writers) writeOne(writer, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	key := fmt.Sprintf("fleet-%d-%d", writer, i)
	entity := fleetEntities[(writer+i)%len(fleetEntities)]
	var a answer
	var err error
	var events []string // about machines
	if i%16 == 3 {
		entity = "USMF"
		amount := 100 + i*fleetWriters + writer // equal documents would be held as suspects
		paper := invoice("V-FLEET", key)
		paper["total_amount"] = amount
		line := paper["lines"].([]object)[0]
		line["quantity"], line["unit_price"], line["amount"] = 1, amount, amount
		body, _ := json.Marshal(object{"type": "ap.submit_invoice", "legal_entity": entity, "payload": paper})
		if a, err = w.fleet.sendToAny(ctx, writer+i, "ap_clerk", "POST", "/api/intents", string(body), "Idempotency-Key", key); err == nil && i%32 == 3 {
			if err = w.recordEvents(key, entity, a); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			var out outcome
			if err := a.decode(&out); err != nil {
				return err
			}
			key = "approve-" + key
			body := fmt.Sprintf(`{"type":"ap.approve_invoice","legal_entity":%q,"payload":{"invoice_id":%q}}`, entity, out.IntentID)
			a, err = w.fleet.sendToAny(ctx, writer+i+1, "approver", "POST", "/api/intents", body, "Idempotency-Key", key)
		}
	} else {
		machine := func(n int) string {
			return machineServiced(entity, fmt.Sprintf("M-%d", n%fleetMachines), fmt.Sprintf(`{"hours":%d}`, i%9))
		}
		events = []string{machine(writer + i/3)}
		if i%4 == 0 {
			events = append(events, machine(writer+i+1), machine(i))
		}
		a, err = w.fleet.sendToAny(ctx, writer+i, "module", "POST", "/api/events", batch(events...), "Idempotency-Key", key)
	}
	if err == nil {
		err = w.recordEvents(key, entity, a)
	}
	if err != nil {
		return fmt.Errorf("%s in %s: %w", key, entity, err)
	}
	w.machines.Add(int64(len(events)))
	return nil
}

// recordEvents records the answer to the request with a key.
func (w *writers) recordEvents(key, entity string, a answer) error {
	if a.status != http.StatusCreated && (a.status != http.StatusOK || a.header.Get("Idempotency-Replayed") != "true") {
		return fmt.Errorf("answered %s", a)
	}
	var out outcome
	if err := a.decode(&out); err != nil {
		return err
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.told = append(w.told, confirmation{key, entity, out})
	w.acknowledged.Add(int64(len(out.Events)))
	return nil
}

// await waits for more acknowledged events.
func (w *writers) await(t *testing.T, more int64) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(w.progress(t))
		}
	}()
	target := w.acknowledged.Load() + more
	testkit.Eventually(t, settleTime, func() bool {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		require.Empty(t, w.failures)
		require.NoError(t, w.readers.failure(), "writers wait for the slowest reader")
		return w.acknowledged.Load() >= target
	}, "acknowledged events")
}

// progress reports what stopped a failed drill: the writers, a reader, or a lock.
func (w *writers) progress(t *testing.T) string {
	t.Helper()
	out := fmt.Sprintf("%d events acknowledged, %d about machines, %d turns of writers skipped for the slowest subscriber",
		w.acknowledged.Load(), w.machines.Load(), w.held.Load())
	for _, b := range []*deliveryLog{w.readers.group, w.readers.clumsy, w.readers.hook, w.readers.ordered} {
		seen, repeats, _ := b.count()
		out += fmt.Sprintf("; %s has %d events, %d repeats", b.name, seen, repeats)
	}
	var blocked string
	w.fleet.query(t, `SELECT coalesce(string_agg(format('session %s waits for %s: %s', pid, pg_blocking_pids(pid), left(query, 120)), '; '), 'no session is blocked')
		FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0`, &blocked)
	return out + "; " + blocked
}

// finish ends the traffic after the acknowledgement of all requests in flight.
func (w *writers) finish(t *testing.T) {
	t.Helper()
	w.cancel()
	w.done.Wait()
	require.Empty(t, w.failures)
	t.Logf("%d events acknowledged, %d turns of writers skipped for the slowest subscriber", w.acknowledged.Load(), w.held.Load())
}

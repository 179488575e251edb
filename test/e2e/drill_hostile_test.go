package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hostileBodies are bodies of up to 4 MiB, by path, that cost a server as much as their kind can:
// some are refused by the scanner, some later, and some are accepted.
func hostileBodies() map[string][]string {
	const size = 3_900_000
	fill := func(before, item, after string) string {
		return before + strings.TrimSuffix(strings.Repeat(item+",", (size-len(before)-len(after))/(len(item)+1)), ",") + after
	}
	names := func(before, after string) string {
		var b strings.Builder
		b.WriteString(before)
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, `"n%d":0,`, i)
		}
		return strings.TrimSuffix(b.String(), ",") + after
	}
	numbers := strings.TrimSuffix(strings.Repeat("1,", 18_000), ",")
	valid := make([]string, 100)
	for i := range valid {
		valid[i] = machineServiced("USMF", "M-"+strconv.Itoa(i), `{"hours":1,"filler":[`+numbers+`]}`)
	}
	plain := machineServiced("USMF", "M-1", `{"hours":1}`)
	before, after, _ := strings.Cut(plain, `"department":"OPS"`)
	intent := `{"type":"gl.post_journal","legal_entity":"USMF","payload":`
	journal := func(count int, line, last string) string {
		return intent + `{"description":"x","posting_date":"2026-03-15","dimensions":{"department":"OPS"},"lines":[` + strings.Repeat(line+",", count-1) + last + `]}}`
	}
	const debit = `{"account":"1000","debit_credit":"debit","amount":1}`
	return map[string][]string{
		"/api/events": {
			fill(`{"events":[`, `{}`, `]}`),
			fill(`{"events":[`, `null`, `]}`),
			fill(`{"events":[{"entities":[`, `{}`, `]}]}`),
			fill(`{"events":[{"expected_entities":[`, `{}`, `]}]}`),
			fill(`{"append_condition":{"items":[`, `{"types":["a"]}`, `]},"events":[]}`),
			names(`{"events":[`+before, after+`]}`),
			names(`{`, `}`),
			batch(valid...), // accepted
			fill(`{"events":[{"data":{"filler":[`, `[[[[[[[[1]]]]]]]]`, `]}}]}`),
		},
		"/api/intents": {
			fill(intent+`[`, `1`, `]}`),
			names(intent+`{`, `}}`),
			journal(10_000, `{"account":"?","debit_credit":"both","amount":"1"}`, debit), // each line violates the schema
			journal(10_000, debit, debit), // planned, and has too many lines
			journal(2_000, debit, debit),  // planned, and does not balance
			journal(2_000, debit, `{"account":"6000","debit_credit":"credit","amount":1999}`),                // planned, and lacks a dimension at its end
			journal(2_000, debit, `{"account":"1000","debit_credit":"credit","amount":1999}`),                // executed
			journal(11_000, `{"account":"1000","debit_credit":"debit","amount":1,"description":"x"}`, debit), // too many values
		},
		"/api/query": {
			fill(`{"legal_entity":"USMF","items":[`, `{"types":["a"]}`, `]}`),
			fill(`{"legal_entity":"USMF","items":[{"types":[`, `"a"`, `]}]}`),
		},
	}
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// configureLedger gives USMF books with the period 2026-03 open, and returns their controller.
func configureLedger(t *testing.T, admin client, accountant string) client {
	t.Helper()
	admin.must(t, "USMF", "gl.configure_ledger", object{"functional_currency": "USD", "second_person": false})
	books := admin.as(accountant)
	books.must(t, "USMF", "gl.define_dimension_value", object{"dimension": "department", "value": "OPS", "name": "Operations"})
	books.must(t, "USMF", "gl.define_account", object{"code": "1000", "name": "Bank", "type": "asset"})
	books.must(t, "USMF", "gl.define_account", object{"code": "6000", "name": "Services", "type": "expense", "required_dimensions": []string{"project"}})
	controller := admin.as(admin.enroll(t, "p-controller", "controller"))
	controller.must(t, "USMF", "gl.define_fiscal_year", object{"label": "2026", "start": "2026-01-01", "end": "2026-12-31"})
	controller.must(t, "USMF", "gl.open_period", object{"module": "gl", "period": "2026-03"})
	return controller
}

// TestDrillHostileClients lets 64 clients send the most expensive bodies at once, half of them
// leaving before the answer, with the rights to do what the bodies ask for. Each body gets past
// admission at least once. The server stays below 512 MB of memory and answers each health check
// within 5 seconds.
func TestDrillHostileClients(t *testing.T) {
	t.Parallel()
	const clients, limit, maxWait = 64, 512 << 10, 5 * time.Second // limit in kB
	i := install(t)
	p, anonymous := i.serve(t)
	i.machines(t, anonymous.server)
	require.NoError(t, anonymous.as(i.admin).want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"USMF","name":"US","time_zone":"UTC"}`))
	services, accountants := make([]string, 4), make([]string, 4)
	for n := range services {
		services[n] = i.enroll(t, "s-hostile-"+strconv.Itoa(n), "module", "--service")
		accountants[n] = i.enroll(t, "p-hostile-"+strconv.Itoa(n), "gl_accountant")
	}
	tokens := map[string][]string{"/api/events": services, "/api/intents": accountants, "/api/query": accountants}
	configureLedger(t, anonymous.as(i.admin), accountants[0])
	type body struct{ path, text string }
	var bodies []body
	for path, texts := range hostileBodies() {
		for _, text := range texts {
			bodies = append(bodies, body{path, text})
		}
	}
	require.Less(t, len(bodies), clients/2, "a client stays for each body")
	// The health check has connections of its own: those of the bodies are busy.
	probe := client{server: anonymous.server, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}, Timeout: maxWait}}
	t.Cleanup(probe.http.CloseIdleConnections)
	var probes, slowest atomic.Int64
	checkHealth := func() error {
		began := time.Now()
		err := probe.want(200, nil, "GET", "/livez", "")
		took := int64(time.Since(began))
		for known := slowest.Load(); took > known && !slowest.CompareAndSwap(known, took); known = slowest.Load() {
		}
		probes.Add(1)
		return err
	}
	var answers sync.Map // from path and status to *atomic.Int64
	// send answers whether the server worked on the body.
	send := func(n int, b body, stay bool) (bool, error) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, anonymous.server+b.path, bytes.NewReader([]byte(b.text)))
		if err != nil {
			return false, err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+tokens[b.path][n%len(tokens[b.path])])
		if !stay {
			r.Body = &leavingBody{Reader: strings.NewReader(b.text), leave: leave}
		}
		res, err := transport.RoundTrip(r)
		if err != nil { // such as of a body that the server refuses before it has read it
			return false, checkHealth()
		}
		count, _ := answers.LoadOrStore(fmt.Sprint(b.path, " ", res.StatusCode), new(atomic.Int64))
		count.(*atomic.Int64).Add(1)
		refused := res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable
		return !refused, res.Body.Close()
	}
	started := time.Now()
	var hostile sync.WaitGroup
	ended := make(chan struct{})
	for n := range clients {
		hostile.Go(func() {
			mine := -1 // the body that this client sends until the server works on it
			if n%2 == 1 && n/2 < len(bodies) {
				mine = n / 2
			}
			for round := range bodies {
				next := (n/2 + round) % len(bodies)
				for t.Context().Err() == nil {
					admitted, err := send(n, bodies[next], n%2 == 1)
					if err != nil {
						t.Error(err)
						return
					}
					if admitted || next != mine {
						break
					}
				}
			}
		})
	}
	go func() {
		hostile.Wait()
		close(ended)
	}()
	for alive := true; alive; {
		require.NoError(t, checkHealth())
		select {
		case <-ended:
			alive = false
		default:
		}
	}
	took := time.Since(started)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	found := highWater.FindSubmatch(text)
	require.NotNil(t, found)
	peak, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	seen := map[string]int64{}
	answers.Range(func(answer, count any) bool {
		seen[answer.(string)] = count.(*atomic.Int64).Load()
		return true
	})
	for _, answer := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%s: %d answers", answer, seen[answer])
		require.NotContains(t, answer, " 403", "a body that is not worked on proves nothing")
	}
	t.Logf("peak of memory: %d MB; bodies: %s; slowest of %d /livez: %s", peak>>10, took.Round(time.Second), probes.Load(), time.Duration(slowest.Load()).Round(time.Millisecond))
	require.Less(t, peak, limit)
	for _, answer := range []string{"/api/events 201", "/api/events 413", "/api/intents 201", "/api/intents 400", "/api/intents 413", "/api/intents 422", "/api/query 413"} {
		require.Contains(t, seen, answer, "the server works under attack")
	}
}

// leavingBody calls leave once it has been read to its end.
type leavingBody struct {
	*strings.Reader
	leave func()
}

func (b *leavingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.Len() == 0 {
		b.leave()
	}
	return n, err
}

func (b *leavingBody) Close() error { return nil }

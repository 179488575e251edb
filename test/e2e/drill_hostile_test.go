package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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
			intent + `{"description":"x","lines":[` + strings.TrimSuffix(strings.Repeat(`{"account":"1","debit_credit":"debit","amount":1},`, 10_000), ",") + `]}}`,
		},
		"/api/query": {
			fill(`{"legal_entity":"USMF","items":[`, `{"types":["a"]}`, `]}`),
			fill(`{"legal_entity":"USMF","items":[{"types":[`, `"a"`, `]}]}`),
		},
	}
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// TestDrillHostileClients lets 64 clients send the most expensive bodies at once, half of them
// leaving before the answer. The server stays below 512 MB of memory and answers its health check.
func TestDrillHostileClients(t *testing.T) {
	t.Parallel()
	const clients, limit = 64, 512 << 10 // kB
	i := install(t)
	p, anonymous := i.serve(t)
	i.machines(t, anonymous.server)
	require.NoError(t, anonymous.as(i.admin).want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"USMF","name":"US","time_zone":"UTC"}`))
	tokens := make([]string, 4)
	for n := range tokens {
		tokens[n] = i.enroll(t, "s-hostile-"+strconv.Itoa(n), "module", "--service")
	}
	type body struct{ path, text string }
	var bodies []body
	for path, texts := range hostileBodies() {
		for _, text := range texts {
			bodies = append(bodies, body{path, text})
		}
	}
	var statuses sync.Map // to *atomic.Int64
	send := func(n int, b body, stay bool) error {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, anonymous.server+b.path, bytes.NewReader([]byte(b.text)))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+tokens[n%len(tokens)])
		if !stay {
			r.Body = &leavingBody{Reader: strings.NewReader(b.text), leave: leave}
		}
		res, err := transport.RoundTrip(r)
		if err != nil {
			return nil
		}
		count, _ := statuses.LoadOrStore(res.StatusCode, new(atomic.Int64))
		count.(*atomic.Int64).Add(1)
		return res.Body.Close()
	}
	var hostile sync.WaitGroup
	ended := make(chan struct{})
	for n := range clients {
		hostile.Go(func() {
			for round := range bodies {
				if err := send(n, bodies[(n+round)%len(bodies)], n%2 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() {
		hostile.Wait()
		close(ended)
	}()
	for alive := true; alive; {
		require.NoError(t, anonymous.want(200, nil, "GET", "/livez", ""))
		select {
		case <-ended:
			alive = false
		default:
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	found := highWater.FindSubmatch(text)
	require.NotNil(t, found)
	peak, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	statuses.Range(func(status, count any) bool {
		t.Logf("%d: %d answers", status, count.(*atomic.Int64).Load())
		return true
	})
	t.Logf("peak of memory: %d MB", peak>>10)
	require.Less(t, peak, limit)
	_, accepted := statuses.Load(http.StatusCreated)
	require.True(t, accepted, "the server works under attack")
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

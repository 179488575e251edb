package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

const liveTime = time.Minute

// eventsPrinted returns the legal entity and sequence of each line that a tail printed.
func eventsPrinted(t *testing.T, p *process) (out []string) {
	t.Helper()
	lines := strings.Split(p.stdout.String(), "\n")
	for _, line := range lines[:len(lines)-1] {
		var e placedEvent
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		out = append(out, e.Scope.LegalEntity+"/"+e.Sequence)
	}
	return out
}

func awaitLines(t *testing.T, p *process, n int) []string {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(p.stdout.String(), "\n") >= n }, liveTime, 10*time.Millisecond, "%s", p.stderr)
	return eventsPrinted(t, p)
}

// TestLiveFeeds follows the server over both transports through a restart: a tail continues by
// itself, a WebSocket gets the cursor to continue from.
func TestLiveFeeds(t *testing.T) {
	t.Parallel()
	dir := copyOfBooks(t)
	address := testkit.Address(t)
	d := startOn(t, dir, recoveryStart, "--http", address)
	env := d.as(t, "auditor").environment()
	start := func(args ...string) *process {
		p, err := launch(program(t), "", env, append([]string{"tail"}, args...)...)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.end()) })
		_, err = p.awaitOutput(p.stderr, regexp.MustCompile(`Caught up`), liveTime)
		require.NoError(t, err)
		return p
	}
	tail := start("--json", "--legal-entity", "USMF")
	invoices := start("--legal-entity", "USMF", "--type", "ap.invoice.submitted")

	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, strings.Replace(d.HTTP, "http", "ws", 1)+"/api/subscribe/streams/$all?from=now&legal_entities=USMF",
		&websocket.DialOptions{Subprotocols: []string{"backbone.v1", "bearer." + d.Tokens["auditor"]}})
	require.NoError(t, err)
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(4 << 20)
	type message struct {
		Type   string      `json:"type"`
		Event  placedEvent `json:"event"`
		Cursor string      `json:"cursor"`
	}
	receive := func() (m message, err error) {
		for {
			_, text, err := conn.Read(ctx)
			if err != nil {
				return m, err
			}
			require.NoError(t, json.Unmarshal(text, &m))
			if m.Type != "heartbeat" {
				return m, nil
			}
		}
	}
	first, err := receive()
	require.NoError(t, err)
	require.Equal(t, "caughtUp", first.Type)

	submit := func(number string) {
		d.as(t, "ap_clerk").must(t, "USMF", "ap.submit_invoice", invoice("V-LIVE", number))
	}
	d.as(t, "vendor_admin").must(t, "USMF", "ap.register_vendor", object{"vendor_id": "V-LIVE", "name": "Live Ltd", "country": "US"})
	submit("LIVE-1")
	before, err := d.as(t, "auditor").head("USMF")
	require.NoError(t, err)
	var received []string
	var last message
	for len(received) == 0 || received[len(received)-1] != "USMF/"+before {
		last, err = receive()
		require.NoError(t, err)
		require.Equal(t, "event", last.Type)
		received = append(received, last.Event.Scope.LegalEntity+"/"+last.Event.Sequence)
	}
	require.Equal(t, received, awaitLines(t, tail, len(received)))

	// The server ends: the WebSocket gets a message with its cursor; the tail waits.
	code, err := d.interrupt()
	require.NoError(t, err)
	require.Zero(t, code)
	bye, err := receive()
	require.NoError(t, err)
	require.Equal(t, "error", bye.Type)
	_, err = receive()
	require.Equal(t, websocket.StatusGoingAway, websocket.CloseStatus(err), "%v", err)
	_, err = tail.awaitOutput(tail.stderr, regexp.MustCompile(`Connection lost`), liveTime)
	require.NoError(t, err)

	// A killed session sends no notification; the reader detects it.
	d = startOn(t, dir, recoveryStart, "--http", address)
	submit("LIVE-2")
	require.NoError(t, d.signal(syscall.SIGKILL))
	<-d.ended
	d = startOn(t, dir, recoveryStart, "--http", address)
	submit("LIVE-3")
	after, err := d.as(t, "auditor").head("USMF")
	require.NoError(t, err)

	var from, to int
	_, err = fmt.Sscanf(received[0]+" "+after, "USMF/%d %d", &from, &to)
	require.NoError(t, err)
	var want []string
	for n := from; n <= to; n++ {
		want = append(want, fmt.Sprintf("USMF/%d", n))
	}
	require.Equal(t, want, awaitLines(t, tail, len(want)))
	require.Eventually(t, func() bool { return strings.Count(invoices.stdout.String(), "ap.invoice.submitted") == 3 }, liveTime, 10*time.Millisecond, "%s", invoices.stdout)

	// The last cursor of the WebSocket is valid in every other read.
	var page struct {
		Events []placedEvent `json:"events"`
	}
	require.NoError(t, d.as(t, "auditor").want(http.StatusOK, &page, "GET", "/api/streams/$all?from="+bye.Cursor, ""))
	var rest []string
	for _, e := range page.Events {
		if e.Scope.LegalEntity == "USMF" && !slices.Contains(received, "USMF/"+e.Sequence) {
			rest = append(rest, "USMF/"+e.Sequence)
		}
	}
	require.Equal(t, want[len(received):], rest)

	code, err = tail.interrupt()
	require.NoError(t, err)
	require.Zero(t, code)
	require.Contains(t, tail.stderr.String(), "Continue behind the last event with --from ")
	require.Equal(t, want, eventsPrinted(t, tail), "nothing twice")

	for args, message := range map[string]string{
		"--token=":              "BACKBONE_TOKEN",
		"--stream x":            "TYPE/ID",
		"--from nowhere":        "cursor",
		"--legal-entity XXXX":   "no legal entity",
		"--stream a/b --type x": "none of the others can be",
	} {
		r := command(t, env, append([]string{"tail"}, strings.Fields(args)...)...)
		require.Equal(t, 1, r.code, args)
		require.Contains(t, r.stderr, message, args)
	}
}

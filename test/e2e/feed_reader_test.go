package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// proxyIdle is how long the proxy of a test lets a connection be silent: many heartbeats, so
// that a busy machine may skip some.
const proxyIdle = 15 * time.Second

// startProxy starts a proxy of a server that ends idle connections, and returns its host:port.
func startProxy(t *testing.T, server string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	carry := func(client net.Conn) {
		defer func() { _ = client.Close() }()
		behind, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer func() { _ = behind.Close() }()
		go func() { _, _ = io.Copy(behind, client) }()
		b := make([]byte, 64<<10)
		for behind.SetReadDeadline(time.Now().Add(proxyIdle)) == nil {
			n, err := behind.Read(b)
			if err != nil {
				return
			}
			if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go carry(client)
		}
	}()
	return listener.Addr().String()
}

// feedEvent is an event or a heartbeat that a reader received.
type feedEvent struct {
	beat     bool
	sequence string
	cursor   string
}

// feedReader reads one feed; next fails when the connection has ended.
type feedReader struct {
	next func() (feedEvent, error)
	end  func()
}

// dialSmallBuffers dials with small buffers, so that the server notices a client that does not
// read.
func dialSmallBuffers(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		err = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	}
	return conn, err
}

func overWebSocket(t *testing.T, c client, from string) feedReader {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), strings.Replace(c.server, "http", "ws", 1)+"/api/subscribe/streams/$all?from="+from, &websocket.DialOptions{
		Subprotocols: []string{"backbone.v1", "bearer." + c.token}, HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dialSmallBuffers}},
	})
	require.NoError(t, err)
	conn.SetReadLimit(1 << 20)
	next := func() (feedEvent, error) {
		ctx, cancel := context.WithTimeout(t.Context(), liveTime)
		defer cancel()
		for {
			_, text, err := conn.Read(ctx)
			if err != nil {
				return feedEvent{}, err
			}
			var m struct {
				Type   string      `json:"type"`
				Event  placedEvent `json:"event"`
				Cursor string      `json:"cursor"`
			}
			if err := json.Unmarshal(text, &m); err != nil {
				return feedEvent{}, err
			}
			if m.Type == "event" || m.Type == "heartbeat" {
				return feedEvent{m.Type == "heartbeat", m.Event.Sequence, m.Cursor}, nil
			}
		}
	}
	return feedReader{next, func() { _ = conn.CloseNow() }}
}

func overEvents(t *testing.T, c client, from string) feedReader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", c.server+"/api/subscribe/streams/$all", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+c.token)
	if from != "0" {
		r.Header.Set("Last-Event-ID", from)
	}
	res, err := (&http.Client{Transport: &http.Transport{DialContext: dialSmallBuffers}}).Do(r)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	lines := bufio.NewReader(res.Body)
	next := func() (out feedEvent, err error) {
		late := time.AfterFunc(liveTime, cancel)
		defer late.Stop()
		name := ""
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return feedEvent{}, err
			}
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch key {
			case "": // a heartbeat is a comment
				if value == "heartbeat" {
					out.beat = true
				}
				if name == "event" || out.beat && value == "" {
					return out, nil
				}
				name = ""
			case "id":
				out.cursor = value
			case "event":
				name = value
			case "data":
				var e placedEvent
				if err := json.Unmarshal([]byte(value), &e); err != nil {
					return feedEvent{}, err
				}
				out.sequence = e.Sequence
			}
		}
	}
	return feedReader{next, func() { cancel(); _ = res.Body.Close() }}
}

// TestDrillFeedReaders has readers of both kinds that stop reading, and ones that have
// nothing to read behind a proxy that ends what is silent.
func TestDrillFeedReaders(t *testing.T) {
	t.Parallel()
	i := install(t, "BACKBONE_FEEDS_HEARTBEAT=1s")
	p, one := i.serve(t, "BACKBONE_FEEDS_WRITE_TIMEOUT=1s")
	admin, module, auditor := one.as(i.admin), one.as(i.enroll(t, "s-machines", "module", "--service")), one.as(i.enroll(t, "p-0002", "auditor"))
	require.NoError(t, admin.want(http.StatusCreated, nil, "POST", "/api/admin/legal-entities", `{"code":"READ","name":"Reading","time_zone":"Europe/Berlin"}`))
	i.machines(t, one.server)
	const batches, of = 15, 10
	large := machineServiced("READ", "M-1", `{"hours":1,"filler":[`+strings.Repeat("1000000000,", 8000)+`0]}`)
	for range batches {
		require.NoError(t, module.want(http.StatusCreated, nil, "POST", "/api/events", batch(large, large, large, large, large, large, large, large, large, large)))
	}
	transports := map[string]func(*testing.T, client, string) feedReader{"websocket": overWebSocket, "sse": overEvents}

	cut, read, cursors := 0, map[string]int{}, map[string]string{}
	for name, open := range transports {
		slow := open(t, auditor, "0")
		cut++
		testkit.Eventually(t, endTime, func() bool { return strings.Count(p.stderr.String(), "feed.reader_too_slow") == cut }, "the end of a slow reader over "+name)
		// Buffered data is read, up to the end of the connection.
		seen, cursor := 0, ""
		for {
			e, err := slow.next()
			if err != nil {
				require.NotErrorIs(t, err, context.DeadlineExceeded, "the server ended it, not this test")
				require.NotErrorIs(t, err, context.Canceled)
				require.EqualValues(t, -1, websocket.CloseStatus(err), "a close frame with a reason does not fit into the middle of a message")
				break
			}
			if !e.beat {
				seen++
				require.Equal(t, fmt.Sprint(seen), e.sequence, name)
				cursor = e.cursor
			}
		}
		slow.end()
		require.Positive(t, seen, name)
		require.Less(t, seen, batches*of, "it was cut off over %s", name)
		read[name], cursors[name] = seen, cursor
	}

	// The server's limit for slow readers is long enough for a busy machine
	// for a second.
	require.NoError(t, p.end())
	_, one = i.serve(t)
	module, auditor = one.as(module.token), one.as(auditor.token)
	for name, open := range transports {
		again, seen := open(t, auditor, cursors[name]), read[name]
		for seen < batches*of {
			e, err := again.next()
			require.NoError(t, err, name)
			if !e.beat {
				seen++
				require.Equal(t, fmt.Sprint(seen), e.sequence, "without gap and repetition over %s", name)
			}
		}
		again.end()
	}

	// Heartbeats keep the proxy from ending a feed that has no events for longer than it allows.
	head := batches * of
	behind := auditor
	behind.server = "http://" + startProxy(t, strings.TrimPrefix(one.server, "http://"))
	page := must(auditor.do("GET", "/api/streams/$all?count=1000&include_data=false", ""))
	var last struct {
		Next string `json:"next_cursor"`
	}
	require.NoError(t, page.decode(&last))
	idle := map[string]feedReader{}
	for name, open := range transports {
		idle[name] = open(t, behind, last.Next)
	}
	const beats = 20 // a second each: longer than the proxy allows
	var listening sync.WaitGroup
	for name, reader := range idle {
		listening.Go(func() {
			for range beats {
				if e, err := reader.next(); err != nil || !e.beat {
					t.Errorf("%s: %v %v", name, e, err)
					return
				}
			}
		})
	}
	listening.Wait()
	require.False(t, t.Failed())
	head++
	require.NoError(t, module.want(http.StatusCreated, nil, "POST", "/api/events", batch(machineServiced("READ", "M-1", `{"hours":1}`))))
	for name, reader := range idle {
		for {
			e, err := reader.next()
			require.NoError(t, err, name)
			if !e.beat {
				require.Equal(t, fmt.Sprint(head), e.sequence, name)
				break
			}
		}
		reader.end()
	}
}

//go:build bench

package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/modules"
)

// logName is that of every log in this package.
const logName = "bench.example.org"

// serve runs the real server in this process. The load generator shares the
// processors with it in any case; in one process a profile has both. Without
// projections only clients read the events.
func serve(t *testing.T, dsn string, projections bool) (server *wire.Server, address string) {
	t.Helper()
	server, address, stop := startNode(t, dsn, projections, func(*configs.Config, *wire.Options) {})
	t.Cleanup(stop)
	return server, address
}

// startNode starts a server with another configuration, which runs until it is stopped.
func startNode(t *testing.T, dsn string, projections bool, configure func(*configs.Config, *wire.Options)) (server *wire.Server, address string, stop func()) {
	t.Helper()
	config := configs.Default()
	config.Database.DSN = configs.DSN(asApp(t, dsn))
	options := wire.Options{Modules: modules.BuiltIn(), AllowDevelopmentTokens: true, LogName: logName}
	configure(&config, &options)
	server, err := wire.NewServer(t.Context(), config, options)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served, ran := make(chan error, 1), make(chan struct{})
	go func() { served <- server.Serve(ctx, listener) }()
	go func() {
		defer close(ran)
		if projections {
			server.App.Run(ctx)
		}
	}()
	return server, listener.Addr().String(), func() {
		cancel()
		require.NoError(t, <-served)
		<-ran
		server.App.Close()
	}
}

// client is one keep-alive connection, opened when it is first used: the server
// closes idle connections. The client does as little as HTTP allows, since it shares the
// processors with the server.
type client struct {
	address, token string
	conn           net.Conn
	reader         *bufio.Reader
	out            []byte
	answer         bytes.Buffer
}

// newClients makes clients that end with the test.
func newClients(t *testing.T, n int, address, token string) []*client {
	t.Helper()
	out := make([]*client, n)
	for i := range out {
		out[i] = &client{address: address, token: token}
	}
	t.Cleanup(func() {
		for _, c := range out {
			if c.conn != nil {
				_ = c.conn.Close() // nothing is lost with it
			}
		}
	})
	return out
}

// send sends a request and reads the whole answer, which is valid until the next send.
func (c *client) send(method, path, idempotencyKey string, body []byte) (status int, answer []byte, err error) {
	if c.conn == nil {
		if c.conn, err = net.Dial("tcp", c.address); err != nil {
			return 0, nil, err
		}
		c.reader = bufio.NewReaderSize(c.conn, 32<<10)
	}
	c.out = fmt.Appendf(c.out[:0], "%s %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n", method, path, c.token)
	if idempotencyKey != "" {
		c.out = fmt.Appendf(c.out, "Idempotency-Key: %s\r\n", idempotencyKey)
	}
	if body != nil {
		c.out = fmt.Appendf(c.out, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	c.out = append(c.out, "\r\n"...)
	c.out = append(c.out, body...)
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, nil, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return 0, nil, err
	}
	c.answer.Reset()
	_, err = io.Copy(&c.answer, response.Body)
	_ = response.Body.Close() // the connection stays
	return response.StatusCode, c.answer.Bytes(), err
}

// want sends a request and requires a status.
func (c *client) want(status int, method, path, idempotencyKey string, body []byte) ([]byte, error) {
	got, answer, err := c.send(method, path, idempotencyKey, body)
	if err == nil && got != status {
		err = fmt.Errorf("%s %s answered %d instead of %d: %.800s", method, path, got, status, answer)
	}
	return answer, err
}

// countEvents counts the events of a page by a field that each has once.
func countEvents(answer []byte) int { return bytes.Count(answer, []byte(`"payload_hash"`)) }

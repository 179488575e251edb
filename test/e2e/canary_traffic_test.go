package e2e

import (
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// trafficRecorder is a proxy between a server and its database that records both directions, so
// that a test sees what was sent, not only what was stored.
type trafficRecorder struct {
	listener net.Listener
	database string // host:port
	folder   string
	open     sync.WaitGroup
	mutex    sync.Mutex
	failure  error
}

// startTrafficRecorder listens before the database of a DSN and writes into the folder.
func startTrafficRecorder(t *testing.T, dsn, folder string) *trafficRecorder {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &trafficRecorder{listener: listener, database: u.Host, folder: folder}
	go w.accept()
	return w
}

// dsnThrough is the same database through the proxy.
func (w *trafficRecorder) dsnThrough(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	require.Equal(t, w.database, u.Host)
	u.Host = w.listener.Addr().String()
	return u.String()
}

func (w *trafficRecorder) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.open.Go(func() { w.recordError(w.proxyConnection(client)) })
	}
}

func (w *trafficRecorder) recordError(err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.failure = errors.Join(w.failure, err)
}

// proxyConnection copies both directions of one connection until one side ends.
func (w *trafficRecorder) proxyConnection(client net.Conn) error {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", w.database)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	var both sync.WaitGroup
	for name, way := range map[string][2]net.Conn{"sent": {server, client}, "answered": {client, server}} {
		record, err := os.CreateTemp(w.folder, name+"-")
		if err != nil {
			return err
		}
		both.Go(func() {
			_, _ = io.Copy(io.MultiWriter(record, way[0]), way[1]) // a connection ends as it likes
			_, _ = way[0].Close(), way[1].Close()
			w.recordError(record.Close())
		})
	}
	both.Wait()
	return nil
}

// stop ends the proxy once the connections have ended.
func (w *trafficRecorder) stop() error {
	err := w.listener.Close()
	w.open.Wait()
	return errors.Join(err, w.failure)
}

// startCollector receives traces and writes them, decompressed, into the folder. It returns
// its host:port.
func startCollector(t *testing.T, folder string) string {
	t.Helper()
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(r.Body)
			if err != nil {
				http.Error(w, "not gzip", http.StatusBadRequest)
				return
			}
			body = unpacked
		}
		f, err := os.CreateTemp(folder, strings.ReplaceAll(filepath.Clean(r.URL.Path), "/", "_")+"-")
		if err == nil {
			_, err = io.Copy(f, body)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			http.Error(w, "not written", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(collector.Close)
	return strings.TrimPrefix(collector.URL, "http://")
}

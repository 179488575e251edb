// Package kmsd is a key management server for one machine. [Server] speaks the part of
// the AWS KMS protocol that this product uses (JSON 1.1 over HTTP POST, requests signed by
// [Signer]), so that the adapter awskms serves both. Package
// cmd/wire runs it for installations without AWS.
//
// The server stores keys in a folder of their own, one file per key, readable by the
// owner only and not encrypted any further: the folder belongs on an encrypted volume,
// outside the database and its backups. Deleting a key unlinks its file; that does not
// wipe flash cells or file system snapshots. The server never logs a key or a message.
package kmsd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/google/uuid"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const (
	targetPrefix  = "TrentService."
	contentType   = "application/x-amz-json-1.1"
	alarmLevel    = slog.LevelError
	sweepInterval = time.Minute // a destroyed key is refused at once; its file is removed at most this much later
	shutdownGrace = 5 * time.Second
)

// Config says how to open a Server.
type Config struct {
	Directory string       // folder of the keys; made if absent, mode 0700
	Logger    *slog.Logger // gets the audit: one line per call, never a key or a message
	Clock     ports.Clock  // decides when waiting periods end; nil is the machine's, tests set it
}

// Server serves the keys of one folder.
type Server struct {
	store *store
	auth  authenticator
	log   *slog.Logger
}

// Open reads the keys and locks their folder for this process. Issue makes the credentials
// before. Faults: kmsd.keys_exposed if other users may read the folder or a file in it,
// kmsd.keys_in_use, kmsd.key_damaged, kmsd.credentials_damaged, kmsd.credentials_missing,
// kmsd.credentials_former.
func Open(c Config) (*Server, error) {
	now := time.Now
	if c.Clock != nil {
		now = c.Clock.Now
	}
	store, err := openStore(c.Directory, now, c.Logger)
	if err != nil {
		return nil, err
	}
	credentials, err := openCredentials(store.directory)
	if err != nil {
		_ = store.close()
		return nil, err
	}
	return &Server{store: store, log: c.Logger, auth: authenticator{credentials: credentials, signer: v4.NewSigner(), now: time.Now}}, nil
}

// Close overwrites the keys and unlocks the folder. Call it after Serve has returned.
func (s *Server) Close() error { return s.store.close() }

// Listen opens an address for Serve: "127.0.0.1:PORT" or another loopback address,
// or "unix:PATH" for a socket of mode 0600. Fault kmsd.listen_invalid for any other.
func Listen(address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return listenUnix(path)
	}
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, fault.New(fault.Invalid, "kmsd.listen_invalid", "the key server answers on this machine only; listen on 127.0.0.1:PORT or unix:PATH")
	}
	return net.Listen("tcp", address)
}

func listenUnix(path string) (net.Listener, error) {
	listener, err := net.Listen("unix", path)
	if err != nil && isStaleSocket(path) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		listener, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, fileMode); err != nil {
		_ = listener.Close()
		return nil, err
	}
	return listener, nil
}

// isStaleSocket reports whether the path is a socket that a killed server left.
func isStaleSocket(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return false
	}
	return true
}

// Serve answers on a listener until ctx ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1) // buffered: after a shutdown Serve does not receive
	go func() { served <- server.Serve(listener) }()
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	for {
		select {
		case err := <-served:
			return fmt.Errorf("serve keys: %w", err)
		case <-sweep.C:
			if err := s.store.deleteDue(); err != nil {
				s.log.LogAttrs(ctx, alarmLevel, "kms key not destroyed", slog.String("error", err.Error()))
			}
		case <-ctx.Done():
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
			defer cancel()
			if err := server.Shutdown(grace); err != nil {
				_ = server.Close()
			}
			return nil
		}
	}
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	requestID := uuid.NewString()
	c := &call{}
	answer, err := s.answer(c, w, r)
	level, outcome, status := slog.LevelInfo, "ok", http.StatusOK
	if err != nil {
		level = slog.LevelWarn
		e, ok := errors.AsType[*apiError](err)
		if !ok {
			s.log.LogAttrs(r.Context(), alarmLevel, "kms call failed", slog.String("request_id", requestID), slog.String("error", err.Error()))
			e = &apiError{http.StatusInternalServerError, "KMSInternalException", "The server failed; see its log, and try again"}
		}
		outcome, status = e.name, e.status
		answer = errorAnswer{Type: e.name, Message: e.message}
		w.Header().Set("X-Amzn-Errortype", e.name)
	}
	s.reply(w, requestID, status, answer)
	s.log.LogAttrs(r.Context(), level, "kms call", slog.String("request_id", requestID), slog.String("operation", c.operation), principalAttr(c.principal),
		keysAttr(c.keys), slog.Any("encryption_context", c.context), slog.String("outcome", outcome), slog.Duration("elapsed", time.Since(began)))
}

func principalAttr(principal string) slog.Attr { return slog.String("principal", principal) }

func keysAttr(ids []string) slog.Attr { return slog.Any("key_ids", ids) }

// errorAnswer is an error on the wire.
type errorAnswer struct {
	Type    string `json:"__type"`
	Message string `json:"message"`
}

// answer authenticates a request and runs its operation.
func (s *Server) answer(c *call, w http.ResponseWriter, r *http.Request) (any, error) {
	if r.Method != http.MethodPost || r.URL.Path != "/" || r.URL.RawQuery != "" {
		return nil, unsupported("Calls are POST requests to /")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maximumBody))
	if err != nil {
		return nil, validation("The body cannot be read or has more than %d bytes", maximumBody)
	}
	defer clear(body)
	principal, err := s.auth.authenticate(r, body)
	if err != nil {
		return nil, err
	}
	c.principal, c.body = principal, body
	operation, _ := strings.CutPrefix(r.Header.Get("X-Amz-Target"), targetPrefix)
	handle, ok := operations[operation]
	if !ok || r.Header.Get("X-Amz-Target") != targetPrefix+operation {
		return nil, unsupported("This server does not serve that operation")
	}
	c.operation = operation
	if !mayCall(principal, operation) {
		return nil, refuse("AccessDeniedException", "The principal %s may not call %s; use the credentials of another principal", principal, operation)
	}
	return handle(s, c)
}

func (s *Server) reply(w http.ResponseWriter, requestID string, status int, answer any) {
	body := []byte("{}")
	if answer != nil {
		encoded, err := json.Marshal(answer)
		if err != nil {
			s.log.Log(context.Background(), alarmLevel, "kms answer not encoded", "request_id", requestID)
			encoded, status = []byte(`{"__type":"KMSInternalException"}`), http.StatusInternalServerError
		}
		body = encoded
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Amzn-Requestid", requestID)
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has gone
	if secret, ok := answer.(secretAnswer); ok {
		clear(secret.Plaintext)
		clear(body)
	}
}

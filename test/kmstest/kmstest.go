// Package kmstest serves the key service of the product inside the process of a test.
package kmstest

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/ports"
)

// Server is a key service that answers on a free loopback port until the test ends.
type Server struct {
	Endpoint    string
	Credentials string // file with the profiles of the product
	BreakGlass  string // file with the profile kmsd.BreakGlass
}

// Serve serves a new folder of keys. clock ends the waiting periods of its keys; nil: the system's.
func Serve(tb testing.TB, clock ports.Clock) Server {
	tb.Helper()
	folder := filepath.Join(tb.TempDir(), "keys")
	s := Server{Credentials: folder + "-credentials", BreakGlass: folder + "-breakglass"}
	require.NoError(tb, kmsd.IssueTo(folder, s.Credentials))
	require.NoError(tb, kmsd.IssueBreakGlass(folder, s.BreakGlass))
	server, err := kmsd.Open(kmsd.Config{Directory: folder, Logger: slog.New(slog.DiscardHandler), Clock: clock})
	require.NoError(tb, err)
	listener, err := kmsd.Listen("127.0.0.1:0")
	require.NoError(tb, err)
	s.Endpoint = "http://" + listener.Addr().String()
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	tb.Cleanup(func() {
		stop()
		require.NoError(tb, <-served)
		require.NoError(tb, server.Close())
	})
	return s
}

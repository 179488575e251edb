package natsd_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/nats/natsd"
	"github.com/erpbackbone/backbone/domain/fault"
)

// The sub-tests share PATH, so they run one after the other.
func TestStart(t *testing.T) {
	config := natsd.Config{Directory: filepath.Join(t.TempDir(), "nats"), User: "backbone", Password: `p"w\d`, Logger: slog.New(slog.DiscardHandler)}

	t.Run("missing program is a fault with the next step", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, err := natsd.Start(config)
		require.Equal(t, "dev.nats_not_found", fault.CodeOf(err))
		require.ErrorContains(t, err, "install it")
	})

	bin := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(bin, "nats-server"), "github.com/nats-io/nats-server/v2")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))

	t.Run("server of a killed backbone is ended and its streams are kept", func(t *testing.T) {
		first, err := natsd.Start(config)
		require.NoError(t, err)
		streams := connect(t, first)
		_, err = streams.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept.>"}})
		require.NoError(t, err)
		_, err = streams.Publish(t.Context(), "kept.1", []byte("1"))
		require.NoError(t, err)

		config.Port = first.Port()
		second, err := natsd.Start(config) // while the first still runs
		require.NoError(t, err)
		t.Cleanup(second.Stop)
		require.Equal(t, first.Port(), second.Port())
		stream, err := connect(t, second).Stream(t.Context(), "KEPT")
		require.NoError(t, err)
		message, err := stream.GetMsg(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, "1", string(message.Data))
	})

	t.Run("server that cannot start reports its reason", func(t *testing.T) {
		broken := config
		broken.Directory = filepath.Join(t.TempDir(), "nats")
		require.NoError(t, os.MkdirAll(broken.Directory, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(broken.Directory, "jetstream"), nil, 0o600)) // where a folder must be
		_, err := natsd.Start(broken)
		require.Equal(t, "dev.nats_start_failed", fault.CodeOf(err))
	})
}

func connect(t *testing.T, s *natsd.Server) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(s.URL())
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	streams, err := jetstream.New(conn)
	require.NoError(t, err)
	return streams
}

package cli

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/awskms"
	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// serveKeys runs the command's work until stop is called, and gives the address it
// prints.
func serveKeys(t *testing.T, listen, folder string) (address string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- serveKMSD(ctx, kmsdOptions{Listen: listen, Keys: folder, Out: writer, Audit: io.Discard})
		_ = writer.Close()
	}()
	for lines := bufio.NewScanner(reader); lines.Scan(); {
		if found, ok := strings.CutPrefix(lines.Text(), "Listening on "); ok {
			return found, func() {
				cancel()
				require.NoError(t, <-done)
			}
		}
	}
	t.Fatal(<-done)
	return "", nil
}

func keyClient(t *testing.T, endpoint, folder, profile string) *awskms.Client {
	t.Helper()
	client, err := awskms.New(t.Context(), awskms.Config{Endpoint: endpoint, Region: kmsd.Region, CredentialsFile: filepath.Join(folder, kmsd.CredentialsFile), Profile: profile, Limits: awskms.Limits{Timeout: 2 * time.Second, Tries: 3, Backoff: 100 * time.Millisecond}})
	require.NoError(t, err)
	return client
}

func TestKMSD(t *testing.T) {
	t.Parallel()
	short, err := os.MkdirTemp("", "kmsd") // socket names are short, t.TempDir's are long
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	folder, socket := filepath.Join(t.TempDir(), "keys"), "unix:"+filepath.Join(short, "s")
	bound := ports.EncryptionContext{"bb": "dek/1"}

	address, stop := serveKeys(t, "127.0.0.1:0", folder)
	k, err := keyClient(t, "http://"+address, folder, kmsd.Rotator).Create(t.Context(), "alias/acme/epoch-1", ports.WrapDataKeys)
	require.NoError(t, err)
	made, err := keyClient(t, "http://"+address, folder, kmsd.App).Generate(t.Context(), k.ID, bound)
	require.NoError(t, err)
	_, err = keyClient(t, "http://"+address, folder, kmsd.App).ScheduleDeletion(t.Context(), k.ID, 7)
	require.Equal(t, "kms.access_denied", fault.CodeOf(err))
	stop()

	_, stop = serveKeys(t, socket, folder)
	_, err = keyClient(t, socket, folder, kmsd.App).Unwrap(t.Context(), k.ID, made.Wrapped, bound)
	require.NoError(t, err)
	stop()
	_, err = keyClient(t, socket, folder, kmsd.App).Unwrap(t.Context(), k.ID, made.Wrapped, bound)
	require.Equal(t, "kms.unavailable", fault.CodeOf(err))
}

func TestKMSDRefusesPublicAddress(t *testing.T) {
	t.Parallel()
	err := serveKMSD(t.Context(), kmsdOptions{Listen: "0.0.0.0:0", Keys: filepath.Join(t.TempDir(), "keys"), Out: io.Discard, Audit: io.Discard})
	require.Equal(t, "kmsd.listen_invalid", fault.CodeOf(err))
}

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
	client, err := awskms.New(t.Context(), awskms.Config{Endpoint: endpoint, Region: kmsd.Region, CredentialsFile: folder + "-credentials", Profile: profile, Signer: kmsd.Signer{}, Limits: awskms.Limits{Timeout: 2 * time.Second, Tries: 3, Backoff: 100 * time.Millisecond}})
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
	require.NoError(t, kmsd.IssueTo(folder, folder+"-credentials"))

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

// TestKMSDBreakGlass keeps a key whose deletion is scheduled, with credentials that lie apart.
func TestKMSDBreakGlass(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "keys")
	run := func(args ...string) error {
		cmd := kmsdCommand()
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SilenceUsage = true
		return cmd.ExecuteContext(t.Context())
	}
	require.Equal(t, "kmsd.credentials_unwritable", fault.CodeOf(run("credentials", "--keys", folder)))
	require.NoError(t, run("credentials", "--keys", folder, "--out", folder+"-credentials", "--break-glass", folder+"-breakglass"))
	address, stop := serveKeys(t, "127.0.0.1:0", folder)
	defer stop()
	endpoint := "http://" + address
	rotator := keyClient(t, endpoint, folder, kmsd.Rotator)
	k, err := rotator.Create(t.Context(), "alias/acme/epoch-1", ports.WrapDataKeys)
	require.NoError(t, err)
	_, err = rotator.ScheduleDeletion(t.Context(), k.ID, 7)
	require.NoError(t, err)
	require.Equal(t, "kms.access_denied", fault.CodeOf(rotator.CancelDeletion(t.Context(), k.ID)))
	state := func() ports.KeyState {
		t.Helper()
		k, err := rotator.Describe(t.Context(), k.ID)
		require.NoError(t, err)
		return k.State
	}
	require.Equal(t, ports.KeyPendingDeletion, state())
	for action, want := range map[string]string{"explode": "kms.request_invalid", "cancel-deletion": ""} {
		require.Equal(t, want, fault.CodeOf(run("break-glass", action, k.ID, "--endpoint", endpoint, "--credentials", folder+"-breakglass")), action)
	}
	require.Equal(t, ports.KeyDisabled, state())
	require.NoError(t, run("break-glass", "enable", k.ID, "--endpoint", endpoint, "--credentials", folder+"-breakglass"))
	require.Equal(t, ports.KeyEnabled, state())
	require.Equal(t, "kms.credentials_unreadable", fault.CodeOf(run("break-glass", "disable", k.ID, "--endpoint", endpoint, "--credentials", folder+"-credentials")))
}

func TestKMSDRefusesPublicAddress(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, kmsd.IssueTo(folder, folder+"-credentials"))
	err := serveKMSD(t.Context(), kmsdOptions{Listen: "0.0.0.0:0", Keys: folder, Out: io.Discard, Audit: io.Discard})
	require.Equal(t, "kmsd.listen_invalid", fault.CodeOf(err))
}

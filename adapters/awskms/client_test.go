package awskms_test

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/awskms"
	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/kmstest"
)

func TestNewRefusesInsecureEndpoints(t *testing.T) {
	t.Parallel()
	credentials := kmstest.Serve(t, nil).Credentials
	for endpoint, good := range map[string]bool{
		"https://kms.eu-central-1.amazonaws.com": true, "http://127.0.0.1:8089": true, "http://localhost:1/": true, "http://[::1]:1": true, "unix:/run/kms.sock": true, "": true,
		"http://kms.example.org": false, "http://192.0.2.1:80": false, "kms.example.org": false, "unix:": false, "ftp://127.0.0.1": false,
		"http://user:password@127.0.0.1": false, "https://kms.example.org/path": false, "https://kms.example.org?x=1": false, "http://127.0.0.1.example.org": false, "%": false,
	} {
		_, err := awskms.New(t.Context(), awskms.Config{Endpoint: endpoint, Region: "local", CredentialsFile: credentials, Profile: kmsd.App, Signer: kmsd.Signer{}, Limits: limits})
		if good {
			require.NoError(t, err, endpoint)
		} else {
			require.Equal(t, "kms.endpoint_invalid", fault.CodeOf(err), endpoint)
			require.NotContains(t, err.Error(), "password")
		}
	}
}

func TestNewChecksConfig(t *testing.T) {
	t.Parallel()
	credentials := kmstest.Serve(t, nil).Credentials
	_, err := awskms.New(t.Context(), awskms.Config{})
	require.Equal(t, "kms.region_missing", fault.CodeOf(err))
	_, err = awskms.New(t.Context(), awskms.Config{Region: "local", CredentialsFile: credentials, Profile: kmsd.App, Signer: kmsd.Signer{}})
	require.ErrorContains(t, err, "Timeout")
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("[app]\n"), 0o600))
	for _, c := range []awskms.Config{
		{Region: "local", CredentialsFile: "/nowhere", Profile: "app"}, {Region: "local", CredentialsFile: credentials, Profile: "nobody"}, {Region: "local", CredentialsFile: empty, Profile: "app"},
	} {
		c.Limits = limits
		_, err := awskms.New(t.Context(), c)
		require.Equal(t, "kms.credentials_unreadable", fault.CodeOf(err))
	}
}

func TestObserver(t *testing.T) {
	t.Parallel()
	server := kmstest.Serve(t, nil)
	var mu sync.Mutex
	var seen []string
	client := newClient(t, awskms.Config{Endpoint: server.Endpoint, Region: kmsd.Region, CredentialsFile: server.Credentials, Profile: kmsd.App, Signer: kmsd.Signer{}, Observe: func(operation, outcome string, elapsed time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		require.Positive(t, elapsed)
		seen = append(seen, operation+" "+outcome)
	}}, nil)
	bound := ports.EncryptionContext{"a": "b"}
	_, err := client.Generate(t.Context(), "alias/none", bound)
	require.Equal(t, "kms.key_not_found", fault.CodeOf(err))
	_, err = client.Sign(t.Context(), "alias/none", []byte("x"))
	require.Equal(t, "kms.access_denied", fault.CodeOf(err))
	admin := newClient(t, awskms.Config{Endpoint: server.Endpoint, Region: kmsd.Region, CredentialsFile: server.Credentials, Profile: kmsd.Rotator, Signer: kmsd.Signer{}}, nil)
	k, err := admin.Create(t.Context(), "alias/x", ports.WrapDataKeys)
	require.NoError(t, err)
	_, err = client.Generate(t.Context(), k.ID, bound)
	require.NoError(t, err)
	require.Equal(t, []string{"GenerateDataKey kms.key_not_found", "Sign kms.access_denied", "GenerateDataKey ok"}, seen)
}

// TestUnwrapTimesOutOnSilentServer uses a real socket; the suite replaces the transport.
func TestUnwrapTimesOutOnSilentServer(t *testing.T) {
	t.Parallel()
	credentials := kmstest.Serve(t, nil).Credentials
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	c := awskms.Config{Endpoint: "http://" + silent.Addr().String(), Region: kmsd.Region, CredentialsFile: credentials, Profile: kmsd.App, Signer: kmsd.Signer{}, Limits: awskms.Limits{Timeout: 100 * time.Millisecond}}
	began := time.Now()
	_, err = newClient(t, c, nil).Unwrap(t.Context(), "key", []byte("wrapped"), ports.EncryptionContext{"a": "b"})
	require.Equal(t, "kms.unavailable", fault.CodeOf(err))
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
}

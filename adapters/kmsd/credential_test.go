package kmsd_test

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/domain/fault"
)

func openFolder(folder string) error {
	s, err := kmsd.Open(kmsd.Config{Directory: folder, Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = s.Close()
	}
	return err
}

// TestIssue: the key folder holds public keys only, every principal has a file of its own, and
// new credentials end the former ones.
func TestIssue(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	stored, err := os.ReadFile(filepath.Join(r.folder, "principals"))
	require.NoError(t, err)
	for _, name := range append(kmsd.ServerPrincipals(), kmsd.BreakGlass) {
		require.NotContains(t, string(stored), r.credentials(t, name).SecretAccessKey)
	}
	for _, name := range kmsd.ServerPrincipals() {
		path := filepath.Join(r.issued(), name)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotContains(t, string(content), kmsd.BreakGlass)
	}
	former := r.request(t, kmsd.App, "Decrypt", "{}")
	require.Equal(t, "kmsd.keys_in_use", fault.CodeOf(kmsd.IssueTo(r.folder, r.issued())))
	require.NoError(t, r.Close())
	require.NoError(t, kmsd.IssueTo(r.folder, r.issued()))
	r.open(t)
	status, answer := r.do(t, former)
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, "UnrecognizedClientException", answer["__type"])
	_, err = r.Authenticate(r.request(t, kmsd.App, "Decrypt", "{}"), []byte("{}"))
	require.NoError(t, err)
	_, err = r.Authenticate(r.request(t, kmsd.BreakGlass, "Decrypt", "{}"), []byte("{}"))
	require.NoError(t, err, "only those that were issued again ended")
}

func TestIssue_Places(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	folder, out := filepath.Join(root, "keys"), filepath.Join(root, "credentials")
	require.Equal(t, "kmsd.credentials_beside_keys", fault.CodeOf(kmsd.IssueTo(folder, folder)))
	require.Equal(t, "kmsd.credentials_beside_keys", fault.CodeOf(kmsd.IssueTo(folder, filepath.Join(folder, "in", "it"))))
	require.Equal(t, "kmsd.credentials_beside_keys", fault.CodeOf(kmsd.IssueBreakGlass(folder, filepath.Join(folder, "breakglass"))))
	require.NoError(t, kmsd.IssueTo(folder, out))
	require.Equal(t, "kmsd.credentials_beside_keys", fault.CodeOf(kmsd.IssueBreakGlass(folder, filepath.Join(out, "breakglass"))))
	file := filepath.Join(root, "breakglass")
	require.NoError(t, kmsd.IssueBreakGlass(folder, file))
	require.Equal(t, "kmsd.credentials_unwritable", fault.CodeOf(kmsd.IssueBreakGlass(folder, file)), "it is not overwritten")
	require.Equal(t, "kmsd.credentials_unwritable", fault.CodeOf(kmsd.IssueBreakGlass(folder, filepath.Join(root, "none", "breakglass"))))

	server := filepath.Join(t.TempDir(), "kms.credentials")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(server), "other.conf"), []byte("[app]\nname = another\n"), 0o600))
	content, err := os.ReadFile(filepath.Join(out, kmsd.App))
	require.NoError(t, err)
	beside := filepath.Join(filepath.Dir(server), "emergency")
	require.NoError(t, os.WriteFile(server, content, 0o600))
	require.Equal(t, "kmsd.credentials_beside_keys", fault.CodeOf(kmsd.IssueBreakGlass(folder, beside)), "beside a file with the profiles of the server")
	require.NoError(t, os.Remove(server))
	require.NoError(t, kmsd.IssueBreakGlass(folder, beside))
	require.NoError(t, openFolder(folder))
}

// TestOpen_FormerCredentials opens a folder of an earlier release.
func TestOpen_FormerCredentials(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "keys")
	require.Equal(t, "kmsd.credentials_missing", fault.CodeOf(openFolder(folder)))
	former := filepath.Join(folder, "credentials")
	require.NoError(t, os.WriteFile(former, []byte("[app]\naws_access_key_id = BBKMA\naws_secret_access_key = x\n"), 0o600))
	require.Equal(t, "kmsd.credentials_former", fault.CodeOf(openFolder(folder)))
	require.NoError(t, kmsd.IssueTo(folder, folder+"-credentials"))
	require.NoFileExists(t, former)
	require.NoError(t, openFolder(folder))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "principals"), []byte("app BBKEA not-a-key\n"), 0o600))
	require.Equal(t, "kmsd.credentials_damaged", fault.CodeOf(openFolder(folder)))
}

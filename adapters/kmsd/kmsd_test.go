package kmsd_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// serverFixture is a server on a folder, and the means to call it.
type serverFixture struct {
	*kmsd.Server
	folder string
	clock  *testkit.Clock
	audit  *lines
}

// lines collects what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newServerFixture(t testing.TB) *serverFixture {
	t.Helper()
	r := &serverFixture{folder: filepath.Join(t.TempDir(), "keys"), clock: conformance.NewClock(), audit: &lines{}}
	require.NoError(t, kmsd.IssueTo(r.folder, r.issued()))
	require.NoError(t, kmsd.IssueBreakGlass(r.folder, r.breakGlass()))
	r.open(t)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// issued is the folder of the server's credentials.
func (r *serverFixture) issued() string { return r.folder + "-credentials" }

func (r *serverFixture) breakGlass() string { return r.folder + "-breakglass" }

func (r *serverFixture) open(t testing.TB) {
	t.Helper()
	server, err := kmsd.Open(r.config())
	require.NoError(t, err)
	r.Server = server
}

func (r *serverFixture) config() kmsd.Config {
	return kmsd.Config{Directory: r.folder, Clock: r.clock, Logger: slog.New(slog.NewJSONHandler(r.audit, nil))}
}

func (r *serverFixture) restart(t testing.TB) {
	t.Helper()
	require.NoError(t, r.Close())
	r.open(t)
}

func (r *serverFixture) credentials(t testing.TB, profile string) aws.Credentials {
	t.Helper()
	file := filepath.Join(r.issued(), profile)
	if profile == kmsd.BreakGlass {
		file = r.breakGlass()
	}
	shared, err := config.LoadSharedConfigProfile(t.Context(), profile, func(o *config.LoadSharedConfigOptions) {
		o.CredentialsFiles, o.ConfigFiles = []string{file}, []string{}
	})
	require.NoError(t, err)
	return shared.Credentials
}

// request makes a signed request.
func (r *serverFixture) request(t testing.TB, profile, operation, body string) *http.Request {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:4000/", strings.NewReader(body))
	request.Header.Set("X-Amz-Target", "TrentService."+operation)
	request.Header.Set("Content-Type", "application/x-amz-json-1.1")
	sign(t, request, r.credentials(t, profile), body, kmsd.Region, "kms", time.Now())
	return request
}

func sign(t testing.TB, request *http.Request, c aws.Credentials, body, region, service string, at time.Time) {
	t.Helper()
	hash := sha256.Sum256([]byte(body))
	require.NoError(t, kmsd.Signer{}.SignHTTP(context.Background(), c, request, hex.EncodeToString(hash[:]), service, region, at))
}

type object map[string]any

// call makes a call and gives status and answer.
func (r *serverFixture) call(t testing.TB, profile, operation, body string) (int, object) {
	t.Helper()
	return r.do(t, r.request(t, profile, operation, body))
}

func (r *serverFixture) do(t testing.TB, request *http.Request) (int, object) {
	t.Helper()
	recorder := httptest.NewRecorder()
	r.ServeHTTP(recorder, request)
	answer := object{}
	require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &answer))
	require.Equal(t, "no-store", recorder.Header().Get("Cache-Control"))
	return recorder.Code, answer
}

func (r *serverFixture) must(t testing.TB, operation, body string) object {
	t.Helper()
	status, answer := r.call(t, kmsd.BreakGlass, operation, body)
	require.Equal(t, http.StatusOK, status, answer)
	return answer
}

func (r *serverFixture) requireRefused(t testing.TB, name, operation, body string) {
	t.Helper()
	status, answer := r.call(t, kmsd.BreakGlass, operation, body)
	require.Equal(t, name, answer["__type"], "%s %s", operation, body)
	require.Equal(t, http.StatusBadRequest, status)
}

func (r *serverFixture) newKey(t testing.TB) string {
	t.Helper()
	metadata, ok := r.must(t, "CreateKey", `{}`)["KeyMetadata"].(map[string]any)
	require.True(t, ok)
	return metadata["KeyId"].(string)
}

func (r *serverFixture) state(t testing.TB, id string) any {
	t.Helper()
	return r.must(t, "DescribeKey", `{"KeyId":"`+id+`"}`)["KeyMetadata"].(map[string]any)["KeyState"]
}

func TestOpenReadsStoredKeys(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	id := r.newKey(t)
	r.must(t, "CreateAlias", `{"AliasName":"alias/acme/epoch-1","TargetKeyId":"`+id+`"}`)
	made := r.must(t, "GenerateDataKey", `{"KeyId":"alias/acme/epoch-1","KeySpec":"AES_256","EncryptionContext":{"k":"1"}}`)
	off := r.newKey(t)
	r.must(t, "DisableKey", `{"KeyId":"`+off+`"}`)
	r.restart(t)
	opened := r.must(t, "Decrypt", `{"KeyId":"alias/acme/epoch-1","CiphertextBlob":"`+made["CiphertextBlob"].(string)+`","EncryptionContext":{"k":"1"}}`)
	require.Equal(t, made["Plaintext"], opened["Plaintext"])
	require.Equal(t, "arn:aws:kms:local:000000000000:key/"+id, opened["KeyId"])
	require.Equal(t, "Disabled", r.state(t, off))
	require.Equal(t, opened["Plaintext"], r.must(t, "Decrypt", `{"CiphertextBlob":"`+made["CiphertextBlob"].(string)+`","EncryptionContext":{"k":"1"}}`)["Plaintext"])
}

func TestFileModes(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	r.must(t, "CreateAlias", `{"AliasName":"alias/x","TargetKeyId":"`+r.newKey(t)+`"}`)
	info, err := os.Stat(r.folder)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	entries, err := os.ReadDir(r.folder)
	require.NoError(t, err)
	require.Len(t, entries, 5) // lock, principals, key, state, aliases
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode(), e.Name())
	}
}

func TestOpenRefusesExposedFiles(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"", ".key", ".state", "principals", "aliases.json"} {
		r := newServerFixture(t)
		r.must(t, "CreateAlias", `{"AliasName":"alias/x","TargetKeyId":"`+r.newKey(t)+`"}`)
		require.NoError(t, r.Close())
		found, err := filepath.Glob(filepath.Join(r.folder, "*"+suffix))
		require.NoError(t, err)
		path := r.folder
		if suffix != "" {
			require.Len(t, found, 1)
			path = found[0]
		}
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, info.Mode().Perm()|0o040))
		_, err = kmsd.Open(r.config())
		want := "kmsd.keys_exposed"
		if suffix == ".state" {
			want = "kmsd.key_damaged" // which has the exposure as its cause
		}
		require.Equal(t, want, fault.CodeOf(err), suffix)
		require.NoError(t, os.Chmod(path, info.Mode().Perm()))
		r.open(t)
	}
}

func TestOpenRefusesDamagedFiles(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	id := r.newKey(t)
	require.NoError(t, r.Close())
	keyPath, statePath := filepath.Join(r.folder, id+".1.key"), filepath.Join(r.folder, id+".state")
	for _, path := range []string{keyPath, statePath} {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, damaged := range []string{"", "{}", string(content[:len(content)/2]), string(content) + "{}", strings.Replace(string(content), `"`, `"x`, 1)} {
			require.NoError(t, os.WriteFile(path, []byte(damaged), 0o600))
			_, err := kmsd.Open(r.config())
			require.Equal(t, "kmsd.key_damaged", fault.CodeOf(err), damaged)
			require.NotContains(t, err.Error(), "material\":")
		}
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
	require.NoError(t, os.Rename(statePath, statePath+".away"))
	_, err := kmsd.Open(r.config())
	require.Equal(t, "kmsd.key_damaged", fault.CodeOf(err))
	require.NoError(t, os.Rename(statePath+".away", statePath))
	r.open(t)
	require.Equal(t, "Enabled", r.state(t, id))
}

func TestOpenLocksFolder(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	_, err := kmsd.Open(r.config())
	require.Equal(t, "kmsd.keys_in_use", fault.CodeOf(err))
}

// Between fork and exec a child has copies of all descriptors of its parent. Close must unlock
// the folder even then.
func TestCloseUnlocksFolderDespiteChildProcess(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	copied, err := r.DuplicateLock()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, copied.Close()) })
	r.restart(t)
}

func TestScheduledDeletion(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	id := r.newKey(t)
	r.must(t, "CreateAlias", `{"AliasName":"alias/old","TargetKeyId":"`+id+`"}`)
	made := r.must(t, "GenerateDataKey", `{"KeyId":"`+id+`","KeySpec":"AES_256"}`)
	decrypt := `{"KeyId":"` + id + `","CiphertextBlob":"` + made["CiphertextBlob"].(string) + `"}`
	for _, days := range []string{"6", "31", "0", "-1", "7.5", `"7"`} {
		status, _ := r.call(t, kmsd.BreakGlass, "ScheduleKeyDeletion", `{"KeyId":"`+id+`","PendingWindowInDays":`+days+`}`)
		require.Equal(t, http.StatusBadRequest, status)
	}
	require.EqualValues(t, 7, r.must(t, "ScheduleKeyDeletion", `{"KeyId":"`+id+`"}`)["PendingWindowInDays"])
	r.clock.Advance(7*24*time.Hour - time.Second)
	require.NoError(t, r.DestroyDue())
	require.Equal(t, "PendingDeletion", r.state(t, id))
	r.requireRefused(t, "KMSInvalidStateException", "Decrypt", decrypt)

	r.clock.Advance(time.Second)
	for _, body := range []string{decrypt, strings.Replace(decrypt, id, "alias/old", 1)} {
		r.requireRefused(t, "NotFoundException", "Decrypt", body) // although its file is not removed yet
	}
	r.requireRefused(t, "NotFoundException", "CancelKeyDeletion", `{"KeyId":"`+id+`"}`)
	require.NoError(t, r.DestroyDue())
	left, err := filepath.Glob(filepath.Join(r.folder, id+"*"))
	require.NoError(t, err)
	require.Empty(t, left)
	r.must(t, "CreateAlias", `{"AliasName":"alias/old","TargetKeyId":"`+r.newKey(t)+`"}`)
	r.restart(t)
	r.requireRefused(t, "NotFoundException", "DescribeKey", `{"KeyId":"`+id+`"}`)
}

func TestOpenFinishesDeletions(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	due, interrupted, kept := r.newKey(t), r.newKey(t), r.newKey(t)
	r.must(t, "ScheduleKeyDeletion", `{"KeyId":"`+due+`","PendingWindowInDays":7}`)
	r.must(t, "CreateAlias", `{"AliasName":"alias/interrupted","TargetKeyId":"`+interrupted+`"}`)
	require.NoError(t, r.Close())
	require.NoError(t, os.Remove(filepath.Join(r.folder, interrupted+".1.key"))) // the crash came after the unlink
	r.clock.Advance(8 * 24 * time.Hour)
	r.open(t)
	for _, id := range []string{due, interrupted} {
		left, err := filepath.Glob(filepath.Join(r.folder, id+"*"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
	r.requireRefused(t, "NotFoundException", "DescribeKey", `{"KeyId":"alias/interrupted"}`)
	require.Equal(t, "Enabled", r.state(t, kept))
}

func TestAuditHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	id := r.newKey(t)
	signer := r.must(t, "CreateKey", `{"KeySpec":"ECC_NIST_EDWARDS25519","KeyUsage":"SIGN_VERIFY"}`)["KeyMetadata"].(map[string]any)["KeyId"].(string)
	made := r.must(t, "GenerateDataKey", `{"KeyId":"`+id+`","KeySpec":"AES_256","EncryptionContext":{"k":"shown-in-clear"}}`)
	r.must(t, "Decrypt", `{"KeyId":"`+id+`","CiphertextBlob":"`+made["CiphertextBlob"].(string)+`","EncryptionContext":{"k":"shown-in-clear"}}`)
	message := base64.StdEncoding.EncodeToString([]byte("a secret message"))
	r.must(t, "Sign", `{"KeyId":"`+signer+`","Message":"`+message+`","SigningAlgorithm":"ED25519_SHA_512"}`)
	r.requireRefused(t, "SerializationException", "Decrypt", `{"Unknown":"a secret parameter"}`)
	r.requireRefused(t, "SerializationException", "Decrypt", `{"CiphertextBlob":"a secret! parameter"}`)

	audit := r.audit.String()
	for _, operation := range []string{"CreateKey", "GenerateDataKey", "Decrypt", "Sign"} {
		require.Contains(t, audit, `"operation":"`+operation+`"`)
	}
	require.Contains(t, audit, "shown-in-clear")
	require.Contains(t, audit, id)
	require.Contains(t, audit, `"principal":"breakglass"`)
	plain, err := base64.StdEncoding.DecodeString(made["Plaintext"].(string))
	require.NoError(t, err)
	forbidden := []string{made["Plaintext"].(string), hex.EncodeToString(plain), string(plain), made["CiphertextBlob"].(string), message, "a secret", r.credentials(t, kmsd.BreakGlass).SecretAccessKey}
	for _, name := range []string{id, signer} {
		content, err := os.ReadFile(filepath.Join(r.folder, name+".1.key"))
		require.NoError(t, err)
		var file struct{ Material string }
		require.NoError(t, json.Unmarshal(content, &file))
		require.Len(t, file.Material, 44)
		forbidden = append(forbidden, file.Material)
	}
	for _, secret := range forbidden {
		require.NotContains(t, audit, secret)
	}
}

func TestAuditOfEveryCall(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	before := strings.Count(r.audit.String(), `"msg":"kms call"`)
	unsigned := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:4000/", strings.NewReader("{}"))
	r.do(t, unsigned)
	r.requireRefused(t, "UnsupportedOperationException", "Encrypt", "{}")
	_, answer := r.call(t, kmsd.App, "CreateKey", "{}")
	require.Equal(t, "AccessDeniedException", answer["__type"])
	audit := r.audit.String()
	require.Equal(t, before+3, strings.Count(audit, `"msg":"kms call"`))
	require.Contains(t, audit, `"outcome":"MissingAuthenticationTokenException"`)
	require.Contains(t, audit, `"outcome":"AccessDeniedException"`)

	id := r.newKey(t)
	r.must(t, "ScheduleKeyDeletion", `{"KeyId":"`+id+`"}`)
	r.must(t, "CancelKeyDeletion", `{"KeyId":"`+id+`"}`)
	require.Contains(t, r.audit.String(), `"level":"ERROR","msg":"kms key deletion cancelled"`)
	require.Equal(t, "Disabled", r.state(t, id))
}

func TestPrincipalRights(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	may := map[string]string{
		kmsd.App:        "GenerateDataKey Decrypt",
		kmsd.Rotator:    "CreateKey CreateAlias DescribeKey ReEncrypt ScheduleKeyDeletion",
		kmsd.SealSigner: "Sign GetPublicKey",
	}
	require.Len(t, kmsd.Operations(), 12)
	for profile, allowed := range may {
		for _, operation := range kmsd.Operations() {
			_, answer := r.call(t, profile, operation, `{"x":1}`)
			if strings.Contains(" "+allowed+" ", " "+operation+" ") {
				require.Equal(t, "SerializationException", answer["__type"], "%s %s", profile, operation)
			} else {
				require.Equal(t, "AccessDeniedException", answer["__type"], "%s %s", profile, operation)
			}
		}
	}
}

func TestListenRefusesRemoteAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", ":0", "0.0.0.0:0", "[::]:0", "localhost:0", "192.0.2.1:0", "example.org:80", "127.0.0.1"} {
		_, err := kmsd.Listen(address)
		require.Equal(t, "kmsd.listen_invalid", fault.CodeOf(err), address)
	}
	folder, err := os.MkdirTemp("", "kmsd") // socket names are short, t.TempDir's are long
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	path := filepath.Join(folder, "s")
	listener, err := kmsd.Listen("unix:" + path)
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	_, err = kmsd.Listen("unix:" + path)
	require.Error(t, err, "the socket of a running server is refused")
	listener.(interface{ SetUnlinkOnClose(bool) }).SetUnlinkOnClose(false)
	require.NoError(t, listener.Close())
	listener, err = kmsd.Listen("unix:" + path)
	require.NoError(t, err, "the socket of a killed server is replaced")
	require.NoError(t, listener.Close())
	require.NoError(t, os.WriteFile(path, []byte("no socket"), 0o600))
	_, err = kmsd.Listen("unix:" + path)
	require.Error(t, err)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "no socket", string(content))
}

func TestServeReturnsWhenContextEnds(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	listener, err := kmsd.Listen("127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, listener) }()
	response, err := http.Post("http://"+listener.Addr().String(), "text/plain", http.NoBody) //nolint:noctx // the test ends the server itself
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusBadRequest, response.StatusCode)
	stop()
	require.NoError(t, <-done)
}

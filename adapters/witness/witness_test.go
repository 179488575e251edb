package witness_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/adapters/witness"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	domain "github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/test/testkit"
)

// fixture is a witness that answers, and the log that it watches.
type fixture struct {
	t      *testing.T
	folder string
	log    *signednote.Signer
	logKey string
	key    string // of the witness
	url    string
	stop   func()
	lines  bytes.Buffer // of its log
}

func start(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, folder: filepath.Join(t.TempDir(), "witness")}
	f.log = testkit.Must(signednote.NewSigner("books.example.org/1", "key", testkit.NewSigningKey(0)))
	f.logKey = testkit.Must(f.log.VerifierKey(t.Context()))
	f.serve()
	return f
}

// serve starts the witness on its folder.
func (f *fixture) serve() {
	folder, err := witness.OpenFolder(f.folder)
	require.NoError(f.t, err)
	cosigner := testkit.Must(signednote.NewCosigner("w.example.org", testkit.Must(folder.Key())))
	f.key = cosigner.VerifierKey()
	server := httptest.NewServer(witness.NewServer(globallog.NewWitness(folder, cosigner, signednote.Opener{}, f.logKey), slog.New(slog.NewJSONHandler(&f.lines, nil))).Handler())
	f.url = server.URL
	f.stop = func() { server.Close(); require.NoError(f.t, folder.Close()) }
	f.t.Cleanup(func() { server.Close(); _ = folder.Close() })
}

// request is one to sign a log of two events at most, whose second one may be another.
func (f *fixture) request(from, size uint64, second byte) domain.Extension {
	var tree domain.Edge
	hashes := []event.Hash{domain.EntryHash(event.Hash{1}), domain.EntryHash(event.Hash{second})}
	for n := range size {
		tree.Append(event.Hash{[]byte{1, second}[n]})
	}
	x := domain.Extension{From: from, Checkpoint: testkit.Must(f.log.SignNote(f.t.Context(), domain.Checkpoint{Origin: "books.example.org/1", Size: size, Root: tree.Root()}.Text()))}
	x.Hashes = testkit.Must(domain.ProveConsistency(size, from, func(_ int, first, n uint64) ([]event.Hash, error) { return hashes[first : first+n], nil }))
	return x
}

func (f *fixture) client() *witness.Client {
	return witness.NewClient(f.url+"/", f.key, 10*time.Second)
}

// post is a request as others may send it.
func (f *fixture) post(body string) (status int, kind, text string) {
	answer, err := http.Post(f.url+"/add-checkpoint", "text/plain", strings.NewReader(body))
	require.NoError(f.t, err)
	defer answer.Body.Close()
	return answer.StatusCode, answer.Header.Get("Content-Type"), string(testkit.Must(io.ReadAll(answer.Body)))
}

// TestWitness signs, remembers after a restart what it signed, shows it, and its client knows each answer.
func TestWitness(t *testing.T) {
	t.Parallel()
	f := start(t)
	lines, err := f.client().AddCheckpoint(t.Context(), f.request(0, 1, 2))
	require.NoError(t, err)
	_, signers, err := signednote.Opener{}.OpenCosigned(append(f.request(0, 1, 2).Checkpoint, lines...), f.key)
	require.NoError(t, err)
	require.Equal(t, []string{f.key}, signers)
	key := f.key
	f.stop()
	f.serve()
	require.Equal(t, key, f.key)
	_, err = f.client().AddCheckpoint(t.Context(), f.request(0, 2, 2))
	require.Equal(t, "witness.size_differs", fault.CodeOf(err))
	differs, _ := fault.As(err)
	require.Equal(t, uint64(1), differs.Actual)
	_, err = f.client().AddCheckpoint(t.Context(), f.request(1, 2, 2))
	require.NoError(t, err)
	_, err = f.client().AddCheckpoint(t.Context(), f.request(2, 2, 3))
	require.Equal(t, "witness.inconsistent", fault.CodeOf(err))

	answer, err := http.Get(f.url + "/" + witness.OriginName("books.example.org/1") + "/checkpoint")
	require.NoError(t, err)
	defer answer.Body.Close()
	shown, _, err := globallog.OpenCheckpoint(testkit.Must(io.ReadAll(answer.Body)), signednote.Opener{}, f.logKey)
	require.NoError(t, err)
	require.EqualValues(t, 2, shown.Size)
	require.Contains(t, f.lines.String(), "global_log.inconsistent", "its log shows what it refused")

	f.stop()
	_, err = f.client().AddCheckpoint(t.Context(), f.request(2, 2, 2))
	require.Equal(t, "witness.unavailable", fault.CodeOf(err))
}

// TestServer_Statuses are those of c2sp.org/tlog-witness.
func TestServer_Statuses(t *testing.T) {
	t.Parallel()
	f := start(t)
	good := f.request(0, 1, 2)
	_, err := f.client().AddCheckpoint(t.Context(), good)
	require.NoError(t, err)
	unknown := domain.Extension{From: 0, Checkpoint: []byte(strings.Replace(string(good.Checkpoint), "/1\n", "/2\n", 1))}
	unsigned := domain.Extension{From: 0, Checkpoint: []byte(strings.Replace(string(good.Checkpoint), "\n1\n", "\n2\n", 1))}
	for body, want := range map[string]int{
		"": http.StatusBadRequest, strings.Repeat("x", 100<<10): http.StatusBadRequest,
		string(unknown.Encode()): http.StatusNotFound, string(unsigned.Encode()): http.StatusForbidden,
		string(f.request(1, 1, 2).Encode()): http.StatusOK, string(domain.Extension{From: 1, Checkpoint: f.request(0, 2, 2).Checkpoint}.Encode()): http.StatusUnprocessableEntity,
	} {
		status, _, text := f.post(body)
		require.Equal(t, want, status, text)
	}
	status, kind, text := f.post(string(f.request(0, 2, 2).Encode()))
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, "text/x.tlog.size", kind)
	require.Equal(t, "1\n", text)
	for path, want := range map[string]int{"/add-checkpoint": http.StatusMethodNotAllowed, "/x/checkpoint": http.StatusNotFound, "/../checkpoint": http.StatusNotFound} {
		answer, err := http.Get(f.url + path)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, want, answer.StatusCode, path)
	}
}

// TestFolder: one process at a time, readable by its owner, and a damaged key is not replaced.
func TestFolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "w")
	folder, err := witness.OpenFolder(path)
	require.NoError(t, err)
	_, err = witness.OpenFolder(path)
	require.Equal(t, "witness.folder_in_use", fault.CodeOf(err))
	key := testkit.Must(folder.Key())
	require.True(t, key.Equal(testkit.Must(folder.Key())))
	require.NoError(t, folder.Keep("a/1", []byte("one")))
	require.NoError(t, folder.Keep("a/1", []byte("two")))
	require.Equal(t, []byte("two"), testkit.Must(folder.Newest("a/1")))
	require.Nil(t, testkit.Must(folder.Newest("b/1")))
	entries := testkit.Must(os.ReadDir(path))
	require.Len(t, entries, 3, "key, lock and one log")
	for _, e := range entries {
		require.Zero(t, testkit.Must(e.Info()).Mode().Perm()&0o077, e.Name())
	}
	require.NoError(t, folder.Close())
	folder, err = witness.OpenFolder(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(path, "witness.key"), []byte("00"), 0o600))
	_, err = folder.Key()
	require.Equal(t, "witness.folder_unusable", fault.CodeOf(err))
	require.NoError(t, os.RemoveAll(path))
	require.Equal(t, "witness.folder_unusable", fault.CodeOf(folder.Keep("a/1", nil)))
	require.NoError(t, folder.Close())
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = witness.OpenFolder(path)
	require.Equal(t, "witness.folder_unusable", fault.CodeOf(err))
}

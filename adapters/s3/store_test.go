package s3_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/s3"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit/s3test"
)

// limits end hangs; a test of time-outs has its own.
var limits = s3.Limits{Timeout: time.Minute, Tries: 3, Backoff: 10 * time.Millisecond}

func options(server *s3test.Server, bucket string) s3.Options {
	return s3.Options{Endpoint: server.Endpoint, Region: server.Region, Bucket: bucket, Prefix: "books/exports", CredentialsFile: server.CredentialsFile, Profile: server.Profile, Limits: limits}
}

func open(t *testing.T, o s3.Options) *s3.Store {
	t.Helper()
	s, err := s3.Open(t.Context(), o)
	require.NoError(t, err)
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	for name, kind := range map[string]s3test.Bucket{"plain": s3test.Plain, "versioned": s3test.Versioned, "lockable": s3test.Lockable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.RunExportStore(t, func(t *testing.T) conformance.ExportStoreHarness {
				o := options(server, server.NewBucket(t, kind))
				h := conformance.ExportStoreHarness{Store: open(t, o), Other: open(t, o)}
				h.Other.(*s3.Store).SetPage(2)
				return h
			})
		})
	}
}

// versions counts the versions and delete markers in a bucket.
func versions(t *testing.T, server *s3test.Server, bucket string) int {
	t.Helper()
	out, err := server.Client.ListObjectVersions(t.Context(), &awss3.ListObjectVersionsInput{Bucket: &bucket})
	require.NoError(t, err)
	return len(out.Versions) + len(out.DeleteMarkers)
}

func put(t *testing.T, server *s3test.Server, bucket, key, content string) {
	t.Helper()
	_, err := server.Client.PutObject(t.Context(), &awss3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(content)})
	require.NoError(t, err)
}

func TestStore(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	ctx := t.Context()

	t.Run("prefix separates stores", func(t *testing.T) {
		t.Parallel()
		bucket := server.NewBucket(t, s3test.Plain)
		o := options(server, bucket)
		one := open(t, o)
		o.Prefix = ""
		all := open(t, o)
		o.Prefix = "books/exports-2/"
		two := open(t, o)
		require.NoError(t, one.PutIfAbsent(ctx, "a", []byte("one")))
		require.NoError(t, two.PutIfAbsent(ctx, "a", []byte("two")))
		put(t, server, bucket, "books/exports/not a name", "x")
		for store, want := range map[*s3.Store][]string{one: {"a"}, two: {"a"}, all: {"books/exports-2/a", "books/exports/a"}} {
			got, err := store.List(ctx, "")
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})

	t.Run("delete removes all versions of one object", func(t *testing.T) {
		t.Parallel()
		bucket := server.NewBucket(t, s3test.Versioned)
		s := open(t, options(server, bucket))
		s.SetPage(2)
		key := "books/exports/a"
		for i := range 3 {
			put(t, server, bucket, key, fmt.Sprint("version ", i))
			_, err := server.Client.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: &bucket, Key: &key})
			require.NoError(t, err)
			put(t, server, bucket, key, fmt.Sprint("another ", i))
		}
		put(t, server, bucket, key+"b", "kept")
		require.Equal(t, 10, versions(t, server, bucket))
		require.NoError(t, s.Delete(ctx, "a"))
		require.Equal(t, 1, versions(t, server, bucket))
		require.NoError(t, s.Delete(ctx, "a"))
		require.Equal(t, 1, versions(t, server, bucket), "deleting a missing document leaves no delete marker")
	})

	t.Run("delete removes a hidden version", func(t *testing.T) {
		t.Parallel()
		bucket := server.NewBucket(t, s3test.Versioned)
		s := open(t, options(server, bucket))
		require.NoError(t, s.PutIfAbsent(ctx, "a", []byte("one")))
		_, err := server.Client.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: &bucket, Key: aws.String("books/exports/a")})
		require.NoError(t, err)
		_, err = s.Get(ctx, "a")
		require.Equal(t, "export.not_found", fault.CodeOf(err))
		require.NoError(t, s.Delete(ctx, "a"))
		require.Zero(t, versions(t, server, bucket))
	})

	t.Run("locked document is not deleted", func(t *testing.T) {
		t.Parallel()
		bucket := server.NewBucket(t, s3test.Lockable)
		o := options(server, bucket)
		o.Lock = time.Hour
		s := open(t, o)
		before := time.Now()
		require.NoError(t, s.PutIfAbsent(ctx, "a", []byte("one")))
		head, err := server.Client.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: &bucket, Key: aws.String("books/exports/a")})
		require.NoError(t, err)
		require.Equal(t, types.ObjectLockModeCompliance, head.ObjectLockMode)
		require.WithinRange(t, *head.ObjectLockRetainUntilDate, before.Add(time.Hour-time.Second), time.Now().Add(time.Hour))

		err = s.Delete(ctx, "a")
		require.Equal(t, "export.locked", fault.CodeOf(err))
		require.Equal(t, fault.FailedPrecondition, fault.KindOf(err))
		require.ErrorContains(t, err, head.ObjectLockRetainUntilDate.UTC().Format(time.RFC3339))
		got, err := s.Get(ctx, "a")
		require.NoError(t, err)
		require.Equal(t, "one", string(got))
		require.NoError(t, s.PutIfAbsent(ctx, "a", []byte("one")))
		require.Equal(t, "export.name_taken", fault.CodeOf(s.PutIfAbsent(ctx, "a", []byte("two"))))
		require.Equal(t, 1, versions(t, server, bucket))
	})

	t.Run("document is not stored without the lock that is wanted", func(t *testing.T) {
		t.Parallel()
		o := options(server, server.NewBucket(t, s3test.Versioned))
		o.Lock = time.Hour
		s, err := s3.New(ctx, o)
		require.NoError(t, err)
		require.Equal(t, "export.lock_unsupported", fault.CodeOf(s.PutIfAbsent(ctx, "a", []byte("one"))))
		_, err = s.Get(ctx, "a")
		require.Equal(t, "export.not_found", fault.CodeOf(err))
	})

	t.Run("document under a legal hold is not deleted", func(t *testing.T) {
		t.Parallel()
		bucket := server.NewBucket(t, s3test.Lockable)
		s := open(t, options(server, bucket))
		require.NoError(t, s.PutIfAbsent(ctx, "a", []byte("one")))
		hold := func(status types.ObjectLockLegalHoldStatus) {
			_, err := server.Client.PutObjectLegalHold(ctx, &awss3.PutObjectLegalHoldInput{Bucket: &bucket, Key: aws.String("books/exports/a"), LegalHold: &types.ObjectLockLegalHold{Status: status}})
			require.NoError(t, err)
		}
		hold(types.ObjectLockLegalHoldStatusOn)
		require.Equal(t, "export.locked", fault.CodeOf(s.Delete(ctx, "a")))
		hold(types.ObjectLockLegalHoldStatusOff)
		require.NoError(t, s.Delete(ctx, "a"))
	})

	t.Run("large document is refused", func(t *testing.T) {
		t.Parallel()
		bucket := server.NewBucket(t, s3test.Plain)
		s := open(t, options(server, bucket))
		s.SetMaxSize(1000)
		require.NoError(t, s.PutIfAbsent(ctx, "a", bytes.Repeat([]byte("x"), 1000)))
		require.Equal(t, "export.too_large", fault.CodeOf(s.PutIfAbsent(ctx, "b", bytes.Repeat([]byte("x"), 1001))))
		put(t, server, bucket, "books/exports/c", strings.Repeat("x", 1001))
		_, err := s.Get(ctx, "c")
		require.Equal(t, "export.too_large", fault.CodeOf(err))
		got, err := s.Get(ctx, "a")
		require.NoError(t, err)
		require.Len(t, got, 1000)
	})

	t.Run("bucket that is gone is no empty store", func(t *testing.T) {
		t.Parallel()
		bucket := server.NewBucket(t, s3test.Plain)
		s := open(t, options(server, bucket))
		_, err := server.Client.DeleteBucket(ctx, &awss3.DeleteBucketInput{Bucket: &bucket})
		require.NoError(t, err)
		requireAll(t, s, "export.bucket_not_found")
	})
}

// requireAll requires that every operation returns the code, of the kind Unavailable.
func requireAll(t *testing.T, s *s3.Store, code string) {
	t.Helper()
	_, getErr := s.Get(t.Context(), "receipts/1.note")
	_, listErr := s.List(t.Context(), "receipts/")
	for _, err := range []error{getErr, listErr, s.PutIfAbsent(t.Context(), "receipts/1.note", []byte("one")), s.Delete(t.Context(), "receipts/1.note")} {
		require.Equal(t, code, fault.CodeOf(err))
		require.Equal(t, fault.Unavailable, fault.KindOf(err))
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	bucket := server.NewBucket(t, s3test.Plain)
	wrong := filepath.Join(t.TempDir(), "exports")
	require.NoError(t, os.WriteFile(wrong, []byte("[exports]\naws_access_key_id = AKIDWRONG\naws_secret_access_key = not-the-secret\n"), 0o600))
	text, err := os.ReadFile(server.CredentialsFile)
	require.NoError(t, err)
	forged := filepath.Join(t.TempDir(), "forged")
	require.NoError(t, os.WriteFile(forged, append(bytes.TrimSpace(text), 'X'), 0o600))

	for name, c := range map[string]struct {
		change func(o *s3.Options)
		code   string
	}{
		"endpoint has http to another machine": {func(o *s3.Options) { o.Endpoint = "http://s3.example.org" }, "export.endpoint_invalid"},
		"endpoint has credentials":             {func(o *s3.Options) { o.Endpoint = "https://user:not-the-secret@s3.example.org" }, "export.endpoint_invalid"},
		"endpoint has a path":                  {func(o *s3.Options) { o.Endpoint = "https://s3.example.org/bucket" }, "export.endpoint_invalid"},
		"region is missing":                    {func(o *s3.Options) { o.Region = "" }, "export.region_missing"},
		"bucket is missing":                    {func(o *s3.Options) { o.Bucket = "" }, "export.bucket_invalid"},
		"bucket has a path":                    {func(o *s3.Options) { o.Bucket = "bucket/exports" }, "export.bucket_invalid"},
		"prefix leaves the bucket":             {func(o *s3.Options) { o.Prefix = "../exports" }, "export.prefix_invalid"},
		"lock is negative":                     {func(o *s3.Options) { o.Lock = -1 }, "export.lock_invalid"},
		"limits are missing":                   {func(o *s3.Options) { o.Limits = s3.Limits{} }, "internal"},
		"credentials are absent":               {func(o *s3.Options) { o.CredentialsFile = wrong + "-absent" }, "export.credentials_unreadable"},
		"profile is absent":                    {func(o *s3.Options) { o.Profile = "absent" }, "export.credentials_unreadable"},
		"access key is unknown":                {func(o *s3.Options) { o.CredentialsFile = wrong }, "export.access_denied"},
		"access key is in a folder":            {func(o *s3.Options) { o.CredentialsFile = filepath.Dir(wrong) }, "export.access_denied"},
		"secret is wrong":                      {func(o *s3.Options) { o.CredentialsFile = forged }, "export.access_denied"},
		"region is wrong":                      {func(o *s3.Options) { o.Region = "eu-central-1" }, "export.access_denied"},
		"bucket does not exist":                {func(o *s3.Options) { o.Bucket = "absent" }, "export.bucket_not_found"},
		"bucket has no object lock":            {func(o *s3.Options) { o.Lock = time.Hour }, "export.lock_unsupported"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(server, bucket)
			c.change(&o)
			_, err := s3.Open(t.Context(), o)
			require.Equal(t, c.code, fault.CodeOf(err))
			require.NotContains(t, err.Error(), "not-the-secret")
			require.NotContains(t, err.Error(), "AKIDWRONG")
		})
	}
}

// TestStoreOfStoppedServer checks that a store that is gone is an outage and not an empty
// store.
func TestStoreOfStoppedServer(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	o := options(server, server.NewBucket(t, s3test.Plain))
	s := open(t, o)
	server.Stop(t)
	requireAll(t, s, "export.unavailable")
	_, err := s3.Open(t.Context(), o)
	require.Equal(t, "export.unavailable", fault.CodeOf(err))
}

// fakeOptions name a store that is not the real one, for behaviour that it does not have.
func fakeOptions(t *testing.T, endpoint string) s3.Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "credentials")
	require.NoError(t, os.WriteFile(file, []byte("[p]\naws_access_key_id = a\naws_secret_access_key = b\n"), 0o600))
	return s3.Options{Endpoint: endpoint, Region: "us-east-1", Bucket: "bucket", CredentialsFile: file, Profile: "p", Limits: limits}
}

func TestOpenTimesOutOnSilentServer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	o := fakeOptions(t, "http://"+silent.Addr().String())
	o.Timeout = 100 * time.Millisecond
	began := time.Now()
	_, err = s3.Open(t.Context(), o)
	require.Equal(t, "export.unavailable", fault.CodeOf(err))
	require.GreaterOrEqual(t, time.Since(began), 3*o.Timeout, "there are three tries")
}

// fakeStore keeps objects and lets a test answer requests in its place.
type fakeStore struct {
	answer func(r *http.Request) (status int, code string) // 0: as a store that ignores conditions and knows no versions

	mu      sync.Mutex
	objects map[string][]byte
}

func (f *fakeStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fail := func(status int, code string) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>text of the server</Message></Error>", code)
	}
	if f.answer != nil {
		if status, code := f.answer(r); status != 0 {
			fail(status, code)
			return
		}
	}
	content, found := f.objects[r.URL.Path]
	switch {
	case r.URL.Query().Has("versions"):
		fail(http.StatusNotImplemented, "NotImplemented")
	case r.URL.Path == "/bucket":
		_, _ = io.WriteString(w, "<ListBucketResult/>")
	case r.Method == http.MethodPut:
		f.objects[r.URL.Path], _ = io.ReadAll(r.Body)
	case r.Method == http.MethodDelete:
		delete(f.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case !found:
		fail(http.StatusNotFound, "NoSuchKey")
	default:
		_, _ = w.Write(content)
	}
}

func openFake(t *testing.T, f *fakeStore) *s3.Store {
	t.Helper()
	f.objects = map[string][]byte{}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return open(t, fakeOptions(t, server.URL))
}

func TestPutIfAbsentOnStoreWithoutConditions(t *testing.T) {
	t.Parallel()
	s := openFake(t, &fakeStore{})
	require.NoError(t, s.PutIfAbsent(t.Context(), "a", []byte("one")))
	require.NoError(t, s.PutIfAbsent(t.Context(), "a", []byte("one")))
	require.Equal(t, "export.name_taken", fault.CodeOf(s.PutIfAbsent(t.Context(), "a", []byte("two"))))
	got, err := s.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "one", string(got))
}

func TestDeleteOnStoreWithoutVersions(t *testing.T) {
	t.Parallel()
	s := openFake(t, &fakeStore{})
	require.NoError(t, s.PutIfAbsent(t.Context(), "a", []byte("one")))
	require.NoError(t, s.Delete(t.Context(), "a"))
	_, err := s.Get(t.Context(), "a")
	require.Equal(t, "export.not_found", fault.CodeOf(err))
	require.NoError(t, s.Delete(t.Context(), "a"))
}

func TestDeleteWithoutRight(t *testing.T) {
	t.Parallel()
	s := openFake(t, &fakeStore{answer: func(r *http.Request) (int, string) {
		if r.Method == http.MethodDelete {
			return http.StatusForbidden, "AccessDenied"
		}
		return 0, ""
	}})
	require.NoError(t, s.PutIfAbsent(t.Context(), "a", []byte("one")))
	require.Equal(t, "export.access_denied", fault.CodeOf(s.Delete(t.Context(), "a")), "no lock keeps the document")
}

// TestPutIfAbsentAnswers checks the answers to a conditional write.
func TestPutIfAbsentAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		answer string
		times  int    // how often it is given
		code   string // of the fault
	}{
		"concurrent write is tried again":        {http.StatusConflict, "ConditionalRequestConflict", 2, ""},
		"concurrent writes do not last for ever": {http.StatusConflict, "ConditionalRequestConflict", 100, "export.unavailable"},
		"deleted document is written again":      {http.StatusPreconditionFailed, "PreconditionFailed", 1, ""},
		"full store is unavailable":              {http.StatusInsufficientStorage, "XMinioStorageFull", 100, "export.unavailable"},
		"busy store is tried again":              {http.StatusServiceUnavailable, "SlowDown", 2, ""},
		"missing right is denied":                {http.StatusForbidden, "AccessDenied", 1, "export.access_denied"},
		"expired credentials are denied":         {http.StatusBadRequest, "ExpiredToken", 1, "export.access_denied"},
		"store without conditional writes":       {http.StatusNotImplemented, "NotImplemented", 1, "export.unsupported"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := c.times
			s := openFake(t, &fakeStore{answer: func(r *http.Request) (int, string) {
				if r.Method != http.MethodPut || left == 0 {
					return 0, ""
				}
				left--
				return c.status, c.answer
			}})
			err := s.PutIfAbsent(t.Context(), "a", []byte("one"))
			require.Equal(t, c.code, fault.CodeOf(err))
			if err != nil {
				require.NotContains(t, err.Error(), "text of the server")
				return
			}
			require.Zero(t, left)
			got, err := s.Get(t.Context(), "a")
			require.NoError(t, err)
			require.Equal(t, "one", string(got))
		})
	}
}

// TestPutIfAbsentAfterLostAnswer checks that a write whose answer is lost succeeds when it is
// tried again and finds its own document.
func TestPutIfAbsentAfterLostAnswer(t *testing.T) {
	t.Parallel()
	puts := 0
	f := &fakeStore{}
	f.answer = func(r *http.Request) (int, string) {
		if r.Method != http.MethodPut {
			return 0, ""
		}
		if puts++; puts > 1 {
			return http.StatusPreconditionFailed, "PreconditionFailed"
		}
		f.objects[r.URL.Path], _ = io.ReadAll(r.Body)
		return http.StatusInternalServerError, "InternalError"
	}
	require.NoError(t, openFake(t, f).PutIfAbsent(t.Context(), "a", []byte("one")))
	require.Equal(t, 2, puts)
}

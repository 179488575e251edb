package conformance

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// failure is one way in which a try goes wrong on its way.
type failure func(next http.RoundTripper, r *http.Request) (*http.Response, error)

// answers makes the service answer with an error of its protocol.
func answers(status int, name string) failure {
	return answersText(status, "application/x-amz-json-1.1", `{"__type":"`+name+`","message":"injected"}`)
}

func answersText(status int, contentType, body string) failure {
	return func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
		}, nil
	}
}

// hangs never answers; the client's own timeout ends the try.
func hangs(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func breaks(err error) failure {
	return func(http.RoundTripper, *http.Request) (*http.Response, error) { return nil, err }
}

// losesAnswer lets the service do its work and loses the answer.
func losesAnswer(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	response, err := next.RoundTrip(r)
	if err == nil {
		_ = response.Body.Close()
		err = syscall.ECONNRESET
	}
	return nil, err
}

// faultyTransport lets tries go wrong and counts them.
type faultyTransport struct {
	next  http.RoundTripper
	fail  failure
	when  func(operation string, try int) bool
	tries *tries
}

type tries struct {
	mu    sync.Mutex
	count map[string]int // by operation
}

func (c *tries) add(operation string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[operation]++
	return c.count[operation]
}

func (c *tries) of(operation string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[operation]
}

func (f *faultyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if f.when(operation, f.tries.add(operation)) {
		return f.fail(f.next, r)
	}
	return f.next.RoundTrip(r)
}

// faulty makes a client whose tries fail while when returns true.
func (s *keySuite) faulty(t *testing.T, fail failure, when func(operation string, try int) bool) (KeyService, *tries) {
	t.Helper()
	counted := &tries{count: map[string]int{}}
	return s.New(t, func(next http.RoundTripper) http.RoundTripper {
		return &faultyTransport{next: next, fail: fail, when: when, tries: counted}
	}), counted
}

func always(string, int) bool { return true }

func first(n int) func(string, int) bool { return func(_ string, try int) bool { return try <= n } }

// transient are the failures after which another try may succeed.
var transient = map[string]failure{
	"throttled":            answers(400, "ThrottlingException"),
	"limit exceeded":       answers(400, "LimitExceededException"),
	"internal error":       answers(500, "KMSInternalException"),
	"dependency timeout":   answers(500, "DependencyTimeoutException"),
	"key unavailable":      answers(500, "KeyUnavailableException"),
	"unknown 500":          answers(500, "SomethingNewException"),
	"gateway 502":          answersText(502, "text/html", "<html>bad gateway</html>"),
	"gateway 503":          answersText(503, "text/html", "<html>no</html>"),
	"gateway 504":          answersText(504, "text/plain", ""),
	"no answer":            hangs,
	"connection refused":   breaks(syscall.ECONNREFUSED),
	"connection reset":     breaks(syscall.ECONNRESET),
	"connection ends":      breaks(io.EOF),
	"answer ends too soon": breaks(io.ErrUnexpectedEOF),
}

var operationOf = map[string]string{
	"generate": "GenerateDataKey", "unwrap": "Decrypt", "describe": "DescribeKey", "re-wrap": "ReEncrypt",
	"schedule deletion": "ScheduleKeyDeletion", "sign": "Sign", "public key": "GetPublicKey",
}

var keyFailureTests = map[string]func(*testing.T, *keySuite){
	"transient failure is retried": func(t *testing.T, s *keySuite) {
		key := s.key(t, ports.WrapDataKeys)
		plain, wrapped := s.generate(t, key)
		for name, fail := range transient {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				service, tries := s.faulty(t, fail, first(KeyTries-1))
				var opened shredding.Secret
				opened, err := service.Unwrap(t.Context(), key, wrapped, bound("1"))
				require.NoError(t, err)
				require.Equal(t, plain, reveal(t, opened))
				require.Equal(t, KeyTries, tries.of("Decrypt"))
			})
		}
	},
	"lasting failure is unavailable": func(t *testing.T, s *keySuite) {
		for name, fail := range transient {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { // no try leaves the process
					service, tries := s.faulty(t, fail, always)
					for operation, err := range everyCall(t.Context(), service, "key", []byte("wrapped")) {
						requireFault(t, err, fault.Unavailable, "kms.unavailable", operation)
						f, _ := fault.As(err)
						require.Positive(t, f.RetryAfter, operation)
						require.Equal(t, KeyTries, tries.of(operationOf[operation]), operation)
					}
					_, err := service.Create(t.Context(), s.alias(), ports.WrapDataKeys)
					requireFault(t, err, fault.Unavailable, "kms.unavailable")
				})
			})
		}
	},
	"unreadable answer is unavailable": func(t *testing.T, s *keySuite) {
		for name, body := range map[string]string{"no JSON": "<html>login</html>", "empty object": "{}", "empty": "", "wrong types": `{"Plaintext":7,"CiphertextBlob":[],"Signature":{},"PublicKey":true,"KeyMetadata":"x"}`} {
			service, _ := s.faulty(t, answersText(200, "application/x-amz-json-1.1", body), always)
			calls := everyCall(t.Context(), service, "key", []byte("wrapped"))
			for operation, err := range calls {
				requireFault(t, err, fault.Unavailable, "kms.unavailable", name, operation)
			}
		}
	},
	"final failure is not retried": func(t *testing.T, s *keySuite) {
		for name, want := range map[string]struct {
			kind fault.Kind
			code string
		}{
			"NotFoundException":                   {fault.NotFound, "kms.key_not_found"},
			"DisabledException":                   {fault.FailedPrecondition, "kms.key_disabled"},
			"KMSInvalidStateException":            {fault.FailedPrecondition, "kms.key_pending_deletion"},
			"InvalidCiphertextException":          {fault.Invalid, "kms.ciphertext_invalid"},
			"IncorrectKeyException":               {fault.Invalid, "kms.key_mismatch"},
			"InvalidKeyUsageException":            {fault.Invalid, "kms.key_usage"},
			"ValidationException":                 {fault.Invalid, "kms.request_invalid"},
			"AccessDeniedException":               {fault.Unavailable, "kms.access_denied"},
			"UnrecognizedClientException":         {fault.Unavailable, "kms.access_denied"},
			"InvalidSignatureException":           {fault.Unavailable, "kms.access_denied"},
			"ExpiredTokenException":               {fault.Unavailable, "kms.access_denied"},
			"MissingAuthenticationTokenException": {fault.Unavailable, "kms.access_denied"},
		} {
			service, tries := s.faulty(t, answers(400, name), always)
			_, err := service.Unwrap(t.Context(), "key", []byte("wrapped"), bound("1"))
			requireFault(t, err, want.kind, want.code, name)
			require.Equal(t, 1, tries.of("Decrypt"), name)
		}
	},
	"lost answer leaves one outcome": func(t *testing.T, s *keySuite) {
		id := s.key(t, ports.WrapDataKeys)
		service, _ := s.faulty(t, losesAnswer, first(1))
		at, err := service.ScheduleDeletion(t.Context(), id, 7)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(7*24*time.Hour), at, clockDifference)

		alias := s.alias()
		service, _ = s.faulty(t, losesAnswer, func(operation string, try int) bool { return operation == "CreateAlias" && try == 1 })
		made, err := service.Create(t.Context(), alias, ports.WrapDataKeys)
		require.NoError(t, err)
		s.endLater(t, made.ID)
		require.Equal(t, made.ID, s.requireState(t, alias, ports.KeyEnabled).ID)
	},
	"cancelled call returns at once": func(t *testing.T, s *keySuite) {
		ctx, cancel := context.WithCancel(t.Context())
		var reached atomic.Bool
		service, tries := s.faulty(t, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			reached.Store(true)
			cancel()
			return hangs(next, r)
		}, always)
		_, err := service.Unwrap(ctx, "key", []byte("wrapped"), bound("1"))
		requireFault(t, err, fault.Unavailable, "kms.unavailable")
		require.True(t, errors.Is(err, context.Canceled))
		require.True(t, reached.Load())
		require.Equal(t, 1, tries.of("Decrypt"))
	},
	"hanging service times out": func(t *testing.T, s *keySuite) {
		synctest.Test(t, func(t *testing.T) {
			service, _ := s.faulty(t, hangs, always)
			began := time.Now()
			_, err := service.Generate(t.Context(), "key", bound("1"))
			requireFault(t, err, fault.Unavailable, "kms.unavailable")
			require.GreaterOrEqual(t, time.Since(began), KeyTries*s.Timeout)
			require.Less(t, time.Since(began), (KeyTries+1)*s.Timeout, "the pauses between the tries are short")
		})
	},
}

package conformance_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/awskms"
	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// keys is a sound service; each breakage replaces what it breaks.
type keys struct{ conformance.KeyService }

// oneContext ignores the encryption context.
type oneContext struct{ keys }

var same = ports.EncryptionContext{"same": "for all"}

func (s oneContext) Generate(ctx context.Context, key string, _ ports.EncryptionContext) (ports.DataKey, error) {
	return s.KeyService.Generate(ctx, key, same)
}

func (s oneContext) Unwrap(ctx context.Context, key string, wrapped []byte, _ ports.EncryptionContext) (shredding.Secret, error) {
	return s.KeyService.Unwrap(ctx, key, wrapped, same)
}

func (s oneContext) ReWrap(ctx context.Context, from, to string, wrapped []byte, _ ports.EncryptionContext) ([]byte, error) {
	return s.KeyService.ReWrap(ctx, from, to, wrapped, same)
}

// freshOnReWrap wraps another data key.
type freshOnReWrap struct{ keys }

func (s freshOnReWrap) ReWrap(ctx context.Context, from, to string, wrapped []byte, bound ports.EncryptionContext) ([]byte, error) {
	if _, err := s.KeyService.ReWrap(ctx, from, to, wrapped, bound); err != nil {
		return nil, err
	}
	made, err := s.Generate(ctx, to, bound)
	return made.Wrapped, err
}

// shortWait takes a waiting period for any.
type shortWait struct{ keys }

func (s shortWait) ScheduleDeletion(ctx context.Context, key string, days int) (time.Time, error) {
	return s.KeyService.ScheduleDeletion(ctx, key, min(max(days, 7), 30))
}

// idleDeletion reports a schedule and schedules nothing.
type idleDeletion struct{ keys }

func (s idleDeletion) ScheduleDeletion(context.Context, string, int) (time.Time, error) {
	return time.Now().Add(7 * 24 * time.Hour), nil
}

// manyNames makes a key each time an alias is asked for.
type manyNames struct{ keys }

func (s manyNames) Create(ctx context.Context, alias string, purpose ports.KeyPurpose) (ports.ManagedKey, error) {
	return s.KeyService.Create(ctx, alias+rand.Text(), purpose)
}

// lastingErrors calls every failure final.
type lastingErrors struct{ keys }

func (s lastingErrors) Unwrap(ctx context.Context, key string, wrapped []byte, bound ports.EncryptionContext) (shredding.Secret, error) {
	secret, err := s.KeyService.Unwrap(ctx, key, wrapped, bound)
	if fault.KindOf(err) == fault.Unavailable && err != nil {
		err = fault.New(fault.Invalid, "kms.ciphertext_invalid", "no")
	}
	return secret, err
}

var brokenKeys = []struct {
	name     string
	wrap     func(keys) conformance.KeyService
	mustFail []string
}{
	{"ignores the context", func(k keys) conformance.KeyService { return oneContext{k} }, []string{"DataKey/another context is refused", "ReWrap/another context or key is refused"}},
	{"re-wraps another key", func(k keys) conformance.KeyService { return freshOnReWrap{k} }, []string{"ReWrap/data key stays the same"}},
	{"takes any waiting period", func(k keys) conformance.KeyService { return shortWait{k} }, []string{"State/waiting period out of bounds is refused"}},
	{"does not delete", func(k keys) conformance.KeyService { return idleDeletion{k} }, []string{"State/key scheduled for deletion is not used", "State/signing key scheduled for deletion does not sign", "Alias/key scheduled for deletion is found with its state"}},
	{"forgets aliases", func(k keys) conformance.KeyService { return manyNames{k} }, []string{"Alias/alias is found", "Alias/one of many sets an alias"}},
	{"takes failures for final", func(k keys) conformance.KeyService { return lastingErrors{k} }, []string{"Failure/lasting failure is unavailable", "Failure/final failure is not retried"}},
}

// TestRunKeyServiceFailsOnBrokenService runs the suite on every broken service in a
// child process and demands that the named sub-tests failed there.
func TestRunKeyServiceFailsOnBrokenService(t *testing.T) {
	t.Parallel()
	for _, b := range brokenKeys {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			requireNoticed(t, "TestKeyServiceSuite", b.name, b.mustFail)
		})
	}
}

// TestKeyServiceSuite runs in the child process only: adapters/awskms runs the suite on the
// sound service.
func TestKeyServiceSuite(t *testing.T) {
	name := os.Getenv(brokenVariable)
	for _, b := range brokenKeys {
		if b.name == name {
			runKeySuiteOn(t, b.wrap)
			return
		}
	}
	t.Skip("runs as the child of TestRunKeyServiceFailsOnBrokenService")
}

type keyAdministrator struct{ client *kms.Client }

func (a keyAdministrator) Disable(ctx context.Context, key string) error {
	_, err := a.client.DisableKey(ctx, &kms.DisableKeyInput{KeyId: &key})
	return err
}

func (a keyAdministrator) Enable(ctx context.Context, key string) error {
	_, err := a.client.EnableKey(ctx, &kms.EnableKeyInput{KeyId: &key})
	return err
}

func (a keyAdministrator) CancelDeletion(ctx context.Context, key string) error {
	_, err := a.client.CancelKeyDeletion(ctx, &kms.CancelKeyDeletionInput{KeyId: &key})
	return err
}

func runKeySuiteOn(t *testing.T, wrap func(keys) conformance.KeyService) {
	folder := filepath.Join(t.TempDir(), "keys")
	file := folder + "-breakglass"
	require.NoError(t, kmsd.IssueBreakGlass(folder, file))
	server, err := kmsd.Open(kmsd.Config{Directory: folder, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	web := httptest.NewServer(server)
	t.Cleanup(func() { web.Close(); _ = server.Close() })
	shared, err := config.LoadSharedConfigProfile(t.Context(), kmsd.BreakGlass, func(o *config.LoadSharedConfigOptions) {
		o.CredentialsFiles, o.ConfigFiles = []string{file}, []string{}
	})
	require.NoError(t, err)
	conformance.RunKeyService(t, conformance.KeyServiceHarness{
		Timeout: 500 * time.Millisecond,
		Administrator: keyAdministrator{kms.New(kms.Options{
			Region: kmsd.Region, BaseEndpoint: aws.String(web.URL), HTTPSignerV4: kmsd.Signer{},
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return shared.Credentials, nil }),
		})},
		New: func(t *testing.T, around func(http.RoundTripper) http.RoundTripper) conformance.KeyService {
			c := awskms.Config{Endpoint: web.URL, Region: kmsd.Region, CredentialsFile: file, Profile: kmsd.BreakGlass, Signer: kmsd.Signer{}, Limits: awskms.Limits{Timeout: 500 * time.Millisecond, Tries: 3, Backoff: time.Millisecond}}
			if around != nil {
				c.Transport = around(http.DefaultTransport)
			}
			client, err := awskms.New(t.Context(), c)
			require.NoError(t, err)
			return wrap(keys{client})
		},
	})
}

package awskms_test

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/awskms"
	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/kmstest"
)

// awsRegionVariable names the AWS region in which the suite may make keys, with the
// credentials that AWS tools find. The keys cost money until they are destroyed
// seven days later, so credentials alone do not make the suite run there.
const awsRegionVariable = "BACKBONE_TEST_AWS_KMS_REGION"

// administrator calls operations that the product does not use.
type administrator struct{ client *kms.Client }

func (a administrator) Disable(ctx context.Context, key string) error {
	_, err := a.client.DisableKey(ctx, &kms.DisableKeyInput{KeyId: &key})
	return err
}

func (a administrator) Enable(ctx context.Context, key string) error {
	_, err := a.client.EnableKey(ctx, &kms.EnableKeyInput{KeyId: &key})
	return err
}

func (a administrator) CancelDeletion(ctx context.Context, key string) error {
	_, err := a.client.CancelKeyDeletion(ctx, &kms.CancelKeyDeletionInput{KeyId: &key})
	return err
}

func TestKeyServiceContractOnKMSD(t *testing.T) {
	t.Parallel()
	server := kmstest.Serve(t, nil)
	const timeout = time.Second // of a try that hangs; see uncanceled for the others
	shared, err := config.LoadSharedConfigProfile(t.Context(), kmsd.BreakGlass, func(o *config.LoadSharedConfigOptions) {
		o.CredentialsFiles, o.ConfigFiles = []string{server.BreakGlass}, []string{}
	})
	require.NoError(t, err)
	admin := kms.New(kms.Options{
		Region: kmsd.Region, BaseEndpoint: aws.String(server.Endpoint), HTTPSignerV4: kmsd.Signer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return shared.Credentials, nil }),
	})
	conformance.RunKeyService(t, conformance.KeyServiceHarness{
		Administrator: administrator{admin}, Timeout: timeout,
		New: func(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) conformance.KeyService {
			c := awskms.Config{Endpoint: server.Endpoint, Region: kmsd.Region, CredentialsFile: server.BreakGlass, Profile: kmsd.BreakGlass, Signer: kmsd.Signer{}, Limits: awskms.Limits{Timeout: time.Minute}}
			if wrap != nil {
				c.Timeout = timeout
			}
			return newClient(t, c, wrap)
		},
	})
}

func TestKeyServiceContractOnAWS(t *testing.T) {
	region := os.Getenv(awsRegionVariable)
	if region == "" {
		t.Skipf("AWS KMS is not tested: set %s, and credentials of an account in which keys may be made", awsRegionVariable)
	}
	loaded, err := config.LoadDefaultConfig(t.Context(), config.WithRegion(region))
	require.NoError(t, err)
	conformance.RunKeyService(t, conformance.KeyServiceHarness{
		Administrator: administrator{kms.NewFromConfig(loaded)}, Timeout: limits.Timeout, Settle: 5 * time.Minute,
		New: func(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) conformance.KeyService {
			return newClient(t, awskms.Config{Region: region}, wrap)
		},
	})
}

// uncanceled ignores the end of a try. A try that reaches the service gets its answer, so that
// a busy machine does not look like a service that hangs.
type uncanceled struct{ next http.RoundTripper }

func (p uncanceled) RoundTrip(r *http.Request) (*http.Response, error) {
	return p.next.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
}

// limits are those of a server.
var limits = awskms.Limits{Timeout: 2 * time.Second, Tries: 3, Backoff: 100 * time.Millisecond}

// newClient makes a client with short pauses: the suite counts tries.
func newClient(t *testing.T, c awskms.Config, wrap func(http.RoundTripper) http.RoundTripper) *awskms.Client {
	t.Helper()
	c.Timeout, c.Tries, c.Backoff = cmp.Or(c.Timeout, limits.Timeout), limits.Tries, 10*time.Millisecond
	if wrap != nil {
		plain := &http.Transport{DialContext: (&net.Dialer{}).DialContext, ForceAttemptHTTP2: true}
		t.Cleanup(plain.CloseIdleConnections)
		c.Transport = wrap(uncanceled{plain})
	}
	client, err := awskms.New(t.Context(), c)
	require.NoError(t, err)
	return client
}

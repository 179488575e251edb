package awskms

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Observer is called after every call. Operation is the name at AWS ("Decrypt"), outcome
// "ok" or the fault's code, elapsed the time with all tries. It must not block.
type Observer func(operation, outcome string, elapsed time.Duration)

// Config is the address of the service, and the time for its answers.
type Config struct {
	// Endpoint is empty for AWS itself, otherwise an https URL, an http URL of this
	// machine, or "unix:PATH". Plain keys travel in the answers, so http to another
	// machine is refused.
	Endpoint string
	Region   string // "eu-central-1"; kmsd has "local"

	// CredentialsFile has the form of AWS's shared credentials, Profile is one in it. It may be
	// a folder with one file for each profile, named like it.
	// Without a file the SDK searches for credentials as AWS tools do: environment, shared
	// configuration, role of the machine.
	CredentialsFile string
	Profile         string

	Limits

	Observe Observer // may be nil

	Signer kms.HTTPSignerV4 // nil: AWS's own

	// Transport replaces the default transport; tests inject failures with it.
	Transport http.RoundTripper
}

// Limits bound a call of the service; all are required.
type Limits struct {
	Timeout time.Duration // of one try
	Tries   int
	Backoff time.Duration // mean pause before the second try, doubled for each further one
}

// Client implements ports.DataKeys, ports.KeyLifecycle and ports.Signer. Safe for
// concurrent use.
type Client struct {
	kms     *kms.Client
	observe Observer
}

var (
	_ ports.DataKeys     = (*Client)(nil)
	_ ports.KeyLifecycle = (*Client)(nil)
	_ ports.Signer       = (*Client)(nil)
)

// New makes a client. It does not call the service. Faults: kms.endpoint_invalid,
// kms.region_missing, kms.credentials_unreadable.
func New(ctx context.Context, c Config) (*Client, error) {
	if c.Region == "" {
		return nil, fault.New(fault.Invalid, "kms.region_missing", "the key service has no region; set it (kmsd has the region \"local\")")
	}
	endpoint, socket, err := parseEndpoint(c.Endpoint)
	if err != nil {
		return nil, err
	}
	if err := fault.RequirePositive("awskms.Config", c.Limits); err != nil {
		return nil, err
	}
	loaded, err := load(ctx, c)
	if err != nil {
		return nil, fault.New(fault.Invalid, "kms.credentials_unreadable", "the credentials of the key service cannot be read; check file and profile").WithCause(err)
	}
	client := kms.NewFromConfig(loaded, func(o *kms.Options) {
		if endpoint != "" {
			o.BaseEndpoint = aws.String(endpoint)
		}
		o.HTTPClient = transport(c, socket)
		if c.Signer != nil {
			o.HTTPSignerV4 = c.Signer
		}
		o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts = c.Tries
			r.Backoff = jitter(c.Backoff)
		})
	})
	return &Client{kms: client, observe: c.Observe}, nil
}

func load(ctx context.Context, c Config) (aws.Config, error) {
	if c.CredentialsFile == "" {
		return config.LoadDefaultConfig(ctx, config.WithRegion(c.Region), config.WithSharedConfigProfile(c.Profile))
	}
	if info, err := os.Stat(c.CredentialsFile); err == nil && info.IsDir() {
		c.CredentialsFile = filepath.Join(c.CredentialsFile, c.Profile)
	}
	shared, err := config.LoadSharedConfigProfile(ctx, c.Profile, func(o *config.LoadSharedConfigOptions) {
		o.CredentialsFiles, o.ConfigFiles = []string{c.CredentialsFile}, []string{}
	})
	if err != nil {
		return aws.Config{}, err
	}
	static := credentials.StaticCredentialsProvider{Value: shared.Credentials}
	if _, err := static.Retrieve(ctx); err != nil {
		return aws.Config{}, err
	}
	return aws.Config{Region: c.Region, Credentials: static}, nil
}

// EnableKey makes a disabled key usable. This and the next two calls need break-glass rights.
func (c *Client) EnableKey(ctx context.Context, key string) error {
	_, err := call(ctx, c, "EnableKey", c.kms.EnableKey, &kms.EnableKeyInput{KeyId: aws.String(key)})
	return err
}

// DisableKey makes a key unusable until it is enabled.
func (c *Client) DisableKey(ctx context.Context, key string) error {
	_, err := call(ctx, c, "DisableKey", c.kms.DisableKey, &kms.DisableKeyInput{KeyId: aws.String(key)})
	return err
}

// CancelDeletion keeps a key whose deletion is scheduled. It stays disabled.
func (c *Client) CancelDeletion(ctx context.Context, key string) error {
	_, err := call(ctx, c, "CancelKeyDeletion", c.kms.CancelKeyDeletion, &kms.CancelKeyDeletionInput{KeyId: aws.String(key)})
	return err
}

// transport makes an HTTP client that times out every try.
func transport(c Config, socket string) kms.HTTPClient {
	if c.Transport != nil {
		return &http.Client{Transport: c.Transport, Timeout: c.Timeout}
	}
	client := awshttp.NewBuildableClient().WithTimeout(c.Timeout)
	if socket == "" {
		return client
	}
	return client.WithTransportOptions(func(t *http.Transport) {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	})
}

// jitter returns a random pause whose mean doubles with each try, so that clients that
// failed at the same time do not try again at the same time.
func jitter(mean time.Duration) retry.BackoffDelayerFunc {
	return func(attempt int, _ error) (time.Duration, error) {
		return rand.N(mean << min(max(attempt, 1), 6)), nil
	}
}

// parseEndpoint splits an endpoint into the URL of the requests and the unix socket that
// they are sent to; "" is TCP.
func parseEndpoint(text string) (endpoint, socket string, err error) {
	if text == "" {
		return "", "", nil
	}
	if path, ok := strings.CutPrefix(text, "unix:"); ok && path != "" {
		return "http://localhost", path, nil
	}
	u, parseErr := url.Parse(text)
	if parseErr == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && strings.Trim(u.Path, "/") == "" && (u.Scheme == "https" || u.Scheme == "http" && isLocal(u.Hostname())) {
		return u.Scheme + "://" + u.Host, "", nil
	}
	return "", "", fault.New(fault.Invalid, "kms.endpoint_invalid", "the endpoint of the key service must be an https URL, an http URL of this machine, or unix:PATH; correct it")
}

func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// call runs one operation, translates its error and calls the observer.
func call[In, Out any](ctx context.Context, c *Client, operation string, run func(context.Context, In, ...func(*kms.Options)) (Out, error), in In) (Out, error) {
	began := time.Now()
	out, err := run(ctx, in)
	err = translate(ctx, err)
	if c.observe != nil {
		outcome := "ok"
		if err != nil {
			outcome = fault.CodeOf(err)
		}
		c.observe(operation, outcome, time.Since(began))
	}
	return out, err
}

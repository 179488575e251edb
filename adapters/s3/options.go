package s3

import (
	"context"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Options name a bucket, and bound the calls of its store.
type Options struct {
	// Endpoint is empty for AWS itself, otherwise an https URL or an http URL of this machine.
	// Documents are not encrypted on their way, so http to another machine is refused. At an
	// endpoint the bucket is a part of the path and not of the host's name.
	Endpoint string
	Region   string // "eu-central-1"; other stores have a region too, often "us-east-1"
	Bucket   string
	Prefix   string // folder of the documents in the bucket; empty: the whole bucket

	// CredentialsFile has the form of AWS's shared credentials, Profile is one in it. It may be
	// a folder with one file for each profile, named like it.
	// Without a file the SDK searches for credentials as AWS tools do: environment, shared
	// configuration, role of the machine.
	CredentialsFile string
	Profile         string

	Limits

	// Lock is how long from its writing the store refuses to delete or change a document, also
	// for an administrator (object lock in the mode COMPLIANCE). The bucket must have object
	// lock. 0: documents are not locked, unless the bucket locks them by default.
	Lock time.Duration
}

// Limits bound a call of the store; all are required.
type Limits struct {
	Timeout time.Duration // of one try, with the transfer of a document
	Tries   int
	Backoff time.Duration // mean pause before the second try, doubled for each further one
}

// bucketForm is the form of bucket names that all stores accept.
var bucketForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// check refuses options that no store can serve, and normalizes endpoint and prefix.
func (o *Options) check() error {
	var err error
	if o.Endpoint, err = parseEndpoint(o.Endpoint); err != nil {
		return err
	}
	if o.Region == "" {
		return fault.New(fault.Invalid, "export.region_missing", "the export store has no region; set the region of its bucket (many stores other than AWS have us-east-1)")
	}
	if !bucketForm.MatchString(o.Bucket) {
		return fault.New(fault.Invalid, "export.bucket_invalid", "the export store needs a bucket of 3 to 63 lower-case letters, digits, dots and hyphens; set its name")
	}
	if o.Prefix = strings.TrimSuffix(o.Prefix, "/"); o.Prefix != "" {
		if !names.MatchString(o.Prefix) {
			return fault.New(fault.Invalid, "export.prefix_invalid", "the prefix of the export store must be a path of letters, digits and . _ - without a leading dot or slash; correct it")
		}
		o.Prefix += "/"
	}
	if o.Lock < 0 {
		return fault.New(fault.Invalid, "export.lock_invalid", "documents of the export store cannot be locked for %s; set a positive duration, or 0 for no lock", o.Lock)
	}
	return fault.RequirePositive("s3.Options", o.Limits)
}

// parseEndpoint returns the URL of the requests, "" for AWS itself.
func parseEndpoint(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	u, err := url.Parse(text)
	if err == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && strings.Trim(u.Path, "/") == "" && (u.Scheme == "https" || u.Scheme == "http" && isLocal(u.Hostname())) {
		return u.Scheme + "://" + u.Host, nil
	}
	return "", fault.New(fault.Invalid, "export.endpoint_invalid", "the endpoint of the export store must be an https URL or an http URL of this machine, without a path or credentials; correct it")
}

func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// newClient makes a client of the SDK with usable credentials.
func newClient(ctx context.Context, o Options) (*awss3.Client, error) {
	loaded, err := load(ctx, o)
	if err == nil {
		_, err = loaded.Credentials.Retrieve(ctx)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "export.credentials_unreadable", "the credentials of the export store cannot be read; check file and profile, or what AWS tools find on this machine").WithCause(err)
	}
	return awss3.NewFromConfig(loaded, func(c *awss3.Options) {
		if o.Endpoint != "" {
			c.BaseEndpoint, c.UsePathStyle = aws.String(o.Endpoint), true
		}
		c.HTTPClient = awshttp.NewBuildableClient().WithTimeout(o.Timeout)
		c.DisableLogOutputChecksumValidationSkipped = true // some stores return no checksums
		c.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts = o.Tries
			r.Backoff = jitter(o.Backoff)
			r.Retryables = append(r.Retryables, retry.RetryableErrorCode{Codes: map[string]struct{}{errorConflict: {}}})
		})
	}), nil
}

func load(ctx context.Context, o Options) (aws.Config, error) {
	if o.CredentialsFile == "" {
		return config.LoadDefaultConfig(ctx, config.WithRegion(o.Region), config.WithSharedConfigProfile(o.Profile))
	}
	file := o.CredentialsFile
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, o.Profile)
	}
	shared, err := config.LoadSharedConfigProfile(ctx, o.Profile, func(l *config.LoadSharedConfigOptions) {
		l.CredentialsFiles, l.ConfigFiles = []string{file}, []string{}
	})
	if err != nil {
		return aws.Config{}, err
	}
	return aws.Config{Region: o.Region, Credentials: credentials.StaticCredentialsProvider{Value: shared.Credentials}}, nil
}

// jitter returns a random pause whose mean doubles with each try, so that clients that
// failed at the same time do not try again at the same time.
func jitter(mean time.Duration) retry.BackoffDelayerFunc {
	return func(attempt int, _ error) (time.Duration, error) {
		return rand.N(mean << min(max(attempt, 1), 6)), nil
	}
}

// Package s3test runs an S3-compatible store for tests: Versity S3 Gateway on a folder. It is a
// program that `make ensure-s3` installs into bin/tools, so that its hundreds of libraries stay
// out of go.mod. Tests of the export store's adapter and end-to-end tests call [Start].
package s3test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/erpbackbone/backbone/test/testkit"
)

const (
	requireVariable = "BACKBONE_REQUIRE_S3"

	region       = "us-east-1"
	profile      = "exports"
	startTimeout = 30 * time.Second
)

// Server is a running store.
type Server struct {
	Endpoint        string // http://127.0.0.1:PORT
	Region          string
	CredentialsFile string // in the form of AWS's shared credentials
	Profile         string // in CredentialsFile, with all rights

	Client *s3.Client // with the same rights, for what the product does not do

	stop func() error
}

// Bucket is what a bucket can do.
type Bucket int

// The kinds of buckets.
const (
	Plain     Bucket = iota
	Versioned        // keeps the versions of an object
	Lockable         // has object lock, and so versions too
)

// Start starts a store on a free loopback port, which ends with the test. Without the program
// the test is skipped, or fails when BACKBONE_REQUIRE_S3 is set, as `make test` does.
func Start(t testing.TB) *Server {
	t.Helper()
	program := filepath.Join(testkit.RepoRoot(t), "bin", "tools", "versitygw")
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		if os.Getenv(requireVariable) == "" {
			t.Skip("s3test: no S3-compatible store for this test; install it with `make ensure-s3`")
		}
		t.Fatal("s3test: no S3-compatible store is installed; run `make ensure-s3`")
	}
	folder := t.TempDir()
	address, access, secret := testkit.Address(t), rand.Text(), rand.Text()
	s := &Server{Endpoint: "http://" + address, Region: region, CredentialsFile: filepath.Join(folder, "credentials"), Profile: profile}
	file := fmt.Sprintf("[%s]\naws_access_key_id = %s\naws_secret_access_key = %s\n", profile, access, secret)
	if err := os.WriteFile(s.CredentialsFile, []byte(file), 0o600); err != nil {
		t.Fatalf("s3test: %v", err)
	}
	s.Client = s3.New(s3.Options{
		BaseEndpoint: &s.Endpoint, Region: region, UsePathStyle: true, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider(access, secret, ""),
	})
	s.run(t, folder, program, address, access, secret)
	testkit.EventuallyNoError(t, startTimeout, func() error {
		_, err := s.Client.ListBuckets(t.Context(), &s3.ListBucketsInput{})
		return err
	}, "for the S3-compatible store")
	return s
}

// run starts the process. It keeps metadata in extended attributes of its files: with metadata in
// files beside them, version v1.8.0 takes a name for used after the document is deleted.
func (s *Server) run(t testing.TB, folder, program, address, access, secret string) {
	t.Helper()
	path := func(name string) string { return filepath.Join(folder, name) }
	for _, name := range []string{"data", "versions"} {
		if err := os.Mkdir(path(name), 0o700); err != nil {
			t.Fatalf("s3test: %v", err)
		}
	}
	output, err := os.Create(path("output"))
	if err != nil {
		t.Fatalf("s3test: %v", err)
	}
	// The shell ends the store when its own input ends: when the test stops it, or when the
	// process of the test has ended, however that was.
	command := exec.Command("sh", "-c", `"$@" & read -r line; kill -9 $!; wait $! 2>/dev/null`, "sh",
		program, "--port", address, "--region", region, "--quiet", "posix", "--versioning-dir", path("versions"), path("data"))
	command.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+access, "ROOT_SECRET_KEY="+secret)
	command.Stdout, command.Stderr = output, output
	input, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatalf("s3test: %v", err)
	}
	s.stop = sync.OnceValue(func() error {
		if err := input.Close(); err != nil {
			return err
		}
		_ = command.Wait() // the status of a store that was killed
		return output.Close()
	})
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("s3test: %v", err)
		}
		if t.Failed() {
			text, _ := os.ReadFile(path("output"))
			t.Logf("s3test: output of the store:\n%s", text)
		}
	})
}

// Stop ends the store, as a crash does.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.stop(); err != nil {
		t.Fatalf("s3test: %v", err)
	}
}

// NewBucket makes an empty bucket and returns its name.
func (s *Server) NewBucket(t testing.TB, kind Bucket) string {
	t.Helper()
	name := "test-" + strings.ToLower(rand.Text())
	_, err := s.Client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name, ObjectLockEnabledForBucket: aws.Bool(kind == Lockable)})
	if err == nil && kind == Versioned {
		_, err = s.Client.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &name, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	}
	if err != nil {
		t.Fatalf("s3test: %v", err)
	}
	return name
}

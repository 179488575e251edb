package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const (
	// maxSize bounds the memory that a document takes. Parts of key exports have a few MiB.
	maxSize = 64 << 20
	maxKey  = 1024 // bytes of prefix and name; a limit of S3
	maxPage = 1000 // names in one answer; a limit of S3
)

// names are slash-separated paths of plain elements that begin with no dot.
var names = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$`)

// Store implements ports.ExportStore. Several processes may use one bucket and prefix. Safe
// for concurrent use.
//
// Faults in addition to those of the port:
//
//	export.name_invalid      Internal
//	export.too_large         TooLarge: a document of more than 64 MiB
//	export.locked            FailedPrecondition: Delete of a document that an object lock keeps
//	export.unsupported       FailedPrecondition: the store does not serve a needed operation
//	export.access_denied     Unavailable: credentials, region or rights are refused
//	export.bucket_not_found  Unavailable
//	export.unavailable       Unavailable: the store does not answer as it should, or ctx ended
type Store struct {
	client         *awss3.Client
	bucket, prefix string
	tries          int
	lock           time.Duration
	canLock        atomic.Bool // the bucket was asked, see checkLock

	maxSize int64
	page    int32 // names in one answer
}

var _ ports.ExportStore = (*Store)(nil)

// Open is New for a bucket that has to answer now, and to have object lock if documents are to be locked. It writes
// nothing. Further faults: those of Store, and export.lock_unsupported (Invalid).
func Open(ctx context.Context, o Options) (*Store, error) {
	s, err := New(ctx, o)
	if err != nil {
		return nil, err
	}
	// HeadBucket would need rights outside the prefix, and an answer to HEAD does not name its error.
	_, err = s.client.ListObjectsV2(ctx, &awss3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &s.prefix, MaxKeys: aws.Int32(1)})
	if err != nil {
		return nil, translate(ctx, err)
	}
	return s, s.checkLock(ctx)
}

// New makes a Store without a call to it. Faults, all Invalid: export.endpoint_invalid, export.region_missing,
// export.bucket_invalid, export.prefix_invalid, export.lock_invalid, export.credentials_unreadable.
func New(ctx context.Context, o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	client, err := newClient(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Store{client: client, bucket: o.Bucket, prefix: o.Prefix, tries: o.Tries, lock: o.Lock, maxSize: maxSize, page: maxPage}, nil
}

// checkLock fails if documents are to be locked in a bucket that cannot lock them. Some stores
// accept a lock there and ignore it. A bucket that can is asked once.
func (s *Store) checkLock(ctx context.Context) error {
	if s.lock == 0 || s.canLock.Load() {
		return nil
	}
	out, err := s.client.GetObjectLockConfiguration(ctx, &awss3.GetObjectLockConfigurationInput{Bucket: &s.bucket})
	if err == nil && out.ObjectLockConfiguration != nil && out.ObjectLockConfiguration.ObjectLockEnabled == types.ObjectLockEnabledEnabled {
		s.canLock.Store(true)
		return nil
	}
	if err == nil || hasCode(err, errorNoLock) || fault.CodeOf(translate(ctx, err)) == codeUnsupported {
		return fault.New(fault.Invalid, "export.lock_unsupported", "documents are to be locked, and the bucket of the export store has no object lock; make a bucket with object lock, or set no lock").WithCause(err)
	}
	return translate(ctx, err)
}

// PutIfAbsent implements ports.ExportStore. The same bytes that are stored already keep their
// lock as it is.
func (s *Store) PutIfAbsent(ctx context.Context, name string, content []byte) error {
	key, err := s.key(name)
	if err != nil {
		return err
	}
	if int64(len(content)) > s.maxSize {
		return tooLarge()
	}
	if err := s.checkLock(ctx); err != nil {
		return err
	}
	for range s.tries {
		// create is atomic by itself where the store knows conditional writes. Some stores ignore
		// the condition. With the read before it, a document is overwritten there only if two
		// writers of its name pass the read at the same time.
		stored, err := s.read(ctx, key)
		if err == nil && !bytes.Equal(stored, content) {
			return fault.New(fault.Conflict, "export.name_taken", "the export store has another document of this name already, and documents are never replaced; look who wrote it")
		}
		if err == nil || fault.CodeOf(err) != codeNotFound {
			return err
		}
		if err := s.create(ctx, key, content); !isConditionFailed(err) {
			return translate(ctx, err)
		}
		// Another writer was first, or an earlier try of this call whose answer was lost.
	}
	return unavailable(errors.New("conditional writes fail, and no document has the name"))
}

// create writes an object if none has the key.
func (s *Store) create(ctx context.Context, key string, content []byte) error {
	sum, md5Sum := sha256.Sum256(content), md5.Sum(content)
	in := &awss3.PutObjectInput{
		Bucket: &s.bucket, Key: &key, Body: bytes.NewReader(content), ContentLength: aws.Int64(int64(len(content))),
		IfNoneMatch: aws.String("*"),
		// A checksum that is given here is sent in a header, which more stores understand than the
		// SDK's trailers. Object lock demands a checksum, older stores demand this one.
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
		ContentMD5:     aws.String(base64.StdEncoding.EncodeToString(md5Sum[:])),
	}
	if s.lock > 0 {
		in.ObjectLockMode, in.ObjectLockRetainUntilDate = types.ObjectLockModeCompliance, aws.Time(time.Now().Add(s.lock))
	}
	_, err := s.client.PutObject(ctx, in)
	return err
}

// Get implements ports.ExportStore.
func (s *Store) Get(ctx context.Context, name string) ([]byte, error) {
	key, err := s.key(name)
	if err != nil {
		return nil, err
	}
	return s.read(ctx, key)
}

func (s *Store) read(ctx context.Context, key string) ([]byte, error) {
	out, err := s.client.GetObject(ctx, &awss3.GetObjectInput{Bucket: &s.bucket, Key: &key})
	if isKeyMissing(err) {
		return nil, fault.New(fault.NotFound, codeNotFound, "the export store has no document of this name; list the names")
	}
	if err != nil {
		return nil, translate(ctx, err)
	}
	defer out.Body.Close()
	if aws.ToInt64(out.ContentLength) > s.maxSize {
		return nil, tooLarge()
	}
	content, err := io.ReadAll(io.LimitReader(out.Body, s.maxSize+1))
	if err != nil {
		return nil, translate(ctx, err)
	}
	if int64(len(content)) > s.maxSize {
		return nil, tooLarge()
	}
	return content, nil
}

// List implements ports.ExportStore. The prefix is one of names, such as "receipts/". Objects
// whose names are no names of documents are left out.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	if start := prefix[:max(strings.LastIndexByte(prefix, '/'), 0)]; start != "" && !names.MatchString(start) {
		return nil, invalidName()
	}
	out := []string{}
	pages := awss3.NewListObjectsV2Paginator(s.client, &awss3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + prefix)}, func(o *awss3.ListObjectsV2PaginatorOptions) {
		o.Limit, o.StopOnDuplicateToken = s.page, true
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, translate(ctx, err)
		}
		for _, object := range page.Contents {
			name, inside := strings.CutPrefix(aws.ToString(object.Key), s.prefix)
			if inside && strings.HasPrefix(name, prefix) && names.MatchString(name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out) // not every store lists in the order of bytes
	return slices.Compact(out), nil
}

// Delete implements ports.ExportStore. In a bucket with versions a plain delete only hides an
// object, so Delete removes each of its versions.
func (s *Store) Delete(ctx context.Context, name string) error {
	key, err := s.key(name)
	if err != nil {
		return err
	}
	versions, err := s.versions(ctx, key)
	if err != nil {
		return err
	}
	for _, id := range versions {
		if err := s.deleteVersion(ctx, key, id); err != nil {
			return err
		}
	}
	if len(versions) > 0 {
		return nil
	}
	// Some stores know no versions, or list none in a bucket without them.
	_, err = s.client.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	switch {
	case isKeyMissing(err):
		return nil
	case err != nil:
		return translate(ctx, err)
	}
	return s.deleteVersion(ctx, key, nil)
}

// versions returns the ids of all versions of an object in the order in which they can be
// deleted without making an older one visible: the older before the newer, then the delete
// markers.
func (s *Store) versions(ctx context.Context, key string) ([]*string, error) {
	var documents, markers []*string
	pages := awss3.NewListObjectVersionsPaginator(s.client, &awss3.ListObjectVersionsInput{Bucket: &s.bucket, Prefix: &key}, func(o *awss3.ListObjectVersionsPaginatorOptions) {
		o.Limit = s.page // StopOnDuplicateToken would end at a key whose versions fill a page
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if fault.CodeOf(translate(ctx, err)) == codeUnsupported {
			return nil, nil
		}
		if err != nil {
			return nil, translate(ctx, err)
		}
		others := false // keys that begin with this one
		for _, v := range page.Versions {
			if aws.ToString(v.Key) == key {
				documents = append(documents, v.VersionId)
			} else {
				others = true
			}
		}
		for _, m := range page.DeleteMarkers {
			if aws.ToString(m.Key) == key {
				markers = append(markers, m.VersionId)
			} else {
				others = true
			}
		}
		if others {
			break // keys are in order, and this one is the first of those that begin with it
		}
	}
	slices.Reverse(documents) // the newest is listed first
	return append(documents, markers...), nil
}

// deleteVersion deletes one version of an object; nil: the object of a bucket without versions.
func (s *Store) deleteVersion(ctx context.Context, key string, id *string) error {
	if aws.ToString(id) == "" {
		id = nil
	}
	_, err := s.client.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: &s.bucket, Key: &key, VersionId: id})
	if err == nil || isKeyMissing(err) {
		return nil
	}
	if isRefused(err) {
		if locked := s.lockOf(ctx, key, id); locked != nil {
			return locked.WithCause(err)
		}
	}
	return translate(ctx, err)
}

// lockOf returns export.locked if an object lock keeps a version, else nil. Stores refuse such a
// delete with the same errors as one without rights, so only the object itself shows the lock.
func (s *Store) lockOf(ctx context.Context, key string, id *string) *fault.Error {
	if out, err := s.client.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: &s.bucket, Key: &key, VersionId: id}); err == nil {
		return lockIn(out)
	}
	return nil
}

func lockIn(out *awss3.HeadObjectOutput) *fault.Error {
	if until := aws.ToTime(out.ObjectLockRetainUntilDate); until.After(time.Now()) {
		return fault.New(fault.FailedPrecondition, codeLocked, "the export store keeps the document under an object lock until %s; delete it after that", until.UTC().Format(time.RFC3339))
	}
	if out.ObjectLockLegalHoldStatus == types.ObjectLockLegalHoldStatusOn {
		return fault.New(fault.FailedPrecondition, codeLocked, "the export store keeps the document under a legal hold; delete it after the hold is released")
	}
	return nil
}

// key returns the key of a document's object.
func (s *Store) key(name string) (string, error) {
	key := s.prefix + name
	if len(key) > maxKey || !names.MatchString(name) {
		return "", invalidName()
	}
	return key, nil
}

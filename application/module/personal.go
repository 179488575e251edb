package module

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// IntentSchemaVersion is the schema version that sealed values of intents are bound
// to. Intents are not versioned.
const IntentSchemaVersion = 1

// LocationOf is what the sealed personal values of an intent are bound to, the associated data
// of their encryption: a value that was copied to another record cannot be opened.
func LocationOf(i *intent.Intent) shredding.Location {
	return shredding.Location{Partition: i.Partition, Kind: shredding.KindIntent, Record: i.ID, Type: i.Type, SchemaVersion: IntentSchemaVersion}
}

// Sealer seals the personal values of documents before they are stored. No personal value is
// stored without it.
type Sealer interface {
	// Seal replaces the fields of the document by their sealed form, keeps every other byte,
	// and lists the keys it used, for the store's lease. Without fields it returns the
	// document unchanged and calls neither key service nor key store.
	//
	//	pii.subject_erased    Gone: the person is erased or being erased
	//	pii.receipts_behind   Unavailable: this installation may have lost erasures
	//	pii.keys_missing      FailedPrecondition: no key service is configured
	//	kms.*, keys.*         of the key service and the key store
	Seal(ctx context.Context, r SealRequest) (document []byte, used []event.SealedSubject, err error)
	// Forget drops the keys from the cache after the store answered pii.key_moved, so that
	// the next Seal reads them from the key store.
	Forget(p event.PartitionID, used []event.SealedSubject)
}

// maxReseals is how often values are sealed again after shredding.CodeKeyMoved.
const maxReseals = 3

// RetryWhileKeysMove repeats an append after shredding.CodeKeyMoved, up to maxReseals
// times, after the fault's RetryAfter. The append must have dropped the moved keys by
// Sealer.Forget, so that the next try seals with the new ones.
func RetryWhileKeysMove(ctx context.Context, tryAppend func() (ports.AppendResult, error)) (res ports.AppendResult, err error) {
	for n := 0; ; n++ {
		if res, err = tryAppend(); fault.CodeOf(err) != shredding.CodeKeyMoved || n == maxReseals {
			return res, err
		}
		if moved, ok := fault.As(err); ok && ports.Sleep(ctx, moved.RetryAfter) != nil {
			return res, err
		}
	}
}

// SealRequest is a document that is about to be stored.
type SealRequest struct {
	TenantID string
	At       shredding.Location // of the document; Pointer is empty
	Class    shredding.KeyClass
	Document []byte
	Fields   []shredding.Field
}

// Opener opens sealed values for a reader. No other code opens them.
type Opener interface {
	// Open replaces the sealed values of all documents: by the value if the reader may
	// see its class, by "[MASKED]" if not, by "[REDACTED]" if the key store says that
	// the key was destroyed. It fetches keys once for all documents. On an error it changes
	// no document, so that an outage never looks like an erasure; it has recorded with the
	// reader what it opened before it changes any. A value that cannot
	// be opened is pii.unsealable; pii.receipts_behind as in Seal.
	Open(ctx context.Context, documents []SealedDocument, r Reader) error
}

// SealedDocument is a stored document to open. Open replaces Document and does not write
// to its bytes.
type SealedDocument struct {
	At       shredding.Location // of the document; Pointer is empty. Copied values carry their own location
	Document []byte
}

// Rights decides which classes of personal data a caller reads in clear.
type Rights interface {
	// Reads decides by the type of the event or intent that a value was sealed in.
	Reads(recordType string, class shredding.Class) bool
}

// Reader is a caller who reads personal data, with a record of what it was given.
type Reader interface {
	Rights
	// Disclose records values that are about to leave in clear, once for each call of Open that
	// opens any. On an error none leaves.
	Disclose(ctx context.Context, opened []Opened) error
}

// Opened counts the values of one person and class that were opened together.
type Opened struct {
	Partition event.PartitionID // of the legal entity whose records hold them
	Subject   shredding.Subject
	Class     shredding.Class
	Values    int
}

// Planning is the Reader of planners and folds. It reads every class, because they return the
// values to no caller; so nothing is recorded.
type Planning struct{}

// Reads implements Rights.
func (Planning) Reads(string, shredding.Class) bool { return true }

// Disclose implements Reader.
func (Planning) Disclose(context.Context, []Opened) error { return nil }

// Masked is the Reader who reads no class.
type Masked struct{}

// Reads implements Rights.
func (Masked) Reads(string, shredding.Class) bool { return false }

// Disclose implements Reader.
func (Masked) Disclose(context.Context, []Opened) error { return nil }

// Fingerprints makes keyed digests of callers' content, so that hashing guesses does not
// reveal a value. The same content has the same fingerprint within a tenant.
type Fingerprints interface {
	// Fingerprint is HMAC-SHA-256 of the digest under a secret of the tenant.
	Fingerprint(ctx context.Context, tenantID string, digest event.Hash) (event.Hash, error)
}

// Manifests finds the PII manifest of a stored record's type.
type Manifests interface {
	// Manifest finds it by partition, kind, type and schema version. It is nil for a type without
	// personal data, or an unknown one.
	Manifest(ctx context.Context, at shredding.Location) (*shredding.Manifest, error)
}

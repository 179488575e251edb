package eventtype

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Action names a change of the registry.
type Action string

// The changes. A version is never rewritten and never deleted.
const (
	ActionRegistered  Action = "registry.type.registered"
	ActionDeprecated  Action = "registry.type.deprecated"
	ActionReactivated Action = "registry.type.reactivated"
)

// Change is one change of one version, in the append-only history of the registry.
type Change struct {
	// Number orders the changes of the whole registry; the versions that one request
	// changes share it.
	Number        int64
	Action        Action
	Type          string
	SchemaVersion uint32 // in a request 0: all versions
	// Digest is the SHA-256 of the version's document as it is stored.
	Digest [sha256.Size]byte
	Actor  string // person id, or "module:<name>"
	Reason string // no personal data
	At     time.Time
	// Checksum is the change's link in the chain of all changes: see ChainChecksum.
	Checksum [sha256.Size]byte
}

// MaxReasonBytes bounds the reason of a change.
const MaxReasonBytes = 1000

// Document is the registration as stored, without the members that the registry sets. The
// bytes of schemas and examples are not changed. Fault
// event_type.schema_invalid when they are no JSON.
func (r Registration) Document() ([]byte, error) {
	r.RegisteredAt, r.RegisteredBy, r.Active = time.Time{}, "", false
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return nil, fault.New(fault.Invalid, "event_type.schema_invalid", "schema and examples must be JSON; correct them")
	}
	return b.Bytes(), nil
}

// Deprecated is the fault for an append of a deprecated version, and for another
// version of a type of which all are deprecated.
func Deprecated(name string) *fault.Error {
	return fault.New(fault.FailedPrecondition, "event_type.deprecated",
		"event type %q, or the version asked for, is deprecated and takes no new events; use its successor, or reactivate it (POST /api/event-types/{type}/reactivate)", name)
}

// RegistryMoved is the fault for a registration that was checked against another
// state of the registry than the store has.
func RegistryMoved() *fault.Error {
	return fault.New(fault.Conflict, "event_type.registry_moved", "the registry has changed in the meantime; register again")
}

// chainDomain separates the frozen format of the registry's chain from all others.
const chainDomain = "backbone/registry/v1"

// ChainChecksum is the checksum of the change after the one before it, all zero for the
// first change of the registry:
//
//	SHA-256( L("backbone/registry/v1") ‖ previous ‖ u64 number ‖ L(action) ‖ L(type) ‖
//	         u32 schema version ‖ digest ‖ L(actor) ‖ L(reason) ‖ i64 microseconds since 1970 )
//
// with L(x) the length of x in 32 bits before x, numbers big-endian.
func (c *Change) ChainChecksum(previous [sha256.Size]byte) [sha256.Size]byte {
	text := func(dst []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
	}
	b := text(nil, chainDomain)
	b = append(b, previous[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Number))
	b = text(b, string(c.Action))
	b = text(b, c.Type)
	b = binary.BigEndian.AppendUint32(b, c.SchemaVersion)
	b = append(b, c.Digest[:]...)
	b = text(b, c.Actor)
	b = text(b, c.Reason)
	b = binary.BigEndian.AppendUint64(b, uint64(c.At.UnixMicro()))
	return sha256.Sum256(b)
}

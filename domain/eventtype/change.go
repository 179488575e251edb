package eventtype

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Action names a change of the registry.
type Action string

// The changes. What a version accepts is never narrowed, and no version is deleted.
const (
	ActionRegistered  Action = "registry.type.registered"
	ActionDeprecated  Action = "registry.type.deprecated"
	ActionReactivated Action = "registry.type.reactivated"
	// What one person proposes and another one confirms, with the change of the same name above,
	// or rejects.
	ActionProposed             Action = "registry.type.proposed" // a version
	ActionDeprecationProposed  Action = "registry.type.deprecation_proposed"
	ActionReactivationProposed Action = "registry.type.reactivation_proposed"
	ActionRejected             Action = "registry.type.rejected"
	// A version is registered again with further optional members, see Amend.
	ActionAmended           Action = "registry.type.amended"
	ActionAmendmentProposed Action = "registry.type.amendment_proposed"
	// ActionMoved ends a version of the shared registry that was a tenant's: the registry of
	// the tenant has it since. Only a migration writes it.
	ActionMoved Action = "registry.type.moved"
)

// Change is one change of one version, in the append-only history of a registry.
type Change struct {
	TenantID string // whose registry; "" the shared one of the built-in modules
	// Number orders the changes of one registry; the versions that one request
	// changes share it.
	Number        int64
	Action        Action
	Type          string
	SchemaVersion uint32 // in a request 0: all versions
	// Digest is the SHA-256 of the version's document as it is stored.
	Digest [sha256.Size]byte
	Actor  string // person id, or ModuleActor
	// By is the actor in a request; Actor is its id.
	By     event.Actor
	Reason string // no personal data
	At     time.Time
	// Checksum is that of the change's event, or for a change from before the administrative log
	// its link in the chain of its registry: see ChainChecksum. Zero for a built-in version.
	Checksum [sha256.Size]byte
}

// ModuleActor is the actor of what comes with a built-in module.
func ModuleActor(name string) string { return "module:" + name }

// MaxReasonBytes bounds the reason of a change.
const MaxReasonBytes = 1000

// ParseDocument reads a registration out of the document that Document made of it.
func ParseDocument(document []byte) (r Registration, err error) {
	if err := json.Unmarshal(document, &r); err != nil {
		return r, fault.New(fault.Internal, "store.failed", "a registration cannot be decoded; report this").WithCause(err)
	}
	return r, nil
}

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

// Registered is the change that registers or amends the version, or proposes that if it is withheld.
func (r *Registration) Registered(digest [sha256.Size]byte) Change {
	c := Change{
		TenantID: r.TenantID, Action: ActionRegistered, Type: r.Type, SchemaVersion: r.SchemaVersion, Digest: digest, Actor: r.RegisteredBy, At: r.RegisteredAt,
	}
	switch {
	case r.Amends && r.Withheld:
		c.Action = ActionAmendmentProposed
	case r.Amends:
		c.Action = ActionAmended
	case r.Withheld:
		c.Action = ActionProposed
	}
	return c
}

// After is the registration after a first change.
func (r Registration) After(first Change) Registration {
	var s State
	s.Apply(first)
	return r.In(s)
}

// In is the registration in a state.
func (r Registration) In(s State) Registration {
	r.Active, r.Withheld, r.Proposal = s.Active, s.Withheld, s.Proposal
	return r
}

// State is the state of the registration.
func (r *Registration) State() State {
	return State{Active: r.Active, Withheld: r.Withheld, Proposal: r.Proposal}
}

// Duplicate is the fault for a version that is registered, proposed or rejected already.
func Duplicate(name string, version uint32) *fault.Error {
	return fault.New(fault.Conflict, "event_type.duplicate", "version %d of event type %q is registered already; register the next version", version, name)
}

// TooLarge is the fault for a registration that no event can hold.
func TooLarge() *fault.Error {
	return fault.New(fault.TooLarge, "event_type.too_large", "a registration must fit in one event; shorten its schema, its description or its examples")
}

// NameTaken is the fault for a type whose name the shared registry has, or, for the shared
// registry itself, a tenant.
func NameTaken(tenantID, name string) *fault.Error {
	if tenantID == "" {
		return fault.New(fault.FailedPrecondition, "event_type.name_taken",
			"a tenant has registered event type %q, which a built-in module declares; run the release without the module, or give the module another prefix", name)
	}
	return OwnedByModule(name)
}

// OwnedByModule is the fault for a change of a type of the shared registry.
func OwnedByModule(name string) *fault.Error {
	return fault.New(fault.Forbidden, "event_type.owned_by_module", "event type %q belongs to a built-in module, which alone decides about it; choose a prefix of your own", name).WithField("/type")
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

// ChainStart is what stands for the change before the first one of a registry: all zero for the
// shared registry, and SHA-256( L("backbone/registry/tenant/v1") ‖ L(tenant id) ) for a tenant's,
// so that the chain of one tenant cannot stand in for that of another.
func ChainStart(tenantID string) [sha256.Size]byte {
	if tenantID == "" {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(appendText(appendText(nil, tenantChainDomain), tenantID))
}

const tenantChainDomain = "backbone/registry/tenant/v1"

func appendText(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// ChainChecksum is the checksum of the change after the one before it, ChainStart for the
// first change of a registry:
//
//	SHA-256( L("backbone/registry/v1") ‖ previous ‖ u64 number ‖ L(action) ‖ L(type) ‖
//	         u32 schema version ‖ digest ‖ L(actor) ‖ L(reason) ‖ i64 microseconds since 1970 )
//
// with L(x) the length of x in 32 bits before x, numbers big-endian.
func (c *Change) ChainChecksum(previous [sha256.Size]byte) [sha256.Size]byte {
	b := appendText(nil, chainDomain)
	b = append(b, previous[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Number))
	b = appendText(b, string(c.Action))
	b = appendText(b, c.Type)
	b = binary.BigEndian.AppendUint32(b, c.SchemaVersion)
	b = append(b, c.Digest[:]...)
	b = appendText(b, c.Actor)
	b = appendText(b, c.Reason)
	b = binary.BigEndian.AppendUint64(b, uint64(c.At.UnixMicro()))
	return sha256.Sum256(b)
}

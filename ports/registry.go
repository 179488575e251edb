package ports

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

// EventTypes is the registries of event types. Every tenant has a registry of its own, which
// follows from its administrative log; tenant "" is the shared one of the built-in modules. A name
// is registered in the shared registry or in those of tenants, where it may be of any number of
// independent types.
type EventTypes interface {
	// EventTypes lists all versions of all types of one registry and its generation, the number
	// of its last change.
	EventTypes(ctx context.Context, tenantID string) (types []eventtype.Registration, generation int64, err error)
	// EventTypeGenerations is the cheap question whether anything changed: the generation of
	// every registry that had a change.
	EventTypeGenerations(ctx context.Context) (map[string]int64, error)
	// RegisterEventType registers one version in the registry of its tenant and wakes every node.
	// A withheld version is a proposal. Faults event_type.duplicate when the version exists,
	// event_type.owned_by_module for a name of the shared registry, event_type.name_taken for a
	// name in the shared registry that a tenant has, event_type.too_large.
	RegisterEventType(ctx context.Context, r eventtype.Registration) (eventtype.Registration, error)
	// RegisterEventTypeAt does so for a tenant if its registry is still at the generation; fault
	// event_type.registry_moved otherwise.
	RegisterEventTypeAt(ctx context.Context, r eventtype.Registration, generation int64) (eventtype.Registration, error)
	// ChangeEventType makes the changes of a tenant's type that eventtype.ChangeVersions gives, and
	// wakes every node. Its faults are those of ChangeVersions.
	ChangeEventType(ctx context.Context, c eventtype.Change) ([]eventtype.Change, error)
	// ChangeEventTypeAt does so if the registry is still at the generation; fault
	// event_type.registry_moved otherwise.
	ChangeEventTypeAt(ctx context.Context, c eventtype.Change, generation int64) ([]eventtype.Change, error)
	// EventTypeHistory lists all changes of a type of a registry, or of all its types when the
	// name is empty, by number and version. Empty for an unknown type.
	EventTypeHistory(ctx context.Context, tenantID, name string) ([]eventtype.Change, error)
}

// SharedEventTypes stores the registry of the built-in modules, the numbers of all types, and what
// the registries of earlier releases held, which never changes.
type SharedEventTypes interface {
	// SharedEventTypes lists all versions of the built-in types, by type and version, and the
	// generation of the registry.
	SharedEventTypes(ctx context.Context) (types []eventtype.Registration, generation int64, err error)
	// SharedGeneration grows with each version of a built-in type.
	SharedGeneration(ctx context.Context) (int64, error)
	// RegisterEventType stores a version of a built-in type, or what amends one, assigns the type's
	// number and wakes every node. Faults event_type.duplicate, also for an amendment of a version
	// that was amended since, and event_type.name_taken.
	RegisterEventType(ctx context.Context, r eventtype.Registration) (eventtype.Registration, error)
	// ReserveEventTypes gives the numbers of types of tenants. A name that has none becomes one
	// of tenants for ever.
	ReserveEventTypes(ctx context.Context, names []string) (map[string]EventTypeName, error)
	// AnnounceEventTypes wakes every node.
	AnnounceEventTypes(ctx context.Context) error
	// RegistryRecord reads one registry as it is stored.
	RegistryRecord(ctx context.Context, tenantID string) (RegistryRecord, error)
}

// EventTypeName is what is stored about the name of a type.
type EventTypeName struct {
	Number   int32 // in the key index
	IsShared bool  // it is a built-in type's
}

// RegistryAudit reads the registries for verification.
type RegistryAudit interface {
	// RegistryRecords gives all registries as of one moment; the shared registry first, the
	// others by tenant.
	RegistryRecords(ctx context.Context) ([]RegistryRecord, error)
	// RegistryRecord gives one registry; "" is the shared one. One that does not exist is empty.
	RegistryRecord(ctx context.Context, tenantID string) (RegistryRecord, error)
}

// RegistryRecord is one registry as it is stored: the chain of changes of earlier releases, which
// no release continues, with the versions that they registered. The shared registry also has the
// versions of built-in types that were registered since.
type RegistryRecord struct {
	TenantID   string
	Changes    []eventtype.Change // by number, then by version
	Versions   []StoredVersion    // by type, then by version, then by amendment
	Generation int64              // the number of the last change
}

// StoredVersion is a registered version or an amendment of it, whatever it may say.
type StoredVersion struct {
	Type          string
	SchemaVersion uint32
	Amendment     int // 0: the version as it was registered first
	Document      []byte
	Digest        [sha256.Size]byte // of the document as it is stored now
	By            string
	At            time.Time
	Altered       bool // it holds what no registration writes
}

// SchemaCompiler compiles JSON Schemas. No reference outside the document is
// ever loaded.
type SchemaCompiler interface {
	// Compile returns fault event_type.schema_invalid for a schema that does not
	// compile or that refers outside itself.
	Compile(schema json.RawMessage) (Schema, error)
}

// Schema validates documents.
type Schema interface {
	// Validate returns one violation per finding, none for a valid document. The
	// document has passed domain/jsondoc. Violations hold keyword and pointer, never
	// values.
	Validate(document json.RawMessage) ([]fault.Violation, error)
}

// TransformCompiler compiles programs that make one document out of another: the
// upcasters that administrators declare.
type TransformCompiler interface {
	// Compile returns fault transform.invalid for a program that does not compile, or
	// that asks for anything but the document: files, network, environment, clock,
	// chance. Its detail names the place.
	Compile(program string) (Transform, error)
}

// Transform is a compiled program. It may be used by several goroutines at once.
type Transform interface {
	// Apply gives the one object that the program makes of a document, which has passed
	// domain/jsondoc and stays as it is. Numbers that the program hands on keep their
	// text. The same document gives the same answer everywhere. Work and size are
	// bounded. Faults, none of which repeats a value of the document:
	//
	//	transform.failed           the program ended with an error
	//	transform.limit_exceeded   it does not end, or its values grow without bound
	//	transform.output_invalid   it gives no value, several, or one that is no object
	Apply(ctx context.Context, document json.RawMessage) (json.RawMessage, error)
}

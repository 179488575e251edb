package ports

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

// EventTypes stores registrations.
type EventTypes interface {
	// EventTypes lists all versions of all types and the registry's generation, which
	// grows with every change.
	EventTypes(ctx context.Context) (types []eventtype.Registration, generation int64, err error)
	// EventTypesGeneration is the cheap question whether anything changed.
	EventTypesGeneration(ctx context.Context) (int64, error)
	// RegisterEventType inserts one version and its change, assigns the type's number
	// and wakes every node. Fault event_type.duplicate when the version exists.
	RegisterEventType(ctx context.Context, r eventtype.Registration) (eventtype.Registration, error)
	// RegisterEventTypeAt does so if the registry is still at the generation; fault
	// event_type.registry_moved otherwise.
	RegisterEventTypeAt(ctx context.Context, r eventtype.Registration, generation int64) (eventtype.Registration, error)
	// ChangeEventType deprecates or reactivates the version that is named, or all of
	// the type, and wakes every node. It gives the changes; those that are in that
	// state already change nothing. Fault event_type.not_found.
	ChangeEventType(ctx context.Context, c eventtype.Change) ([]eventtype.Change, error)
	// EventTypeHistory lists all changes of a type, or of all types when the name is
	// empty, by number and version. Empty for an unknown type.
	EventTypeHistory(ctx context.Context, name string) ([]eventtype.Change, error)
}

// RegistryAudit reads the registry's log for verification.
type RegistryAudit interface {
	// RegistryRecord gives all changes in the order of their chain, and what they
	// vouch for, as of one moment.
	RegistryRecord(ctx context.Context) (RegistryRecord, error)
}

// RegistryRecord is the registry as it is stored.
type RegistryRecord struct {
	Changes    []eventtype.Change // by number, then by version
	Versions   []StoredVersion    // by type, then by version
	Generation int64              // the number of the last change
}

// StoredVersion is a registered version, whatever it may say.
type StoredVersion struct {
	Type          string
	SchemaVersion uint32
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

package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Registry looks up, checks and registers event types. Its methods may be called concurrently.
type Registry struct {
	store      ports.EventTypes
	schemas    ports.SchemaCompiler
	transforms ports.TransformCompiler // of upcasters in jq
	catalog    *module.Catalog
	clock      ports.Clock
	prover     module.Prover // nil: nothing is proven, examples of earlier versions neither

	refreshing chan struct{} // a lock around Refresh that can be waited for with a context
	snapshot   atomic.Pointer[snapshot]
}

var _ module.Manifests = (*Registry)(nil)

// snapshot is the registry at one generation. It is never changed once it is published.
type snapshot struct {
	generation   int64
	readingID    string
	versions     map[string]map[uint32]*module.RegisteredType
	newestActive map[string]*module.RegisteredType // by type
	steps        map[string]map[uint32][]module.Step
	all          []eventtype.Registration
}

// New makes a registry, which is empty until the first Refresh.
func New(store ports.EventTypes, schemas ports.SchemaCompiler, transforms ports.TransformCompiler, catalog *module.Catalog, clock ports.Clock) *Registry {
	r := &Registry{store: store, schemas: schemas, transforms: transforms, catalog: catalog, clock: clock, refreshing: make(chan struct{}, 1)}
	r.snapshot.Store(&snapshot{generation: -1})
	return r
}

// Lookup finds an active version of a type; version 0 is the newest one. It asks the store only
// if there is none in memory: until the next refresh it finds versions that were deprecated
// through another node, while every lookup of a version deprecated here costs a query. Faults
// event_type.not_found, also for an unknown version of a known type, and event_type.deprecated;
// that of the store if the refresh fails.
func (r *Registry) Lookup(ctx context.Context, name string, version uint32) (*module.RegisteredType, error) {
	if t := r.snapshot.Load().find(name, version); t != nil {
		return t, nil
	}
	if err := r.Refresh(ctx); err != nil {
		return nil, err
	}
	current := r.snapshot.Load()
	if t := current.find(name, version); t != nil {
		return t, nil
	}
	versions := current.versions[name]
	if versions[version] != nil || (version == 0 && len(versions) > 0) {
		return nil, eventtype.Deprecated(name)
	}
	return nil, eventtype.NotRegistered(name)
}

func (s *snapshot) find(name string, version uint32) *module.RegisteredType {
	if version == 0 {
		return s.newestActive[name]
	}
	t := s.versions[name][version]
	if t == nil || !t.Active {
		return nil
	}
	return t
}

// StoredVersion finds the version of a type that an event was stored in, active or deprecated.
// Faults event_type.not_found, and that of the store.
func (r *Registry) StoredVersion(ctx context.Context, name string, version uint32) (*module.RegisteredType, error) {
	if t := r.snapshot.Load().versions[name][version]; t != nil {
		return t, nil
	}
	if err := r.Refresh(ctx); err != nil {
		return nil, err
	}
	if t := r.snapshot.Load().versions[name][version]; t != nil {
		return t, nil
	}
	return nil, eventtype.NotRegistered(name)
}

// ListVersions lists all versions of a type, highest first. Fault event_type.not_found.
func (r *Registry) ListVersions(ctx context.Context, name string) ([]eventtype.Registration, error) {
	if err := r.Refresh(ctx); err != nil {
		return nil, err
	}
	var out []eventtype.Registration
	for _, t := range r.snapshot.Load().versions[name] {
		out = append(out, t.Registration)
	}
	if len(out) == 0 {
		return nil, eventtype.NotRegistered(name)
	}
	slices.SortFunc(out, func(a, b eventtype.Registration) int { return cmp.Compare(b.SchemaVersion, a.SchemaVersion) })
	return out, nil
}

// List lists all registrations by type and version.
func (r *Registry) List(ctx context.Context) ([]eventtype.Registration, error) {
	if err := r.Refresh(ctx); err != nil {
		return nil, err
	}
	return r.snapshot.Load().all, nil
}

// Refresh reloads the registry if the store's generation has changed. One refresh runs at a
// time; a caller that has waited for another one reloads only if there are newer changes.
// Waiting ends with the caller's context. On an error the previous snapshot stays.
func (r *Registry) Refresh(ctx context.Context) error {
	select {
	case r.refreshing <- struct{}{}:
		defer func() { <-r.refreshing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	generation, err := r.store.EventTypesGeneration(ctx)
	if err != nil {
		return err
	}
	if generation == r.snapshot.Load().generation {
		return nil
	}
	types, generation, err := r.store.EventTypes(ctx)
	if err != nil {
		return err
	}
	next, err := r.buildSnapshot(types, generation)
	if err != nil {
		return err
	}
	r.snapshot.Store(next)
	return nil
}

// ReadingID identifies in which versions this node reads events. It covers the names and version
// numbers of all types with several versions, deprecated or not, so it changes when a type gets a
// further version; states that were folded under another id must be recomputed. It does not cover
// upcasters: those in jq never change, those of modules must not.
func (r *Registry) ReadingID() string { return r.snapshot.Load().readingID }

// buildSnapshot compiles what the previous snapshot does not have. A stored schema that does not
// compile in this release fails the refresh for all types, and with it the start of a node.
func (r *Registry) buildSnapshot(types []eventtype.Registration, generation int64) (*snapshot, error) {
	old := r.snapshot.Load()
	s := &snapshot{
		generation:   generation,
		versions:     make(map[string]map[uint32]*module.RegisteredType, len(types)),
		newestActive: make(map[string]*module.RegisteredType, len(types)),
		all:          types,
	}
	for _, reg := range types {
		t := &module.RegisteredType{Registration: reg, Checks: r.catalog.Checks(reg.Type, reg.SchemaVersion)}
		if known := old.versions[reg.Type][reg.SchemaVersion]; known != nil {
			// A registered version never changes, so its compiled parts are reused.
			t.Schema, t.Manifest, t.KeyClass, t.Defaults, t.Upcasts = known.Schema, known.Manifest, known.KeyClass, known.Defaults, known.Upcasts
		} else {
			if err := parsePersonalData(t); err != nil {
				return nil, err
			}
			compiled, err := r.schemas.Compile(reg.DataSchema)
			if err != nil {
				return nil, fmt.Errorf("stored schema of %s version %d: %w", reg.Type, reg.SchemaVersion, err)
			}
			t.Schema = compiled
			r.compileStoredUpcasters(t)
		}
		if s.versions[reg.Type] == nil {
			s.versions[reg.Type] = map[uint32]*module.RegisteredType{}
		}
		s.versions[reg.Type][reg.SchemaVersion] = t
		if n := s.newestActive[reg.Type]; reg.Active && (n == nil || n.SchemaVersion < reg.SchemaVersion) {
			s.newestActive[reg.Type] = t
		}
	}
	s.steps = map[string]map[uint32][]module.Step{}
	for name, versions := range s.versions {
		if steps := upcastSteps(versions); steps != nil {
			s.steps[name] = steps
		}
	}
	slices.SortFunc(s.all, func(a, b eventtype.Registration) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.SchemaVersion, b.SchemaVersion))
	})
	digest := sha256.New()
	for _, reg := range s.all {
		if s.steps[reg.Type] != nil {
			fmt.Fprintf(digest, "%s %d\n", reg.Type, reg.SchemaVersion)
		}
	}
	s.readingID = hex.EncodeToString(digest.Sum(nil)[:8])
	return s, nil
}

// parsePersonalData fills in the manifest, which tells the vault which values to seal for whom,
// and the class of the keys that seal them.
func parsePersonalData(t *module.RegisteredType) error {
	manifest, found := eventtype.Manifest(t.PIIFields)
	if len(found) > 0 {
		return fmt.Errorf("stored pii_fields of %s version %d: %w", t.Type, t.SchemaVersion, eventtype.Invalid(found))
	}
	class, err := shredding.ParseKeyClass(string(t.RetentionClass))
	if err != nil {
		return fmt.Errorf("stored retention class of %s version %d: %w", t.Type, t.SchemaVersion, err)
	}
	t.Manifest, t.KeyClass = manifest, class
	return nil
}

// Manifest implements module.Manifests. It also finds inactive versions, whose events stay
// readable.
func (r *Registry) Manifest(ctx context.Context, kind shredding.Kind, recordType string, version uint32) (*shredding.Manifest, error) {
	if kind == shredding.KindIntent {
		t, _ := r.catalog.Intent(recordType)
		return t.Manifest(), nil
	}
	t := r.snapshot.Load().versions[recordType][version]
	if t == nil {
		if err := r.Refresh(ctx); err != nil {
			return nil, err
		}
		if t = r.snapshot.Load().versions[recordType][version]; t == nil {
			return nil, nil
		}
	}
	return t.Manifest, nil
}

// Register checks and stores a new version. It refuses types with a built-in module's
// prefix, schemas under which personal data could be stored in clear
// (eventtype.Registration.CheckPersonal), and versions that violate the policy of schema
// evolution (event_type.incompatible, see eventtype.Compare). If the version declares
// upcasters, or requires members that earlier events lack, all stored events of the type are
// read first: faults event_type.upcaster_failed and event_type.proof_needed. With a proof
// from Check only the events since that proof are read; a proof of another registration, or
// of another state of the type, is refused with cursor.foreign. Only event_type.registry_moved
// may pass when the same call is repeated.
//
// An error together with a registration means that the version is stored, but this node could
// not reload afterwards. Repeating the call then gives event_type.duplicate.
func (r *Registry) Register(ctx context.Context, reg eventtype.Registration, by string, p ProofRequest) (eventtype.Registration, error) {
	if err := r.checkOwner(&reg); err != nil {
		return eventtype.Registration{}, err
	}
	if err := r.checkPersonal(&reg); err != nil {
		return eventtype.Registration{}, err
	}
	return r.validateAndStore(ctx, reg, by, func(ctx context.Context, reg eventtype.Registration) (eventtype.Registration, error) {
		return r.registerChecked(ctx, reg, p)
	})
}

// checkPersonal reports errors in a registration's personal data together with its other
// errors. A schema that does not compile is refused by a later check.
func (r *Registry) checkPersonal(reg *eventtype.Registration) error {
	if _, err := r.schemas.Compile(reg.DataSchema); err != nil {
		return nil //nolint:nilerr // a later check refuses it
	}
	personal := reg.CheckPersonal()
	if len(personal) == 0 {
		return nil
	}
	var found []fault.Violation
	if f, ok := fault.As(reg.Validate()); ok {
		found = f.Violations
	}
	return eventtype.Invalid(append(found, personal...))
}

// validateAndStore checks a registration by itself and passes it to store. As with Register, an
// error together with a registration means that it is stored.
func (r *Registry) validateAndStore(
	ctx context.Context, reg eventtype.Registration, by string, store func(context.Context, eventtype.Registration) (eventtype.Registration, error),
) (eventtype.Registration, error) {
	if err := reg.Validate(); err != nil {
		return eventtype.Registration{}, err
	}
	compiled, err := r.schemas.Compile(reg.DataSchema)
	if err != nil {
		return eventtype.Registration{}, err
	}
	if err := checkExamples(compiled, reg.Examples); err != nil {
		return eventtype.Registration{}, err
	}
	reg.Active, reg.RegisteredAt, reg.RegisteredBy = true, event.Micros(r.clock.Now()), by
	stored, err := store(ctx, reg)
	if err != nil {
		return eventtype.Registration{}, err
	}
	return stored, r.Refresh(ctx)
}

func checkExamples(schema ports.Schema, examples []json.RawMessage) error {
	var found []fault.Violation
	for i, ex := range examples {
		violations, err := schema.Validate(ex)
		if err != nil {
			return fault.New(fault.Invalid, "event_type.example_invalid", "example %d is not a JSON document; correct it", i).WithField(fmt.Sprintf("/examples/%d", i))
		}
		for _, v := range violations {
			v.Field = fmt.Sprintf("/examples/%d%s", i, v.Field)
			found = append(found, v)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "event_type.example_invalid",
		"an example does not fit its own schema; correct the example or the schema").WithViolations(found...)
}

// RegisterBuiltIn registers the types that modules declare, without comparing versions and
// without a proof. It fails with event_type.version_rewritten if a stored version differs from
// the declared one in its schema, apart from reasons in x-not-pii, or in its personal data.
// Other differences, such as in dimensions or business keys, are ignored: the stored
// registration stays in force, and only Go code (checks, upcasters) is that of the release.
func (r *Registry) RegisterBuiltIn(ctx context.Context) error {
	if err := r.Refresh(ctx); err != nil {
		return err
	}
	for _, t := range r.catalog.EventTypes {
		if r.snapshot.Load().versions[t.Type][t.SchemaVersion] == nil {
			_, err := r.validateAndStore(ctx, t.Registration, "module:"+t.Module, r.store.RegisterEventType)
			if fault.CodeOf(err) == "event_type.duplicate" {
				err = r.Refresh(ctx) // another node registered it first; its version is compared below
			}
			if err != nil {
				return fmt.Errorf("register %s: %w", t.Type, err)
			}
		}
		stored := r.snapshot.Load().versions[t.Type][t.SchemaVersion]
		if stored == nil || !equalSchemas(stored.DataSchema, t.DataSchema) {
			return fault.New(fault.FailedPrecondition, "event_type.version_rewritten",
				"the schema of %s version %d differs from the stored one; register a new version instead of changing this one", t.Type, t.SchemaVersion)
		}
		if !equalPersonalData(&stored.Registration, &t.Registration) {
			return fault.New(fault.FailedPrecondition, "event_type.version_rewritten",
				"the personal data of %s version %d are declared otherwise than stored; register a new version instead of changing this one", t.Type, t.SchemaVersion)
		}
	}
	return nil
}

// equalPersonalData reports whether two registrations seal the same values for the same
// subjects under the same keys.
func equalPersonalData(a, b *eventtype.Registration) bool {
	if len(a.PIIFields) == 0 && len(b.PIIFields) == 0 {
		return true
	}
	return a.RetentionClass == b.RetentionClass && slices.EqualFunc(a.PIIFields, b.PIIFields, func(x, y eventtype.PIIField) bool {
		return x.Path == y.Path && x.Class == y.Class && equalJSON(x.Subject, y.Subject)
	})
}

// Run refreshes the registry periodically until ctx ends and reports failed refreshes.
func (r *Registry) Run(ctx context.Context, every time.Duration, report func(error)) {
	for ports.Sleep(ctx, every) == nil {
		if err := r.Refresh(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
	}
}

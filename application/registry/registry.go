// Package registry keeps the event types: registration with all its checks, and
// lookup from memory. Every node reloads when the store's generation has grown,
// at once when a lookup misses.
package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Registry answers lookups and takes registrations.
type Registry struct {
	store   ports.EventTypes
	schemas ports.SchemaCompiler
	catalog *module.Catalog
	clock   ports.Clock

	transforms ports.TransformCompiler // nil: no upcasters in jq
	prover     module.Prover           // nil: only examples

	refreshing chan struct{} // holds the one token of whoever refreshes; waiting for it ends with a context
	snapshot   atomic.Pointer[snapshot]
}

var _ module.Manifests = (*Registry)(nil)

type snapshot struct {
	generation int64
	readingID  string
	versions   map[string]map[uint32]*module.RegisteredType
	newest     map[string]*module.RegisteredType // newest active version
	steps      map[string]map[uint32][]module.Step
	all        []eventtype.Registration
}

// New makes a registry that knows nothing until the first Refresh.
func New(store ports.EventTypes, schemas ports.SchemaCompiler, catalog *module.Catalog, clock ports.Clock, options ...Option) *Registry {
	r := &Registry{store: store, schemas: schemas, catalog: catalog, clock: clock, refreshing: make(chan struct{}, 1)}
	for _, o := range options {
		o(r)
	}
	r.snapshot.Store(&snapshot{generation: -1})
	return r
}

// Lookup finds a type's version; version 0 is the newest active one. A miss
// reloads once, so a type registered on another node is found. Faults
// event_type.not_found and event_type.deprecated.
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
		return s.newest[name]
	}
	t := s.versions[name][version]
	if t == nil || !t.Active {
		return nil
	}
	return t
}

// Fetch lists all versions of a type, newest first.
func (r *Registry) Fetch(ctx context.Context, name string) ([]eventtype.Registration, error) {
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
	sort.Slice(out, func(i, j int) bool { return out[i].SchemaVersion > out[j].SchemaVersion })
	return out, nil
}

// List gives all registrations by type and version.
func (r *Registry) List(ctx context.Context) ([]eventtype.Registration, error) {
	if err := r.Refresh(ctx); err != nil {
		return nil, err
	}
	return r.snapshot.Load().all, nil
}

// Refresh reloads if the store has changed since the last time. One runs at a time:
// whoever waited for another one finds what that has loaded, and loads only what is newer.
// A caller whose context ends meanwhile is not held up by a store that is slow to answer.
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

// ReadingID names how events of earlier versions are read, as far as this node has heard:
// it changes with every type that gets a further version. What was folded under another
// name is folded anew.
func (r *Registry) ReadingID() string { return r.snapshot.Load().readingID }

func (r *Registry) buildSnapshot(types []eventtype.Registration, generation int64) (*snapshot, error) {
	old := r.snapshot.Load()
	s := &snapshot{
		generation: generation,
		versions:   make(map[string]map[uint32]*module.RegisteredType, len(types)),
		newest:     make(map[string]*module.RegisteredType, len(types)),
		all:        types,
	}
	for _, reg := range types {
		t := &module.RegisteredType{Registration: reg, Checks: r.catalog.Checks(reg.Type, reg.SchemaVersion)}
		if known := old.versions[reg.Type][reg.SchemaVersion]; known != nil {
			// A registered version never changes them.
			t.Schema, t.Manifest, t.KeyClass, t.Defaults, t.Upcasts = known.Schema, known.Manifest, known.KeyClass, known.Defaults, known.Upcasts
		} else {
			if err := readManifest(t); err != nil {
				return nil, err
			}
			compiled, err := r.schemas.Compile(reg.DataSchema)
			if err != nil {
				return nil, fmt.Errorf("stored schema of %s version %d: %w", reg.Type, reg.SchemaVersion, err)
			}
			t.Schema = compiled
			r.readStoredUpcasters(t)
		}
		if s.versions[reg.Type] == nil {
			s.versions[reg.Type] = map[uint32]*module.RegisteredType{}
		}
		s.versions[reg.Type][reg.SchemaVersion] = t
		if n := s.newest[reg.Type]; reg.Active && (n == nil || n.SchemaVersion < reg.SchemaVersion) {
			s.newest[reg.Type] = t
		}
	}
	s.steps = map[string]map[uint32][]module.Step{}
	for name, versions := range s.versions {
		if steps := upcastSteps(versions); steps != nil {
			s.steps[name] = steps
		}
	}
	sort.Slice(s.all, func(i, j int) bool {
		a, b := s.all[i], s.all[j]
		if a.Type != b.Type {
			return a.Type < b.Type
		}
		return a.SchemaVersion < b.SchemaVersion
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

// readManifest fills in what a registration says about personal data.
func readManifest(t *module.RegisteredType) error {
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

// Manifest implements module.Manifests. Versions that are not active count too: their
// events stay readable.
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

// Register checks and stores a new version. Types under a built-in module's
// prefix cannot be registered from outside. What would let personal data be stored in
// clear is refused (eventtype.Registration.CheckPersonal), and so is a version that
// does not meet the policy of schema evolution: fault event_type.incompatible, see
// eventtype.Compare. If it declares upcasters, or requires what earlier events lack, all
// stored events of the type are looked at first: faults event_type.upcaster_failed and
// event_type.proof_needed. A proof that Check gave spares all but the newest ones.
func (r *Registry) Register(ctx context.Context, reg eventtype.Registration, by string, p Proof) (eventtype.Registration, error) {
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

// checkPersonal gives what a registration says wrongly about personal data together
// with whatever else is wrong. A schema that does not compile is left for later.
func (r *Registry) checkPersonal(reg *eventtype.Registration) error {
	if !r.isCompilable(reg.DataSchema) {
		return nil
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

func (r *Registry) isCompilable(schema json.RawMessage) bool {
	_, err := r.schemas.Compile(schema)
	return err == nil
}

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

// RegisterBuiltIn brings the modules' declared types into the store. A stored
// version whose schema differs from the declared one, other than by a reason in
// x-not-pii, or whose personal data do, is an error: a version is never rewritten.
func (r *Registry) RegisterBuiltIn(ctx context.Context) error {
	if err := r.Refresh(ctx); err != nil {
		return err
	}
	for _, t := range r.catalog.EventTypes {
		if r.snapshot.Load().versions[t.Type][t.SchemaVersion] == nil {
			_, err := r.validateAndStore(ctx, t.Registration, "module:"+t.Module, r.store.RegisterEventType)
			if fault.CodeOf(err) == "event_type.duplicate" {
				err = r.Refresh(ctx) // another node was faster; its version is looked at below
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
		return x.Path == y.Path && x.Class == y.Class && equalSchemas(x.Subject, y.Subject)
	})
}

// Run keeps the registry fresh until ctx ends. report is called with every
// failed refresh.
func (r *Registry) Run(ctx context.Context, every time.Duration, report func(error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := r.Refresh(ctx); err != nil && ctx.Err() == nil {
				report(err)
			}
		}
	}
}

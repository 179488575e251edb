package registry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
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
	entities   ports.LegalEntities
	tenants    sync.Map // event.PartitionID → tenant id, of the legal entities known so far

	refreshing  ports.Lock       // around refreshes
	generations map[string]int64 // as last asked, under the lock
	asked       atomic.Uint64    // how often they were asked
	snapshots   atomic.Pointer[snapshots]
}

var _ module.Manifests = (*Registry)(nil)

// snapshots are those of the registries that had a change, by tenant; sharedID is the tenant of
// the shared one. They are never changed once they are published.
type snapshots struct {
	of     map[string]*snapshot
	owners map[string]map[string]string // see Owners
}

// sharedID names the registry of the built-in modules, which is for all tenants.
const sharedID = ""

// snapshot is one registry at one generation. It is never changed once it is published.
type snapshot struct {
	tenantID     string
	generation   int64
	readingID    string
	versions     map[string]map[uint32]*module.RegisteredType // but the withheld ones
	newestActive map[string]*module.RegisteredType            // by type
	steps        map[string]map[uint32][]module.Step
	all          []eventtype.Registration
}

// New makes a registry, which is empty until the first Refresh.
func New(store ports.EventTypes, schemas ports.SchemaCompiler, transforms ports.TransformCompiler, catalog *module.Catalog, clock ports.Clock) *Registry {
	r := &Registry{store: store, schemas: schemas, transforms: transforms, catalog: catalog, clock: clock, refreshing: ports.NewLock()}
	r.snapshots.Store(&snapshots{of: map[string]*snapshot{}, owners: map[string]map[string]string{}})
	return r
}

// SetLegalEntities sets the directory that tells Manifest whose event it is about. It is called
// once, before the registry is used by several goroutines. Without it Manifest finds built-in
// types only.
func (r *Registry) SetLegalEntities(directory ports.LegalEntities) { r.entities = directory }

// current is the snapshot of one registry, empty before its first change.
func (r *Registry) current(tenantID string) *snapshot {
	if s := r.snapshots.Load().of[tenantID]; s != nil {
		return s
	}
	return &snapshot{tenantID: tenantID}
}

// registryOf is the snapshot of the registry that has a type for a tenant: the shared one for the
// types of built-in modules, else the tenant's.
func (r *Registry) registryOf(tenantID, name string) *snapshot {
	if shared := r.current(sharedID); len(shared.versions[name]) > 0 {
		return shared
	}
	return r.current(tenantID)
}

// Lookup finds an active version of a type of a tenant or of a built-in module; version 0 is the
// newest one. It asks the store only if there is none in memory: until the next refresh it finds
// versions that were deprecated through another node, while every lookup of a version deprecated
// here costs a query. Faults event_type.not_found, also for an unknown version of a known type,
// and event_type.deprecated; that of the store if the refresh fails.
func (r *Registry) Lookup(ctx context.Context, tenantID, name string, version uint32) (*module.RegisteredType, error) {
	if t := r.registryOf(tenantID, name).find(name, version); t != nil {
		return t, nil
	}
	if err := r.Refresh(ctx, tenantID); err != nil {
		return nil, err
	}
	current := r.registryOf(tenantID, name)
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

// StoredVersion finds the version of a type that an event of the tenant was stored in, active or
// deprecated. Faults event_type.not_found, and that of the store.
func (r *Registry) StoredVersion(ctx context.Context, tenantID, name string, version uint32) (*module.RegisteredType, error) {
	if err := r.Refresh(ctx, tenantID); err != nil {
		return nil, err
	}
	if t := r.registryOf(tenantID, name).versions[name][version]; t != nil {
		return t, nil
	}
	return nil, eventtype.NotRegistered(name)
}

// ListVersions lists all versions of a type of a tenant or of a built-in module, highest first,
// with those that are only proposed. Fault event_type.not_found.
func (r *Registry) ListVersions(ctx context.Context, tenantID, name string) ([]eventtype.Registration, error) {
	if err := r.Refresh(ctx, tenantID); err != nil {
		return nil, err
	}
	var out []eventtype.Registration
	for _, t := range r.registryOf(tenantID, name).all {
		if t.Type == name {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return nil, eventtype.NotRegistered(name)
	}
	slices.SortFunc(out, func(a, b eventtype.Registration) int { return cmp.Compare(b.SchemaVersion, a.SchemaVersion) })
	return out, nil
}

// List lists the registrations of built-in modules and those of a tenant, by type and version.
func (r *Registry) List(ctx context.Context, tenantID string) ([]eventtype.Registration, error) {
	if err := r.Refresh(ctx, tenantID); err != nil {
		return nil, err
	}
	out := slices.Clone(r.current(sharedID).all)
	if tenantID != sharedID {
		out = append(out, r.current(tenantID).all...)
	}
	slices.SortFunc(out, compareRegistrations)
	return out, nil
}

// Owners returns the modules of the event types of a tenant and of the built-in modules by type, as
// this node knows them without asking the store. The map must not be changed.
func (r *Registry) Owners(tenantID string) map[string]string {
	current := r.snapshots.Load()
	if owners, ok := current.owners[tenantID]; ok {
		return owners
	}
	return current.owners[sharedID]
}

func compareRegistrations(a, b eventtype.Registration) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.SchemaVersion, b.SchemaVersion))
}

// Refresh reloads the shared registry and that of a tenant if the store's generation of it has
// changed. One refresh runs at a time; one question to the store serves all who were waiting when
// it was asked, and a caller that has waited reloads only if there are newer changes. Waiting ends
// with the caller's context. On an error the previous snapshot stays.
func (r *Registry) Refresh(ctx context.Context, tenantID string) error {
	return r.refresh(ctx, func(id string) bool { return id == sharedID || id == tenantID })
}

// RefreshAll reloads every registry that has changed. A registry that cannot be loaded keeps its
// previous snapshot, and the others are loaded nonetheless.
func (r *Registry) RefreshAll(ctx context.Context) error {
	return r.refresh(ctx, func(string) bool { return true })
}

func (r *Registry) refresh(ctx context.Context, wanted func(tenantID string) bool) error {
	asked := r.asked.Load()
	if err := r.refreshing.Acquire(ctx); err != nil {
		return err
	}
	defer r.refreshing.Release()
	if r.asked.Load() <= asked+1 { // else a question began and ended while this caller waited
		generations, err := r.store.EventTypeGenerations(ctx)
		if err != nil {
			return err
		}
		r.generations = generations
		r.asked.Add(1)
	}
	before := r.snapshots.Load()
	var next *snapshots // nil while nothing has changed
	var errs []error
	for _, tenantID := range slices.Sorted(maps.Keys(r.generations)) {
		generation := r.generations[tenantID]
		if !wanted(tenantID) || before.of[tenantID] != nil && before.of[tenantID].generation == generation {
			continue
		}
		loaded, err := r.load(ctx, tenantID)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if next == nil {
			next = &snapshots{of: maps.Clone(before.of), owners: maps.Clone(before.owners)}
		}
		next.of[tenantID] = loaded
	}
	if next != nil {
		next.listOwners(before)
		r.snapshots.Store(next)
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// listOwners lists the owners again of each tenant whose types have changed since before.
func (s *snapshots) listOwners(before *snapshots) {
	shared := s.of[sharedID]
	for tenantID, own := range s.of {
		if own == before.of[tenantID] && shared == before.of[sharedID] {
			continue
		}
		owners := map[string]string{}
		for _, registered := range []*snapshot{shared, own} {
			if registered == nil {
				continue
			}
			for i := range registered.all {
				owners[registered.all[i].Type] = registered.all[i].Module
			}
		}
		s.owners[tenantID] = owners
	}
}

func (r *Registry) load(ctx context.Context, tenantID string) (*snapshot, error) {
	types, generation, err := r.store.EventTypes(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	return r.buildSnapshot(tenantID, types, generation)
}

// ReadingID identifies in which versions this node reads events of a tenant. It covers the names
// and version numbers of all types with several versions, deprecated or not, so it changes when a
// type gets a further version, or when one of several is amended, which may let an upcaster succeed;
// states that were folded under another id must be recomputed. It
// does not cover upcasters: those in jq never change, those of modules must not.
func (r *Registry) ReadingID(tenantID string) string {
	return r.current(sharedID).readingID + r.current(tenantID).readingID
}

// buildSnapshot compiles what the previous snapshot does not have. A stored schema that does not
// compile in this release fails the refresh for all types of its registry, and if it is that of a
// built-in module the start of a node.
func (r *Registry) buildSnapshot(tenantID string, types []eventtype.Registration, generation int64) (*snapshot, error) {
	old := r.current(tenantID)
	s := &snapshot{
		tenantID:     tenantID,
		generation:   generation,
		versions:     make(map[string]map[uint32]*module.RegisteredType, len(types)),
		newestActive: make(map[string]*module.RegisteredType, len(types)),
		all:          types,
	}
	for _, reg := range types {
		if reg.Withheld {
			continue
		}
		t := &module.RegisteredType{Registration: reg, Checks: r.checks(&reg)}
		if known := old.versions[reg.Type][reg.SchemaVersion]; known != nil && compilesAlike(&known.Registration, &reg) {
			t.Schema, t.Manifest, t.KeyClass, t.Defaults, t.Upcasts = known.Schema, known.Manifest, known.KeyClass, known.Defaults, known.Upcasts
		} else {
			if err := parsePersonalData(t); err != nil {
				return nil, err
			}
			compiled, err := r.compile(reg.DataSchema)
			if err != nil {
				return nil, fmt.Errorf("stored schema of %s version %d: %w", reg.Type, reg.SchemaVersion, err)
			}
			t.Schema = compiled
			r.compileStoredUpcasters(t)
		}
		if reg.Amendment != nil {
			compiled, err := r.schemas.Compile(reg.Amendment.DataSchema)
			if err != nil {
				return nil, fmt.Errorf("proposed schema of %s version %d: %w", reg.Type, reg.SchemaVersion, err)
			}
			t.Proposed = compiled
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
	slices.SortFunc(s.all, compareRegistrations)
	digest, hasSteps := sha256.New(), false
	for _, reg := range s.all {
		if s.steps[reg.Type] != nil && !reg.Withheld {
			hasSteps = true
			fmt.Fprintf(digest, "%s %d\n", reg.Type, reg.SchemaVersion)
			if n := len(reg.Schemas); n > 0 {
				fmt.Fprintf(digest, "amended %d\n", n)
			}
		}
	}
	if hasSteps || tenantID == sharedID {
		s.readingID = hex.EncodeToString(digest.Sum(nil)[:8])
	}
	return s, nil
}

// compilesAlike reports whether two registrations of a version give the same compiled parts. Numbers of
// amendments do not tell: a restored store may have lost one and got another since.
func compilesAlike(a, b *eventtype.Registration) bool {
	return bytes.Equal(a.DataSchema, b.DataSchema) && a.RetentionClass == b.RetentionClass && reflect.DeepEqual(a.PIIFields, b.PIIFields) && reflect.DeepEqual(a.Upcasters, b.Upcasters)
}

// compile compiles a schema. The catalog has compiled those of the built-in modules.
func (r *Registry) compile(text json.RawMessage) (ports.Schema, error) {
	if s := r.catalog.Schema(text); s != nil {
		return s, nil
	}
	return r.schemas.Compile(text)
}

// checks are those that a built-in module declares for its type.
func (r *Registry) checks(reg *eventtype.Registration) []module.Check {
	if reg.TenantID != sharedID {
		return nil
	}
	return r.catalog.Checks(reg.Type, reg.SchemaVersion)
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
func (r *Registry) Manifest(ctx context.Context, at shredding.Location) (*shredding.Manifest, error) {
	if at.Kind == shredding.KindIntent {
		t, _ := r.catalog.Intent(at.Type)
		return t.Manifest(), nil
	}
	if t := r.current(sharedID).versions[at.Type][at.SchemaVersion]; t != nil {
		return t.Manifest, nil
	}
	tenantID, err := r.tenantOf(ctx, at.Partition)
	if err != nil {
		return nil, err
	}
	if !r.HasVersion(tenantID, at.Type, at.SchemaVersion) {
		if err := r.Refresh(ctx, tenantID); err != nil {
			return nil, err
		}
	}
	t := r.registryOf(tenantID, at.Type).versions[at.Type][at.SchemaVersion]
	if t == nil {
		return nil, nil
	}
	return t.Manifest, nil
}

// tenantOf is the tenant of a partition, which never changes; sharedID for an unknown one.
func (r *Registry) tenantOf(ctx context.Context, p event.PartitionID) (string, error) {
	if known, ok := r.tenants.Load(p); ok {
		return known.(string), nil
	}
	if r.entities == nil {
		return sharedID, nil
	}
	all, err := r.entities.LegalEntities(ctx, "")
	if err != nil {
		return "", err
	}
	for _, le := range all {
		r.tenants.Store(le.Partition, le.TenantID)
	}
	known, _ := r.tenants.Load(p)
	tenantID, _ := known.(string)
	return tenantID, nil
}

// Register checks and stores a new version of a tenant's type, or amends a registered one by
// optional members (eventtype.Amend; the answer has Amends set). A version with upcasters changes
// what others read: it is stored as a proposal, which takes effect once another person confirms it
// (Confirm); fault event_type.person_required for a service. So is an amendment that earlier events
// may contradict: all stored events of the version are read first. Register refuses types with a built-in module's
// prefix, schemas under which personal data could be stored in clear
// (eventtype.Registration.CheckPersonal), business keys that events could leave unclaimed
// (eventtype.Registration.CheckBusinessKeys), and versions that violate the policy of schema
// evolution (event_type.incompatible, see eventtype.Compare). If the version declares
// upcasters, or requires members that earlier events lack, all stored events of the type are
// read first: faults event_type.upcaster_failed and event_type.proof_needed. With a proof
// from Check only the events since that proof are read; a proof of another registration, or
// of another state of the type, is refused with cursor.foreign. Only event_type.registry_moved
// may pass when the same call is repeated.
//
// An error together with a registration means that the version is stored, but this node could
// not reload afterwards. Repeating the call then gives event_type.duplicate.
func (r *Registry) Register(ctx context.Context, reg eventtype.Registration, by event.Actor, p ProofRequest) (eventtype.Registration, error) {
	if len(reg.Upcasters) > 0 && by.Type != event.Human {
		return eventtype.Registration{}, PersonRequired()
	}
	if err := r.checkOwner(reg.TenantID, reg.Type); err != nil {
		return eventtype.Registration{}, err
	}
	if err := r.checkPersonal(&reg); err != nil {
		return eventtype.Registration{}, err
	}
	stored, err := r.validateAndStore(ctx, reg, by, func(ctx context.Context, reg eventtype.Registration) (eventtype.Registration, error) {
		return r.registerChecked(ctx, reg, p)
	})
	if err != nil {
		return eventtype.Registration{}, err
	}
	return stored, r.Refresh(ctx, reg.TenantID)
}

// checkPersonal reports what a registration's personal data contradict in its schema, together with
// its other errors. A schema that does not compile is refused by a later check.
func (r *Registry) checkPersonal(reg *eventtype.Registration) error {
	if _, err := r.schemas.Compile(reg.DataSchema); err != nil {
		return nil //nolint:nilerr // a later check refuses it
	}
	contradicted := reg.CheckPersonal()
	if len(contradicted) == 0 {
		return nil
	}
	var found []fault.Violation
	if f, ok := fault.As(reg.Validate()); ok {
		found = f.Violations
	}
	return eventtype.Invalid(append(found, contradicted...))
}

// validateAndStore checks a registration by itself and passes it to store. The registry is not
// refreshed.
func (r *Registry) validateAndStore(
	ctx context.Context, reg eventtype.Registration, by event.Actor, store func(context.Context, eventtype.Registration) (eventtype.Registration, error),
) (eventtype.Registration, error) {
	if err := reg.Validate(); err != nil {
		return eventtype.Registration{}, err
	}
	compiled, err := r.compile(reg.DataSchema)
	if err != nil {
		return eventtype.Registration{}, err
	}
	if err := checkExamples(compiled, reg.Examples); err != nil {
		return eventtype.Registration{}, err
	}
	reg.Active, reg.RegisteredAt, reg.RegisteredBy, reg.By = true, event.Micros(r.clock.Now()), by.ID, by
	return store(ctx, reg)
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
// without a proof. A stored version is amended where the declared one only adds optional members
// (eventtype.Amend) to closed objects. RegisterBuiltIn fails with event_type.version_rewritten if a stored version differs
// otherwise from the declared one in its schema, apart from annotations, or in its personal data.
// Other differences, such as in dimensions or business keys, are ignored: the stored
// registration stays in force, and only Go code (checks, upcasters) is that of the release.
func (r *Registry) RegisterBuiltIn(ctx context.Context) error {
	if err := r.Refresh(ctx, sharedID); err != nil {
		return err
	}
	for _, t := range r.catalog.EventTypes {
		if !r.HasVersion(sharedID, t.Type, t.SchemaVersion) {
			if err := r.storeBuiltIn(ctx, t.Registration); err != nil {
				return err
			}
		}
	}
	if err := r.Refresh(ctx, sharedID); err != nil { // once: it loads all types
		return err
	}
	var differing []module.EventType
	for _, t := range r.catalog.EventTypes {
		stored := r.current(sharedID).versions[t.Type][t.SchemaVersion]
		if differenceOf(stored, &t.Registration) == "" {
			continue
		}
		differing = append(differing, t)
		if stored == nil {
			continue
		}
		next := stored.Registration
		next.DataSchema, next.PIIFields, next.Description, next.Examples, next.Amends = t.DataSchema, t.PIIFields, t.Description, t.Examples, true
		if eventtype.Amends(&stored.Registration, &next) {
			if err := r.storeBuiltIn(ctx, next); err != nil {
				return err
			}
		}
	}
	if len(differing) == 0 {
		return nil
	}
	if err := r.Refresh(ctx, sharedID); err != nil {
		return err
	}
	for _, t := range differing {
		if what := differenceOf(r.current(sharedID).versions[t.Type][t.SchemaVersion], &t.Registration); what != "" {
			return fault.New(fault.FailedPrecondition, "event_type.version_rewritten",
				"the %s of %s version %d differs from the stored one in more than optional members of closed objects; register a new version instead of changing this one", what, t.Type, t.SchemaVersion)
		}
	}
	return nil
}

// storeBuiltIn stores a version that a module declares, or what amends one. If another node was
// faster, its version is compared.
func (r *Registry) storeBuiltIn(ctx context.Context, reg eventtype.Registration) error {
	_, err := r.validateAndStore(ctx, reg, event.Actor{ID: eventtype.ModuleActor(reg.Module)}, r.store.RegisterEventType)
	if err != nil && fault.CodeOf(err) != "event_type.duplicate" {
		return fmt.Errorf("register %s: %w", reg.Type, err)
	}
	return nil
}

// differenceOf names what a stored version has otherwise than the declared one; "": nothing.
func differenceOf(stored *module.RegisteredType, declared *eventtype.Registration) string {
	switch {
	case stored == nil || !eventtype.EqualSchemas(stored.DataSchema, declared.DataSchema):
		return "schema"
	case !equalPersonalData(&stored.Registration, declared):
		return "declaration of personal data"
	default:
		return ""
	}
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
		if err := r.RefreshAll(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
	}
}

package module

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Registrar collects one module's declarations. Its methods record errors, which Build returns
// together.
type Registrar struct {
	module   string
	prefixes []string
	catalog  *Catalog
	errs     []error
}

func (r *Registrar) fail(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("module %s: "+format, append([]any{r.module}, args...)...))
}

// Prefixes declares the first parts of event type names that the module owns.
func (r *Registrar) Prefixes(prefixes ...string) {
	for _, p := range prefixes {
		if owner, taken := r.catalog.prefixOwner[p]; taken && owner != r.module {
			r.fail("prefix %q belongs to module %s", p, owner)
			continue
		}
		r.catalog.prefixOwner[p] = r.module
		r.prefixes = append(r.prefixes, p)
	}
}

// EventType declares an event type. The module that declared its prefix owns it; the
// registration's Module is only the long name that the registry shows.
func (r *Registrar) EventType(t EventType) {
	if !slices.Contains(r.prefixes, eventtype.Prefix(t.Type)) {
		r.fail("event type %s: prefix %q is not declared", t.Type, eventtype.Prefix(t.Type))
	}
	if err := t.Validate(); err != nil {
		r.fail("event type %s: %w", t.Type, err)
	}
	for _, have := range r.catalog.EventTypes {
		if have.Type == t.Type && have.SchemaVersion == t.SchemaVersion {
			r.fail("event type %s version %d is declared twice", t.Type, t.SchemaVersion)
		}
	}
	r.catalog.EventTypes = append(r.catalog.EventTypes, t)
}

// Fold declares how streams of a type are folded.
func (r *Registrar) Fold(f Fold) {
	if f.StreamType == "" || f.New == nil || f.Clone == nil || f.Apply == nil {
		r.fail("fold %q lacks New, Clone or Apply", f.StreamType)
	}
	if c := f.Codec; c != nil && (c.Version < 1 || c.Encode == nil || c.Decode == nil) {
		r.fail("codec of fold %q lacks Version, Encode or Decode", f.StreamType)
	}
	if _, dup := r.catalog.folds[f.StreamType]; dup {
		r.fail("fold of %s is declared twice", f.StreamType)
	}
	r.catalog.folds[f.StreamType] = f
	r.catalog.foldOwner[f.StreamType] = r.module
}

// Intent declares an intent, whose type begins with the module's name.
func (r *Registrar) Intent(t IntentType) {
	if !strings.HasPrefix(t.Type, r.module+".") {
		r.fail("intent %s must begin with %q", t.Type, r.module+".")
	}
	if _, dup := r.catalog.intents[t.Type]; dup {
		r.fail("intent %s is declared twice", t.Type)
	}
	if t.Policy == "" {
		r.fail("intent %s has no policy", t.Type)
	}
	if t.Plan == nil {
		r.fail("intent %s has no plan", t.Type)
	}
	if len(t.Schema) == 0 {
		r.fail("intent %s has no schema", t.Type)
	}
	for _, class := range t.Opens {
		if !class.Valid() {
			r.fail("intent %s opens %q, which is no class of personal data", t.Type, class)
		}
	}
	manifest, found := eventtype.Manifest(t.PIIFields)
	for _, f := range found {
		r.fail("intent %s: %s at %s: %s", t.Type, f.Code, f.Field, f.Detail)
	}
	class, err := shredding.ParseKeyClass(string(t.RetentionClass))
	if err != nil {
		r.fail("intent %s: %w", t.Type, err)
	}
	t.manifest, t.keyClass = manifest, class
	r.catalog.intents[t.Type] = t
}

// Policy declares the module's Rego files. IntentType.Policy names the package that decides
// about an intent.
func (r *Registrar) Policy(files ...ports.PolicyModule) {
	r.catalog.Policies = append(r.catalog.Policies, files...)
}

// Projection declares a projection, which writes the rows of read models.
func (r *Registrar) Projection(p Projection) {
	if p.Name == "" || p.Version < 1 || len(p.EventTypes) == 0 {
		r.fail("projection %q lacks name, version or event types", p.Name)
	}
	for _, have := range r.catalog.Projections {
		if have.Name == p.Name {
			r.fail("projection %s is declared twice", p.Name)
		}
	}
	r.catalog.Projections = append(r.catalog.Projections, p)
}

// ReadModel declares a report over the rows of a projection.
func (r *Registrar) ReadModel(m ReadModel) {
	path := ReadModelPath(r.module, m.Name)
	if _, dup := r.catalog.readModels[path]; dup {
		r.fail("read model %s is declared twice", path)
	}
	r.catalog.readModels[path] = m
}

// Catalog has the declarations of all modules.
type Catalog struct {
	EventTypes  []EventType
	Policies    []ports.PolicyModule
	Projections []Projection
	Roles       []Role

	folds       map[string]Fold
	entityFolds map[string]EntityFold
	staysOnline map[string]bool // by tag
	intents     map[string]IntentType
	readModels  map[string]ReadModel
	files       map[string]File   // by path
	figures     map[string]Figure // by module:name
	foldOwner   map[string]string // the module that folds a stream type
	prefixOwner map[string]string
	schemas     map[string]*declaredSchema // of event types and intents, by their text as declared and compact
}

// declaredSchema is compiled once, by Build or when it first validates.
type declaredSchema struct {
	compile func() (ports.Schema, error)
}

// Validate implements ports.Schema.
func (s *declaredSchema) Validate(document json.RawMessage) ([]fault.Violation, error) {
	compiled, err := s.compile()
	if err != nil {
		return nil, err
	}
	return compiled.Validate(document)
}

// Schema finds the schema of a declared event type or intent by its text. It is nil for any other text.
func (c *Catalog) Schema(text json.RawMessage) ports.Schema {
	s := c.schemas[string(text)]
	if s == nil { // the store may have set it otherwise
		s = c.schemas[compactJSON(text)]
	}
	if s == nil {
		return nil
	}
	return s
}

func (c *Catalog) declareSchema(schemas ports.SchemaCompiler, text json.RawMessage) *declaredSchema {
	key := compactJSON(text)
	if c.schemas[key] == nil {
		c.schemas[key] = &declaredSchema{sync.OnceValues(func() (ports.Schema, error) { return schemas.Compile(text) })}
	}
	c.schemas[string(text)] = c.schemas[key]
	return c.schemas[key]
}

// compactJSON is a text without white space between its tokens; "" if it is no JSON.
func compactJSON(text json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return ""
	}
	return b.String()
}

// Fold finds the fold of a stream type.
func (c *Catalog) Fold(streamType string) (Fold, bool) { f, ok := c.folds[streamType]; return f, ok }

// Intent finds an intent type.
func (c *Catalog) Intent(name string) (IntentType, bool) { t, ok := c.intents[name]; return t, ok }

// IntentTypes lists the intents by name.
func (c *Catalog) IntentTypes() []IntentType {
	out := make([]IntentType, 0, len(c.intents))
	for _, t := range c.intents {
		out = append(out, t)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Type < out[j].Type })
	return out
}

// ReadModels lists the reports by path, "ap/open-items".
func (c *Catalog) ReadModels() map[string]ReadModel { return c.readModels }

// Owner names the module that owns an event type's prefix, "" if none does.
func (c *Catalog) Owner(eventType string) string { return c.prefixOwner[eventtype.Prefix(eventType)] }

// StreamOwner names the module that owns a stream type's prefix or folds its streams, "" if none
// does. Only that module changes such streams, because its plans count on their events.
func (c *Catalog) StreamOwner(streamType string) string {
	return cmp.Or(c.Owner(streamType), c.foldOwner[streamType])
}

// Checks finds the checks of an event type version.
func (c *Catalog) Checks(eventType string, version uint32) []Check {
	for i := range c.EventTypes {
		if t := &c.EventTypes[i]; t.Type == eventType && t.SchemaVersion == version {
			return t.Checks
		}
	}
	return nil
}

// Upcast finds a module's conversion to a version, and the version that it converts from.
// It is nil if no module declares one.
func (c *Catalog) Upcast(eventType string, version uint32) (from uint32, u Upcast) {
	for i := range c.EventTypes {
		t := &c.EventTypes[i]
		if t.Type != eventType {
			continue
		}
		if t.SchemaVersion == version {
			u = t.Upcast
		}
		if t.SchemaVersion < version && t.SchemaVersion > from {
			from = t.SchemaVersion
		}
	}
	return from, u
}

// Build joins the modules' declarations. It refuses on any error and returns all
// of them: names declared twice, by one module or by two, prefixes of another module, intents that emit unknown
// types or lack a policy, projections of unknown types, schemas that do not compile
// or would let personal data be stored in clear. The policy engine
// compiles the policies, and refuses two files with one path.
func Build(schemas ports.SchemaCompiler, modules ...Module) (*Catalog, error) {
	c, errs := declare(schemas, modules)
	errs = append(errs, c.crossCheck()...)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return c, nil
}

// Declare is Build without the checks of how the declarations fit together: for tools, which would repeat what a
// node has checked at its start. A schema is compiled when it is first used; with nil instead of a compiler there are none.
// Beside an error, of declarations that are wrong alone, it returns the others.
func Declare(schemas ports.SchemaCompiler, modules ...Module) (*Catalog, error) {
	c, errs := declare(schemas, modules)
	return c, errors.Join(errs...)
}

// declare collects the modules' declarations and the errors in each of them.
func declare(schemas ports.SchemaCompiler, modules []Module) (*Catalog, []error) {
	c := &Catalog{
		folds: map[string]Fold{}, foldOwner: map[string]string{}, entityFolds: map[string]EntityFold{}, staysOnline: map[string]bool{}, intents: map[string]IntentType{},
		readModels: map[string]ReadModel{}, files: map[string]File{}, figures: map[string]Figure{}, prefixOwner: map[string]string{}, schemas: map[string]*declaredSchema{},
	}
	var errs []error
	names := map[string]bool{}
	for _, m := range modules {
		if names[m.Name()] {
			errs = append(errs, fmt.Errorf("module %s is given twice", m.Name()))
			continue
		}
		names[m.Name()] = true
		r := &Registrar{module: m.Name(), catalog: c}
		if err := m.Register(r); err != nil {
			errs = append(errs, fmt.Errorf("module %s: %w", m.Name(), err))
		}
		errs = append(errs, r.errs...)
	}
	if schemas != nil {
		for _, t := range c.EventTypes {
			c.declareSchema(schemas, t.DataSchema)
		}
		for name, t := range c.intents {
			t.schema = c.declareSchema(schemas, t.Schema)
			c.intents[name] = t
		}
	}
	return c, append(errs, c.joinParts()...)
}

// joinParts lists the parts of read models at the read models that they belong to.
func (c *Catalog) joinParts() (errs []error) {
	for _, path := range slices.Sorted(maps.Keys(c.readModels)) {
		part := c.readModels[path]
		whole, declared := c.readModels[part.PartOf]
		if part.PartOf == "" || !declared {
			continue
		}
		sameColumns := slices.EqualFunc(whole.Columns, part.Columns, func(a, b Column) bool { return a.Name == b.Name && a.Type == b.Type })
		sameParams := slices.EqualFunc(whole.Params, part.Params, func(a, b Param) bool { return a.Name == b.Name && a.Type == b.Type })
		if !sameColumns || !sameParams || whole.PartOf != "" || whole.VaryColumns != nil || part.VaryColumns != nil {
			errs = append(errs, fmt.Errorf("read model %s is part of %s, and has other parameters or columns", path, part.PartOf))
			continue
		}
		for _, projection := range append([]string{part.Projection}, part.Reads...) {
			if projection != whole.Projection && !slices.Contains(whole.Reads, projection) {
				whole.Reads = append(slices.Clip(whole.Reads), projection)
			}
		}
		whole.Parts = append(slices.Clip(whole.Parts), path)
		c.readModels[part.PartOf] = whole
	}
	return errs
}

// packageLine matches the line that names the package of a Rego file.
var packageLine = regexp.MustCompile(`(?m)^[ \t]*package[ \t]+([A-Za-z0-9_.]+)`)

func (c *Catalog) crossCheck() []error {
	var errs []error
	known := map[string]bool{}
	compile := func(what string, schema json.RawMessage) {
		if _, err := c.schemas[compactJSON(schema)].compile(); err != nil {
			errs = append(errs, fmt.Errorf("schema of %s: %w", what, err))
		}
	}
	report := func(what string, found []fault.Violation) {
		for _, f := range found {
			errs = append(errs, fmt.Errorf("%s: %s at %s: %s", what, f.Code, f.Field, f.Detail))
		}
	}
	newest := map[string]uint32{}
	for _, t := range c.EventTypes {
		newest[t.Type] = max(newest[t.Type], t.SchemaVersion)
	}
	for _, t := range c.EventTypes {
		known[t.Type] = true
		compile(t.Type, t.DataSchema)
		report("personal data of "+t.Type, t.CheckPersonal())
		if t.SchemaVersion == newest[t.Type] { // earlier versions stay as they were stored
			report("business keys of "+t.Type, t.CheckBusinessKeys())
		}
		errs = append(errs, c.crossCheckUpcast(t)...)
		errs = append(errs, t.checkRedactable()...)
	}
	policies := map[string]bool{}
	for _, p := range c.Policies {
		if m := packageLine.FindStringSubmatch(p.Source); m != nil {
			policies[m[1]] = true
		}
	}
	for _, t := range c.IntentTypes() {
		compile(t.Type, t.Schema)
		report("personal data of "+t.Type, slices.DeleteFunc(t.manifest.Check(shredding.EventType{Schema: t.Schema}), func(f fault.Violation) bool {
			return t.Complete != nil && f.Code == "pii.subject_not_required" // Complete fills in the subject
		}))
		for _, e := range t.Emits {
			if !known[e] {
				errs = append(errs, fmt.Errorf("intent %s emits %s, which no module declares", t.Type, e))
			}
		}
		if t.Policy != "" && !policies[t.Policy] {
			errs = append(errs, fmt.Errorf("intent %s names policy %s, which no module declares", t.Type, t.Policy))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(c.files)) {
		if policy := c.files[path].Policy; !policies[policy] {
			errs = append(errs, fmt.Errorf("file %s names policy %s, which no module declares", path, policy))
		}
	}
	writers := map[string]bool{}
	for _, p := range c.Projections {
		writers[p.Name] = true
		for _, e := range p.EventTypes {
			if !known[e] && !intent.IsAbout(e) { // the pipeline, which declares those, is not in every catalog
				errs = append(errs, fmt.Errorf("projection %s reads %s, which no module declares", p.Name, e))
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(c.readModels)) {
		if projection := c.readModels[path].Projection; !writers[projection] {
			errs = append(errs, fmt.Errorf("read model %s names projection %q, which no module declares", path, projection))
		}
		for _, projection := range c.readModels[path].Reads {
			if !writers[projection] {
				errs = append(errs, fmt.Errorf("read model %s reads projection %q, which no module declares", path, projection))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.figures)) {
		f := c.figures[name]
		m, declared := c.readModels[f.ReadModel]
		hasEvent := slices.ContainsFunc(m.Columns, func(col Column) bool { return col.Name == "event_id" })
		takes := slices.ContainsFunc(m.Params, func(p Param) bool { return p.Name == f.Param })
		if !declared || !hasEvent || !takes {
			errs = append(errs, fmt.Errorf("figure %s: read model %s is not declared, or lacks the column event_id or the parameter %s", name, f.ReadModel, f.Param))
		}
	}
	return errs
}

// crossCheckUpcast runs a module's upcaster on the examples of the previous version.
func (c *Catalog) crossCheckUpcast(t EventType) (errs []error) {
	if len(t.Upcasters) > 0 {
		errs = append(errs, fmt.Errorf("event type %s version %d declares jq programs; a module converts data in Go", t.Type, t.SchemaVersion))
	}
	from, upcast := c.Upcast(t.Type, t.SchemaVersion)
	if upcast == nil {
		return errs
	}
	if from == 0 {
		return append(errs, fmt.Errorf("event type %s version %d has an upcaster, but there is no version before it", t.Type, t.SchemaVersion))
	}
	schema, err := c.schemas[compactJSON(t.DataSchema)].compile()
	if err != nil {
		return errs // crossCheck has reported it
	}
	for _, older := range c.EventTypes {
		if older.Type != t.Type || older.SchemaVersion != from {
			continue
		}
		for i, example := range older.Examples {
			data, err := upcast(example)
			if err == nil {
				data, err = eventtype.DefaultsOf(t.DataSchema).Fill(data)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("upcaster of %s version %d fails on example %d of version %d: %w", t.Type, t.SchemaVersion, i, from, err))
				continue
			}
			violations, err := schema.Validate(data)
			if err != nil || len(violations) > 0 {
				errs = append(errs, fmt.Errorf("upcaster of %s version %d converts example %d of version %d to data that does not fit the schema: %v", t.Type, t.SchemaVersion, i, from, violations))
			}
		}
	}
	return errs
}

// DeriveID derives the n-th id from a parent's: the parent's id for 0, else one with the
// parent's time and entropy SHA-256(parent ‖ n).
func DeriveID(parent event.ID, n int) event.ID {
	if n == 0 {
		return parent
	}
	var b [20]byte
	copy(b[:], parent[:])
	binary.BigEndian.PutUint32(b[16:], uint32(n))
	sum := sha256.Sum256(b[:])
	out := parent
	copy(out[6:], sum[:10])
	return out
}

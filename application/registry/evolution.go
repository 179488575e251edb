package registry

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/schema"
)

// Verdict is the result of all checks that Register runs.
type Verdict string

// The verdicts.
const (
	VerdictNewType    Verdict = "new_type"    // the first version
	VerdictNewVersion Verdict = "new_version" // the policy of schema evolution is met; the proof may be incomplete
	VerdictUnchanged  Verdict = "unchanged"   // already registered with this content; Register gives event_type.duplicate
	VerdictRefused    Verdict = "refused"
)

// Assessment is the result of Check.
type Assessment struct {
	Verdict Verdict
	// Findings are all reasons for a refusal, including those of Comparison.
	Findings []fault.Violation
	// Comparison is with the previous version, or with the stored version of the same number;
	// nil for the first version of a type.
	Comparison *eventtype.Comparison
	// Report is the progress of reading stored events; nil if nothing has to be proven, or if
	// there are other findings. Register gives event_type.proof_needed until it is complete.
	Report *module.ProofReport
}

// Check runs all checks of Register and writes nothing. Proving a version on many stored
// events takes several calls; each continues with the token of the previous one.
func (r *Registry) Check(ctx context.Context, reg eventtype.Registration, p ProofRequest) (Assessment, error) {
	if err := r.Refresh(ctx); err != nil {
		return Assessment{}, err
	}
	var out Assessment
	collect := func(err error) {
		f, ok := fault.As(err)
		switch {
		case !ok:
		case len(f.Violations) > 0:
			out.Findings = append(out.Findings, f.Violations...)
		default:
			out.Findings = append(out.Findings, fault.Violation{Field: f.Field, Code: f.Code, Detail: f.Detail})
		}
	}
	collect(r.checkOwner(&reg))
	collect(reg.Validate())
	compiled, compileErr := r.schemas.Compile(reg.DataSchema)
	if compileErr != nil {
		collect(prependSchemaPointer(compileErr))
	} else {
		out.Findings = append(out.Findings, reg.CheckPersonal()...)
		collect(checkExamples(compiled, reg.Examples))
	}
	current := r.snapshot.Load()
	if have := current.versions[reg.Type][reg.SchemaVersion]; have != nil {
		c := eventtype.Compare(&have.Registration, &reg)
		out.Comparison, out.Verdict = &c, VerdictUnchanged
		if !equalRegistrations(have.Registration, reg) {
			collect(fault.New(fault.Conflict, "event_type.duplicate", "this version is registered otherwise; versions never change, register the next one").WithField("/schema_version"))
		}
	} else {
		older, err := r.checkEvolution(current, &reg)
		out.Comparison = older
		collect(err)
		out.Verdict = VerdictNewVersion
		if len(current.versions[reg.Type]) == 0 {
			out.Verdict = VerdictNewType
		}
	}
	if len(out.Findings) == 0 && out.Verdict == VerdictNewVersion {
		var err error
		if out.Report, err = r.prove(ctx, current, &reg, out.Comparison, p); err != nil {
			return Assessment{}, err
		}
		if out.Report != nil && out.Report.Failed {
			collect(proofFault(out.Report))
		}
	}
	if len(out.Findings) > 0 {
		out.Verdict = VerdictRefused
	}
	return out, nil
}

// prependSchemaPointer makes a pointer into the schema relative to the registration.
func prependSchemaPointer(err error) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	return f.WithField("/data_schema" + f.Field)
}

func (r *Registry) checkOwner(reg *eventtype.Registration) error {
	if owner := r.catalog.Owner(reg.Type); owner != "" {
		return fault.New(fault.Forbidden, "event_type.owned_by_module",
			"types beginning with %q belong to the built-in module %s; choose a prefix of your own", eventtype.Prefix(reg.Type), owner).WithField("/type")
	}
	return nil
}

// checkEvolution compares a version with the previous one and, if it exists, the next one. The
// comparison that it returns, also with a fault, is the one with the previous version. Faults
// event_type.incompatible, event_type.deprecated if all versions of the type are, and
// event_type.invalid for upcasters.
func (r *Registry) checkEvolution(current *snapshot, reg *eventtype.Registration) (*eventtype.Comparison, error) {
	var before, after *eventtype.Registration
	versions, hasActive := current.versions[reg.Type], false
	for version, t := range versions {
		hasActive = hasActive || t.Active
		switch {
		case version < reg.SchemaVersion && (before == nil || before.SchemaVersion < version):
			before = &t.Registration
		case version > reg.SchemaVersion && (after == nil || after.SchemaVersion > version):
			after = &t.Registration
		}
	}
	if len(versions) > 0 && !hasActive {
		return nil, eventtype.Deprecated(reg.Type)
	}
	if err := r.checkUpcasters(current, reg); err != nil {
		return nil, err
	}
	var withPrevious *eventtype.Comparison
	if before != nil {
		c := eventtype.Compare(before, reg)
		if err := c.Refusal(reg.Type); err != nil {
			return &c, err
		}
		if err := r.checkDefaults(reg, &c); err != nil {
			return &c, err
		}
		withPrevious = &c
	}
	if after != nil {
		c := eventtype.Compare(reg, after)
		if err := c.Refusal(reg.Type); err != nil {
			return withPrevious, err
		}
	}
	return withPrevious, nil
}

// checkDefaults validates the defaults that fill members which earlier events lack.
func (r *Registry) checkDefaults(reg *eventtype.Registration, c *eventtype.Comparison) error {
	var found []fault.Violation
	for _, d := range c.Differences {
		if d.Kind != eventtype.RequiredAdded {
			continue
		}
		wrapped, value, ok := isolateSubschema(reg.DataSchema, strings.TrimPrefix(d.Pointer, "/data_schema"))
		if !ok {
			continue
		}
		compiled, err := r.schemas.Compile(wrapped)
		if err != nil {
			continue // the part exceeds limits once it is wrapped; Compare has checked it
		}
		violations, err := compiled.Validate(value)
		if err == nil && len(violations) == 0 {
			continue
		}
		found = append(found, fault.Violation{Field: d.Pointer + "/default", Code: "event_type.default_invalid", Detail: "the default does not fit its own schema; correct it"})
	}
	if len(found) == 0 {
		return nil
	}
	return fault.New(fault.FailedPrecondition, "event_type.incompatible",
		"a default does not fit its own schema, so nothing can stand for the member in earlier events; correct the default").WithViolations(found...)
}

// isolateSubschema wraps the subschema at a pointer as the member "value" of a new schema,
// and its default in a document of that schema.
func isolateSubschema(dataSchema json.RawMessage, pointer string) (wrapped, document json.RawMessage, ok bool) {
	doc, ok := schema.Parse(dataSchema)
	if !ok {
		return nil, nil, false
	}
	member, ok := doc.At(pointer)
	if !ok {
		return nil, nil, false
	}
	value, given := eventtype.DefaultOf(member)
	if !given {
		return nil, nil, false
	}
	root, _ := doc.Root().Value.(map[string]any)
	wrapper := map[string]any{
		"type": "object", "definitions": map[string]any{"whole": root},
		"properties": map[string]any{"value": map[string]any{"$ref": wholeSchemaRef + escapeFragment(pointer)}},
	}
	if draft, has := root["$schema"]; has {
		wrapper["$schema"] = draft
	}
	for _, word := range []string{"$schema", "$id", "id"} {
		delete(root, word)
	}
	rebaseReferences(doc.Root())
	var err error
	if wrapped, err = json.Marshal(wrapper); err != nil {
		return nil, nil, false
	}
	document, err = json.Marshal(map[string]any{"value": value})
	return wrapped, document, err == nil
}

const wholeSchemaRef = "#/definitions/whole"

// rebaseReferences rewrites local references for a schema that was moved into definitions.
func rebaseReferences(n schema.Node) {
	keywords, _ := n.Value.(map[string]any)
	ref, _ := keywords["$ref"].(string)
	if fragment, isLocal := strings.CutPrefix(ref, "#"); isLocal {
		keywords["$ref"] = wholeSchemaRef + fragment
	}
	for _, p := range n.Parts() {
		rebaseReferences(p.Node)
	}
}

var fragmentEscapes = strings.NewReplacer("%", "%25", " ", "%20", `"`, "%22", "#", "%23", "?", "%3F")

func escapeFragment(pointer string) string { return fragmentEscapes.Replace(pointer) }

// equalRegistrations compares registrations regardless of the order of JSON members. An
// empty list equals an absent one.
func equalRegistrations(a, b eventtype.Registration) bool {
	decode := func(r eventtype.Registration) (members map[string]any, ok bool) {
		document, err := r.Document()
		if err != nil {
			return nil, false
		}
		decoded, err := jsondoc.Decode(document)
		members, ok = decoded.(map[string]any)
		maps.DeleteFunc(members, func(_ string, v any) bool {
			list, isList := v.([]any)
			return v == nil || isList && len(list) == 0
		})
		return members, ok && err == nil
	}
	x, decodedX := decode(a)
	y, decodedY := decode(b)
	return decodedX && decodedY && reflect.DeepEqual(x, y)
}

// maxRegisterAttempts bounds how often a version is checked because other registrations were
// committed in the meantime. Each attempt may read events for the duration of a proof.
const maxRegisterAttempts = 10

// registerChecked checks a version against the registry's current generation and stores it
// on the condition that the generation has not changed; else it tries again, and gives
// event_type.registry_moved after the last attempt.
func (r *Registry) registerChecked(ctx context.Context, reg eventtype.Registration, p ProofRequest) (eventtype.Registration, error) {
	for attempt := 1; ; attempt++ {
		if err := r.Refresh(ctx); err != nil {
			return eventtype.Registration{}, err
		}
		current := r.snapshot.Load()
		if current.versions[reg.Type][reg.SchemaVersion] != nil {
			return r.store.RegisterEventType(ctx, reg) // fails with event_type.duplicate
		}
		compared, err := r.checkEvolution(current, &reg)
		if err != nil {
			return eventtype.Registration{}, err
		}
		report, err := r.prove(ctx, current, &reg, compared, p)
		if err == nil {
			err = proofFault(report)
		}
		if err != nil {
			return eventtype.Registration{}, err
		}
		stored, err := r.store.RegisterEventTypeAt(ctx, reg, current.generation)
		if fault.CodeOf(err) != eventtype.RegistryMoved().Code || attempt == maxRegisterAttempts {
			return stored, err
		}
	}
}

// Deprecate ends the appends of one version, or with version 0 of all versions; other nodes
// follow with their next refresh. Stored events are read as before, in a deprecated newest
// version too. Repeating it changes nothing, which makes it safe to repeat after an error. It
// returns all versions of the type. Faults event_type.owned_by_module for a built-in type,
// event_type.reason_too_long and event_type.not_found.
func (r *Registry) Deprecate(ctx context.Context, name string, version uint32, by, reason string) ([]eventtype.Registration, error) {
	return r.changeStatus(ctx, eventtype.Change{Action: eventtype.ActionDeprecated, Type: name, SchemaVersion: version, Actor: by, Reason: reason})
}

// Reactivate allows appends of a deprecated version again, or with version 0 of all versions. Its
// faults are those of Deprecate.
func (r *Registry) Reactivate(ctx context.Context, name string, version uint32, by, reason string) ([]eventtype.Registration, error) {
	return r.changeStatus(ctx, eventtype.Change{Action: eventtype.ActionReactivated, Type: name, SchemaVersion: version, Actor: by, Reason: reason})
}

func (r *Registry) changeStatus(ctx context.Context, c eventtype.Change) ([]eventtype.Registration, error) {
	if owner := r.catalog.Owner(c.Type); owner != "" {
		return nil, fault.New(fault.Forbidden, "event_type.owned_by_module",
			"types beginning with %q belong to the built-in module %s, which alone decides about them; deprecate types of your own only", eventtype.Prefix(c.Type), owner).WithField("/type")
	}
	if len(c.Reason) > eventtype.MaxReasonBytes {
		return nil, fault.New(fault.Invalid, "event_type.reason_too_long", "a reason has at most %d bytes; shorten it", eventtype.MaxReasonBytes).WithField("/reason")
	}
	c.At = event.Micros(r.clock.Now())
	if _, err := r.store.ChangeEventType(ctx, c); err != nil {
		return nil, err
	}
	return r.ListVersions(ctx, c.Type)
}

// FindUnregistered returns the types that are not registered; deprecated types count as
// registered. It refreshes only if a type is not in memory.
func (r *Registry) FindUnregistered(ctx context.Context, types []string) ([]string, error) {
	unknown := func() (out []string) {
		known := r.snapshot.Load().versions
		for _, name := range types {
			if len(known[name]) == 0 {
				out = append(out, name)
			}
		}
		return out
	}
	if len(unknown()) == 0 {
		return nil, nil
	}
	if err := r.Refresh(ctx); err != nil {
		return nil, err
	}
	return unknown(), nil
}

// Changes lists all changes of all types, in the order of their chain.
func (r *Registry) Changes(ctx context.Context) ([]eventtype.Change, error) {
	return r.store.EventTypeHistory(ctx, "")
}

// History lists all changes of a type, oldest first. Fault event_type.not_found.
func (r *Registry) History(ctx context.Context, name string) ([]eventtype.Change, error) {
	if name == "" {
		return nil, eventtype.NotRegistered(name)
	}
	out, err := r.store.EventTypeHistory(ctx, name)
	if err == nil && len(out) == 0 {
		err = eventtype.NotRegistered(name)
	}
	return out, err
}

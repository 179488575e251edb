package registry

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/schema"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Verdict is the result of all checks that Register runs.
type Verdict string

// The verdicts.
const (
	VerdictNewType    Verdict = "new_type"    // the first version
	VerdictNewVersion Verdict = "new_version" // the policy of schema evolution is met; the proof may be incomplete
	VerdictAmendment  Verdict = "amendment"   // the version gets optional members; the proof may be incomplete
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
	if err := r.Refresh(ctx, reg.TenantID); err != nil {
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
	collect(r.checkOwner(reg.TenantID, reg.Type))
	collect(reg.Validate())
	compiled, compileErr := r.schemas.Compile(reg.DataSchema)
	if compileErr != nil {
		collect(prependSchemaPointer(compileErr))
	} else {
		out.Findings = append(out.Findings, reg.CheckPersonal()...)
		collect(checkExamples(compiled, reg.Examples))
	}
	current := r.current(reg.TenantID)
	have := current.registration(reg.Type, reg.SchemaVersion)
	if have == nil && compileErr == nil {
		out.Findings = append(out.Findings, reg.CheckBusinessKeys()...)
	}
	switch {
	case have != nil && (equalRegistrations(*have, reg) || have.Amendment != nil && equalRegistrations(*have.Amendment, reg)):
		c := eventtype.Compare(have, &reg)
		out.Comparison, out.Verdict = &c, VerdictUnchanged
	case have != nil:
		c, err := r.checkAmendment(current, have, &reg)
		out.Comparison, out.Verdict = &c, VerdictAmendment
		collect(err)
	default:
		older, err := r.checkEvolution(current, &reg)
		out.Comparison = older
		collect(err)
		out.Verdict = VerdictNewVersion
		if len(current.versions[reg.Type]) == 0 {
			out.Verdict = VerdictNewType
		}
	}
	if len(out.Findings) == 0 && (out.Verdict == VerdictNewVersion || out.Verdict == VerdictAmendment) {
		var err error
		if out.Report, err = r.prove(ctx, current, &reg, out.Comparison, p); err != nil {
			return Assessment{}, err
		}
		if out.Report != nil && out.Report.Failed {
			collect(proofFault(&reg, out.Report))
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

// checkOwner refuses types that are not a tenant's: event_type.owned_by_module,
// event_type.name_reserved.
func (r *Registry) checkOwner(tenantID, name string) error {
	if eventtype.Reserved(name) && r.catalog.Owner(name) == "" {
		return fault.New(fault.Forbidden, "event_type.name_reserved",
			"names beginning with %q are kept for the product itself; choose a prefix of your own", eventtype.Prefix(name)).WithField("/type")
	}
	if owner := r.catalog.Owner(name); owner != "" {
		return fault.New(fault.Forbidden, "event_type.owned_by_module",
			"types beginning with %q belong to the built-in module %s, which alone decides about them; choose a prefix of your own", eventtype.Prefix(name), owner).WithField("/type")
	}
	if tenantID == sharedID || len(r.current(sharedID).versions[name]) > 0 {
		return eventtype.OwnedByModule(name)
	}
	return nil
}

// registration is that of a version, also of one that is only proposed; nil: there is none.
func (s *snapshot) registration(name string, version uint32) *eventtype.Registration {
	for i := range s.all {
		if r := &s.all[i]; r.Type == name && r.SchemaVersion == version {
			return r
		}
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

// checkAmendment compares a registration with the registered version of the same number, and with
// the next version, in which its events are read: what an earlier release accepted between the two
// is not judged again. Faults event_type.duplicate, event_type.deprecated,
// event_type.proposal_open and event_type.incompatible.
func (r *Registry) checkAmendment(current *snapshot, have, reg *eventtype.Registration) (eventtype.Comparison, error) {
	c, err := eventtype.Amend(have, reg)
	if err != nil {
		return c, err
	}
	reg.Amends, reg.Withheld = true, !c.Compatible
	version := eventtype.VersionState{SchemaVersion: have.SchemaVersion, State: have.State()}
	if reg.Proposal != nil {
		version.State.Proposal = nil // the one that is confirmed
	}
	document, err := reg.Document()
	if err != nil {
		return c, err
	}
	change := reg.Registered(sha256.Sum256(document))
	if err := version.CheckAmendment(&change); err != nil {
		return c, err
	}
	var after *eventtype.Registration
	for version, t := range current.versions[reg.Type] {
		if version > reg.SchemaVersion && (after == nil || after.SchemaVersion > version) {
			after = &t.Registration
		}
	}
	if after == nil {
		return c, nil
	}
	next, stored := eventtype.Compare(reg, after), eventtype.Compare(have, after)
	next.Differences = slices.DeleteFunc(next.Differences, func(d eventtype.Difference) bool { return slices.Contains(stored.Differences, d) })
	return c, next.Refusal(reg.Type)
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
	reg.Withheld = len(reg.Upcasters) > 0 // others read what its upcasters make of their events
	var stored eventtype.Registration
	err := r.checkedAt(ctx, &reg, p, func(generation int64) (err error) {
		if reg.Withheld && reg.By.Type != event.Human {
			return PersonRequired()
		}
		stored, err = r.store.RegisterEventTypeAt(ctx, reg, generation)
		return err
	})
	stored.Amends = reg.Amends
	return stored, err
}

// checkedAt checks a version, or what amends one, against the current generation of its registry and then calls store,
// which is to fail with event_type.registry_moved if the generation has changed. Then it tries again.
func (r *Registry) checkedAt(ctx context.Context, reg *eventtype.Registration, p ProofRequest, store func(generation int64) error) error {
	for attempt := 1; ; attempt++ {
		if err := r.Refresh(ctx, reg.TenantID); err != nil {
			return err
		}
		current := r.current(reg.TenantID)
		compared, err := r.compareNow(current, reg)
		if err != nil {
			return err
		}
		report, err := r.prove(ctx, current, reg, compared, p)
		if err == nil {
			err = proofFault(reg, report)
		}
		if err != nil {
			return err
		}
		err = store(current.generation)
		if fault.CodeOf(err) != eventtype.RegistryMoved().Code || attempt == maxRegisterAttempts {
			return err
		}
	}
}

// compareNow compares what is to be registered or confirmed with what is registered, and says in
// reg whether it amends a version.
func (r *Registry) compareNow(current *snapshot, reg *eventtype.Registration) (*eventtype.Comparison, error) {
	have := current.registration(reg.Type, reg.SchemaVersion)
	switch {
	case reg.Proposal != nil && (have == nil || have.Proposal == nil || have.Proposal.Digest != reg.Proposal.Digest):
		return nil, eventtype.NotProposed(reg.Type)
	case have == nil || have.Withheld && reg.Proposal != nil:
		if err := eventtype.Invalid(reg.CheckBusinessKeys()); err != nil {
			return nil, err
		}
		return r.checkEvolution(current, reg)
	case have.Withheld || equalRegistrations(*have, *reg):
		return nil, eventtype.Duplicate(reg.Type, reg.SchemaVersion)
	default:
		c, err := r.checkAmendment(current, have, reg)
		return &c, err
	}
}

// Deprecate proposes to end the appends of one version, or with version 0 of all versions. Once
// another person confirms it, other nodes follow with their next refresh. Stored events are read as before,
// in a deprecated newest version too. Repeating it changes nothing, which makes it safe to repeat
// after an error. It returns all versions of the type. Faults event_type.person_required,
// event_type.owned_by_module for a built-in type, event_type.reason_too_long, pii.in_text,
// event_type.proposal_open and event_type.not_found.
func (r *Registry) Deprecate(ctx context.Context, d Decision) ([]eventtype.Registration, error) {
	return r.decide(ctx, d, eventtype.ActionDeprecationProposed)
}

// Reactivate proposes to allow appends of a deprecated version again, or with version 0 of all
// versions. Its faults are those of Deprecate.
func (r *Registry) Reactivate(ctx context.Context, d Decision) ([]eventtype.Registration, error) {
	return r.decide(ctx, d, eventtype.ActionReactivationProposed)
}

// Reject withdraws what is proposed about one version, or with version 0 about all versions. The
// person who proposed it may do so too. The number of a rejected version is not used again. Its
// faults are those of Deprecate, and event_type.not_proposed.
func (r *Registry) Reject(ctx context.Context, d Decision) ([]eventtype.Registration, error) {
	return r.decide(ctx, d, eventtype.ActionRejected)
}

// Decision is what a person decides about a version.
type Decision struct {
	TenantID      string
	Type          string
	SchemaVersion uint32 // 0: about all versions
	By            event.Actor
	Reason        string // no personal data
}

func (d Decision) change(a eventtype.Action, at time.Time) eventtype.Change {
	return eventtype.Change{TenantID: d.TenantID, Action: a, Type: d.Type, SchemaVersion: d.SchemaVersion, Actor: d.By.ID, By: d.By, Reason: d.Reason, At: event.Micros(at)}
}

// PersonRequired is the fault for a service that decides what needs two persons.
func PersonRequired() *fault.Error {
	return fault.New(fault.Forbidden, "event_type.person_required",
		"what changes how events are read, or which may be appended, is proposed by one person and confirmed by another; a service does neither: use the token of a person")
}

// checkDecision checks what does not depend on the state of the version.
func (r *Registry) checkDecision(d Decision) error {
	if d.By.Type != event.Human {
		return PersonRequired()
	}
	if err := r.checkOwner(d.TenantID, d.Type); err != nil {
		return err
	}
	if len(d.Reason) > eventtype.MaxReasonBytes {
		return fault.New(fault.Invalid, "event_type.reason_too_long", "a reason has at most %d bytes; shorten it", eventtype.MaxReasonBytes).WithField("/reason")
	}
	return shredding.CheckText("/reason", d.Reason)
}

func (r *Registry) decide(ctx context.Context, d Decision, a eventtype.Action) ([]eventtype.Registration, error) {
	if err := r.checkDecision(d); err != nil {
		return nil, err
	}
	if _, err := r.store.ChangeEventType(ctx, d.change(a, r.clock.Now())); err != nil {
		return nil, err
	}
	return r.ListVersions(ctx, d.TenantID, d.Type)
}

// Confirm lets what another person proposed take effect: a version with upcasters, a deprecation or
// a reactivation; with version 0 all that is proposed about the type, if it is of one kind. A
// version is checked and proven again, because events were appended since. It returns all versions
// of the type. Faults event_type.not_proposed, event_type.same_person, those of Deprecate,
// and for a version those of Register.
func (r *Registry) Confirm(ctx context.Context, d Decision, p ProofRequest) ([]eventtype.Registration, error) {
	if err := r.checkDecision(d); err != nil {
		return nil, err
	}
	versions, err := r.ListVersions(ctx, d.TenantID, d.Type)
	if err != nil {
		return nil, err
	}
	var proposed []eventtype.Registration
	for _, v := range versions {
		if v.Proposal != nil && (d.SchemaVersion == 0 || v.SchemaVersion == d.SchemaVersion) {
			proposed = append(proposed, v)
		}
	}
	if len(proposed) == 0 || slices.ContainsFunc(proposed, func(v eventtype.Registration) bool { return v.Proposal.Action != proposed[0].Proposal.Action }) {
		return nil, eventtype.NotProposed(d.Type)
	}
	c := d.change(proposed[0].Proposal.Action.Confirmation(), r.clock.Now())
	if c.Action != eventtype.ActionRegistered && c.Action != eventtype.ActionAmended {
		_, err = r.store.ChangeEventType(ctx, c)
	} else {
		err = r.confirmVersion(ctx, proposed, c, p)
	}
	if err != nil {
		return nil, err
	}
	return r.ListVersions(ctx, d.TenantID, d.Type)
}

// confirmVersion registers or amends the one version of which that is proposed.
func (r *Registry) confirmVersion(ctx context.Context, proposed []eventtype.Registration, c eventtype.Change, p ProofRequest) error {
	if len(proposed) > 1 {
		return fault.New(fault.Invalid, "event_type.schema_version_invalid", "several versions are proposed; name the one to confirm").WithField("/schema_version")
	}
	reg := proposed[0]
	if reg.Amendment != nil {
		reg = *reg.Amendment
	}
	if reg.Proposal.Actor == c.Actor {
		return eventtype.SamePerson(reg.Type) // before the proof, which is expensive
	}
	c.SchemaVersion = reg.SchemaVersion
	return r.checkedAt(ctx, &reg, p, func(generation int64) error {
		_, err := r.store.ChangeEventTypeAt(ctx, c, generation)
		return err
	})
}

// FindUnregistered returns the types that neither a built-in module nor the tenant has registered;
// deprecated types count as registered. It refreshes only if a type is not in memory.
func (r *Registry) FindUnregistered(ctx context.Context, tenantID string, types []string) ([]string, error) {
	unknown := func() (out []string) {
		for _, name := range types {
			if len(r.registryOf(tenantID, name).versions[name]) == 0 {
				out = append(out, name)
			}
		}
		return out
	}
	if len(unknown()) == 0 {
		return nil, nil
	}
	if err := r.Refresh(ctx, tenantID); err != nil {
		return nil, err
	}
	return unknown(), nil
}

// Changes lists all changes of the types of built-in modules, and then those of a tenant's types,
// each in the order of their chain.
func (r *Registry) Changes(ctx context.Context, tenantID string) ([]eventtype.Change, error) {
	if err := r.Refresh(ctx, tenantID); err != nil {
		return nil, err
	}
	shared, err := r.store.EventTypeHistory(ctx, sharedID, "")
	if err != nil {
		return nil, err
	}
	builtIn := r.current(sharedID).versions
	shared = slices.DeleteFunc(shared, func(c eventtype.Change) bool { return len(builtIn[c.Type]) == 0 }) // of tenants, before 00023
	own, err := r.store.EventTypeHistory(ctx, tenantID, "")
	return append(shared, own...), err
}

// History lists all changes of a type of a tenant or of a built-in module, oldest first. Fault
// event_type.not_found.
func (r *Registry) History(ctx context.Context, tenantID, name string) ([]eventtype.Change, error) {
	if name == "" {
		return nil, eventtype.NotRegistered(name)
	}
	if err := r.Refresh(ctx, tenantID); err != nil {
		return nil, err
	}
	out, err := r.store.EventTypeHistory(ctx, r.registryOf(tenantID, name).tenantID, name)
	if err == nil && len(out) == 0 {
		err = eventtype.NotRegistered(name)
	}
	return out, err
}

package registry

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

// SetProver sets the prover that tries upcasters on stored events before their version is
// registered. It is called once, before the registry is used by several goroutines: the node
// needs the registry earlier than the prover. Without it nothing is proven.
func (r *Registry) SetProver(p module.Prover) { r.prover = p }

// defaultProofDuration bounds how long one call reads stored events if the request gives no bound.
const defaultProofDuration = 10 * time.Second

// Steps implements module.Versions.
func (r *Registry) Steps(tenantID, eventType string, from uint32) []module.Step {
	return r.registryOf(tenantID, eventType).steps[eventType][from]
}

// HasVersion implements module.Versions.
func (r *Registry) HasVersion(tenantID, eventType string, version uint32) bool {
	return r.registryOf(tenantID, eventType).versions[eventType][version] != nil
}

var _ module.Versions = (*Registry)(nil)

// upcastSteps finds the steps from every version of a type to the newest version, active or
// not. A deprecated newest version counts, because its events are never converted back:
// otherwise a fold would see two shapes. From each version the declared step that leads
// furthest is taken, else the step to the next version.
func upcastSteps(versions map[uint32]*module.RegisteredType) map[uint32][]module.Step {
	if len(versions) < 2 {
		return nil
	}
	all := slices.Sorted(maps.Keys(versions))
	latest := all[len(all)-1]
	out := map[uint32][]module.Step{}
	for _, from := range all {
		for at := from; at < latest; {
			step := nextStep(versions, all, at)
			out[from] = append(out[from], step)
			at = step.To.SchemaVersion
		}
	}
	return out
}

func nextStep(versions map[uint32]*module.RegisteredType, all []uint32, at uint32) module.Step {
	next := uint32(0)
	for _, v := range slices.Backward(all) {
		if v <= at {
			break
		}
		if l := versions[v].Upcasts[at]; l != nil {
			return module.Step{To: versions[v], Upcast: l}
		}
		next = v
	}
	return module.Step{To: versions[next]}
}

// compileUpcasters compiles the upcasters of a version.
func (r *Registry) compileUpcasters(t *module.RegisteredType) error {
	t.Defaults = eventtype.DefaultsOf(t.DataSchema)
	t.Upcasts = map[uint32]module.UpcastStep{}
	if from, u := r.catalog.Upcast(t.Type, t.SchemaVersion); u != nil && t.TenantID == sharedID {
		t.Upcasts[from] = module.UpcastStepOf(u)
	}
	for i, u := range t.Upcasters {
		field := fmt.Sprintf("/upcasters/%d", i)
		program, err := r.transforms.Compile(u.JQ)
		if err != nil {
			if f, ok := fault.As(err); ok {
				return fault.New(fault.Invalid, "event_type.upcaster_invalid", "%s", f.Detail).WithField(field + "/jq")
			}
			return err
		}
		t.Upcasts[u.FromVersion] = program.Apply
	}
	return nil
}

// compileStoredUpcasters is compileUpcasters for a registered version. A program that this
// release cannot compile, although another release accepted it, fails when it is used, so that
// everything else still loads.
func (r *Registry) compileStoredUpcasters(t *module.RegisteredType) {
	if r.compileUpcasters(t) == nil {
		return
	}
	for i, u := range t.Upcasters {
		one := *t
		one.Upcasters = t.Upcasters[i : i+1]
		if err := r.compileUpcasters(&one); err != nil {
			t.Upcasts[u.FromVersion] = func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, err }
			continue
		}
		t.Upcasts[u.FromVersion] = one.Upcasts[u.FromVersion]
	}
}

// checkUpcasters checks that the programs of a version compile and convert from registered
// versions.
func (r *Registry) checkUpcasters(current *snapshot, reg *eventtype.Registration) error {
	var found []fault.Violation
	for i, u := range reg.Upcasters {
		if current.versions[reg.Type][u.FromVersion] == nil {
			found = append(found, fault.Violation{
				Field: fmt.Sprintf("/upcasters/%d/from_version", i), Code: "event_type.upcaster_from_unknown",
				Detail: "there is no such version of the type; name one that is registered",
			})
		}
		one := module.RegisteredType{Registration: *reg}
		one.Upcasters = reg.Upcasters[i : i+1]
		if f, ok := fault.As(r.compileUpcasters(&one)); ok {
			found = append(found, fault.Violation{Field: fmt.Sprintf("/upcasters/%d/jq", i), Code: f.Code, Detail: f.Detail})
		}
	}
	return eventtype.Invalid(found)
}

// buildCandidate describes how earlier events would be read with a further version, or with the
// members that a version gets. ok is false if nothing has to be proven: the version declares no
// upcaster and requires no new member, or whatever it accepted it accepts afterwards.
func (r *Registry) buildCandidate(current *snapshot, reg *eventtype.Registration, c *eventtype.Comparison) (out module.Candidate, ok bool, err error) {
	requires := c != nil && slices.ContainsFunc(c.Differences, func(d eventtype.Difference) bool { return d.Kind == eventtype.RequiredAdded })
	if reg.Amends && c.Compatible || !reg.Amends && len(reg.Upcasters) == 0 && !requires {
		return out, false, nil
	}
	t := &module.RegisteredType{Registration: *reg, Checks: r.checks(reg)}
	t.Active = true
	if err := parsePersonalData(t); err != nil {
		return out, false, err
	}
	if t.Schema, err = r.schemas.Compile(reg.DataSchema); err != nil {
		return out, false, err
	}
	if err := r.compileUpcasters(t); err != nil {
		return out, false, err
	}
	versions := maps.Clone(current.versions[reg.Type])
	if versions == nil {
		return out, false, nil // the first version of a type has no earlier events
	}
	versions[reg.SchemaVersion] = t
	steps := upcastSteps(versions)
	for at, list := range steps {
		for i := range list {
			if list[i].To == t {
				list[i].Keys = versions[at].BusinessKeys
			}
			at = list[i].To.SchemaVersion
		}
	}
	if reg.Amends { // its events are read as they are, so they have to fit as they are
		as := *t
		as.Defaults = eventtype.Defaults{}
		steps = map[uint32][]module.Step{reg.SchemaVersion: {{To: &as, Upcast: func(_ context.Context, data json.RawMessage) (json.RawMessage, error) { return data, nil }}}}
	}
	out = module.Candidate{
		TenantID: reg.TenantID, Type: reg.Type, Version: reg.SchemaVersion, Examples: map[uint32][]json.RawMessage{},
		Steps: func(from uint32) []module.Step { return steps[from] },
	}
	// The digest covers the whole documents of all versions. That is more than decides how events
	// are read: correcting the description makes an earlier token worthless as well.
	digest := sha256.New()
	if reg.Amends {
		out.Examples[reg.SchemaVersion] = current.versions[reg.Type][reg.SchemaVersion].Examples
	}
	for _, v := range slices.Sorted(maps.Keys(versions)) {
		known := versions[v]
		if v < reg.SchemaVersion && !reg.Amends && len(known.Examples) > 0 {
			out.Examples[v] = known.Examples
		}
		document, err := known.Document()
		if err != nil {
			return out, false, err
		}
		digest.Write(binary.BigEndian.AppendUint32(nil, uint32(len(document))))
		digest.Write(document)
	}
	copy(out.Digest[:], digest.Sum(nil))
	return out, true, nil
}

// ProofRequest is the part of a request to Check or Register that concerns the proof.
type ProofRequest = module.ProofRequest

// prove tries a version on stored events. The report is nil if there is nothing to prove, or no
// prover.
func (r *Registry) prove(ctx context.Context, current *snapshot, reg *eventtype.Registration, c *eventtype.Comparison, p ProofRequest) (*module.ProofReport, error) {
	candidate, ok, err := r.buildCandidate(current, reg, c)
	if err != nil || !ok || r.prover == nil {
		return nil, err
	}
	if p.MaxDuration == 0 {
		p.MaxDuration = defaultProofDuration
	}
	report, err := r.prover.Prove(ctx, candidate, p)
	if err != nil {
		return nil, err
	}
	return &report, nil
}

// proofFault is nil if a report allows the registration. Faults event_type.upcaster_failed,
// event_type.amendment_contradicted and event_type.proof_needed.
func proofFault(reg *eventtype.Registration, report *module.ProofReport) error {
	switch {
	case report == nil || report.Complete && !report.Failed:
		return nil
	case report.Failed && reg.Amends:
		violations := make([]fault.Violation, len(report.Failures))
		for i, failure := range report.Failures {
			what := fmt.Sprintf("event %s, sequence %s of %s, holds something else under this name; call the member otherwise", failure.EventID, failure.Sequence, failure.LegalEntity)
			if failure.Example != nil {
				what = fmt.Sprintf("example %d of the version holds something else under this name; call the member otherwise", *failure.Example)
			}
			violations[i] = fault.Violation{Field: failure.Pointer, Code: failure.Code, Detail: what}
		}
		return fault.New(fault.FailedPrecondition, "event_type.amendment_contradicted",
			"events of version %d of event type %q do not fit the added members: %d that you may see, %d of other legal entities; call the members otherwise, or register the next version with an upcaster",
			reg.SchemaVersion, reg.Type, len(report.Failures), report.HiddenFailures).WithViolations(violations...)
	case report.Failed:
		f := fault.New(fault.FailedPrecondition, "event_type.upcaster_failed",
			"events of earlier versions cannot be read as this version says: %d that you may see, %d of other legal entities; correct the upcaster and check again (POST /api/event-types/check)",
			len(report.Failures), report.HiddenFailures)
		violations := make([]fault.Violation, len(report.Failures))
		for i, failure := range report.Failures {
			violations[i] = failureViolation(failure)
		}
		return f.WithViolations(violations...)
	default:
		return fault.New(fault.FailedPrecondition, "event_type.proof_needed",
			"there are more stored events than can be looked at in one request; check (POST /api/event-types/check) with next_cursor until it gives a proof, and register with that")
	}
}

// failureViolation describes a failed event or example as a violation.
func failureViolation(f module.ProofFailure) fault.Violation {
	what := fmt.Sprintf("an event of version %d cannot be read in this version: event %s, sequence %s of %s; correct the upcaster", f.SchemaVersion, f.EventID, f.Sequence, f.LegalEntity)
	if f.Example != nil {
		what = fmt.Sprintf("example %d of version %d cannot be read in this version; correct the upcaster", *f.Example, f.SchemaVersion)
	}
	return fault.Violation{Field: f.Pointer, Code: f.Code, Detail: what}
}

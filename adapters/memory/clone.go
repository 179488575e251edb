package memory

import (
	"bytes"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/intent"
)

// The store shares no slice, map or pointer with its callers, in either
// direction. Empty collections become nil, as NULL does in a database.

func clone[S ~[]E, E any](s S) S {
	if len(s) == 0 {
		return nil
	}
	return slices.Clone(s)
}

func cloneSkeleton(s event.Skeleton) event.Skeleton {
	s.OccurredAt = event.Micros(s.OccurredAt)
	s.Scope.Custom = clone(s.Scope.Custom)
	s.ActorDetails = clone(s.ActorDetails)
	s.RulesEvaluated = clone(s.RulesEvaluated)
	s.Tags = clone(s.Tags)
	if len(s.PII) == 0 {
		s.PII = nil
	} else {
		s.PII = maps.Clone(s.PII)
	}
	return s
}

func cloneRecorded(r *event.Recorded, withData bool) event.Recorded {
	out := event.Recorded{Skeleton: cloneSkeleton(r.Skeleton)}
	if withData {
		out.Salt, out.Payload, out.Redactions = r.Salt, bytes.Clone(r.Payload), slices.Clone(r.Redactions)
	}
	return out
}

func cloneIntent(in intent.Intent) intent.Intent {
	in.Payload = clone(in.Payload)
	in.Rules = clone(in.Rules)
	in.Roles = clone(in.Roles)
	in.Documents = clone(in.Documents)
	in.Approvals = slices.Clone(in.Approvals)
	in.Needs = slices.Clone(in.Needs)
	for i := range in.Needs {
		in.Needs[i].Roles = clone(in.Needs[i].Roles)
	}
	if d := in.Actor.Details.OnBehalfOf; d != nil {
		delegate := *d
		in.Actor.Details.OnBehalfOf = &delegate
	}
	if in.Refusal != nil {
		refusal := *in.Refusal
		in.Refusal = &refusal
	}
	return in
}

func cloneRegistration(r eventtype.Registration) eventtype.Registration {
	r.DataSchema = clone(r.DataSchema)
	r.RequiredDimensions = slices.Clone(r.RequiredDimensions)
	r.OptionalDimensions = slices.Clone(r.OptionalDimensions)
	r.RequiredEntityRefs = slices.Clone(r.RequiredEntityRefs)
	r.PIIFields = slices.Clone(r.PIIFields)
	for i := range r.PIIFields {
		r.PIIFields[i].Subject = clone(r.PIIFields[i].Subject)
	}
	r.BusinessKeys = slices.Clone(r.BusinessKeys)
	for i := range r.BusinessKeys {
		r.BusinessKeys[i].Fields = slices.Clone(r.BusinessKeys[i].Fields)
	}
	r.Examples = slices.Clone(r.Examples)
	for i := range r.Examples {
		r.Examples[i] = clone(r.Examples[i])
	}
	return r
}

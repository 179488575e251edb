package administration

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// The event types of custom projections.
const (
	ProjectionDefined = "backbone.projection.defined"
	ProjectionRemoved = "backbone.projection.removed"
)

const projectionStream = "backbone.projection" // by name in the tenant

// Projections records the definitions of the projections that tenants create.
type Projections struct {
	log   *Log
	actor func(ctx context.Context, tenantID, personID string) (event.Actor, error)
}

var _ ports.ProjectionDecisions = (*Projections)(nil)

// NewProjections makes the decisions about custom projections; actor names a person in events.
func NewProjections(log *Log, actor func(ctx context.Context, tenantID, personID string) (event.Actor, error)) *Projections {
	return &Projections{log: log, actor: actor}
}

// projectionData is the data of ProjectionDefined and ProjectionRemoved.
type projectionData struct {
	Name       string          `json:"projection"`
	Version    int             `json:"version,omitempty"` // that is built with the definition
	Definition json.RawMessage `json:"definition,omitempty"`
	Digest     string          `json:"definition_sha256,omitempty"`
	Others     []string        `json:"other_definitions_sha256,omitempty"` // of an earlier release's versions
}

func projectionStreamOf(name string) event.StreamID {
	return event.StreamID{Type: projectionStream, ID: name}
}

func definedDraft(name string, version int, definition []byte, others ...string) event.Draft {
	digest := projection.DefinitionDigest(definition)
	return draft(ProjectionDefined, projectionStreamOf(name), projectionData{
		Name: name, Version: version, Definition: definition, Digest: hex.EncodeToString(digest[:]), Others: others,
	})
}

func projectionRecordOf(e *event.Recorded) (r ports.ProjectionRecord, err error) {
	var data projectionData
	err = decode(e, &data)
	return ports.ProjectionRecord{Name: data.Name, Version: e.StreamVersion, Definition: data.Definition, Removed: e.Type == ProjectionRemoved}, err
}

// Projection implements ports.ProjectionDecisions.
func (p *Projections) Projection(ctx context.Context, tenantID, name string) (ports.ProjectionRecord, error) {
	e, err := p.log.Latest(ctx, tenantID, projectionStreamOf(name))
	if err != nil || e.StreamVersion == 0 {
		return ports.ProjectionRecord{Name: name}, err
	}
	return projectionRecordOf(&e)
}

// Projections implements ports.ProjectionDecisions.
func (p *Projections) Projections(ctx context.Context, tenantID string) ([]ports.ProjectionRecord, error) {
	newest := map[string]ports.ProjectionRecord{}
	err := p.log.Each(ctx, tenantID, []string{ProjectionDefined, ProjectionRemoved}, func(e *event.Recorded) error {
		r, err := projectionRecordOf(e)
		newest[r.Name] = r
		return err
	})
	all := make([]ports.ProjectionRecord, 0, len(newest))
	for _, r := range newest {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b ports.ProjectionRecord) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// Define implements ports.ProjectionDecisions.
func (p *Projections) Define(ctx context.Context, tenantID string, before ports.ProjectionRecord, version int, definition []byte, by string) error {
	return p.decide(ctx, tenantID, before, by, definedDraft(before.Name, version, definition))
}

// Remove implements ports.ProjectionDecisions.
func (p *Projections) Remove(ctx context.Context, tenantID string, before ports.ProjectionRecord, by string) error {
	return p.decide(ctx, tenantID, before, by, draft(ProjectionRemoved, projectionStreamOf(before.Name), projectionData{Name: before.Name}))
}

func (p *Projections) decide(ctx context.Context, tenantID string, before ports.ProjectionRecord, by string, d event.Draft) error {
	actor, err := p.actor(ctx, tenantID, by)
	if err != nil {
		return err
	}
	err = p.log.Record(ctx, tenantID, actor, concurrency.StreamExpectation{Stream: d.Stream, Expected: expectVersion(before.Version)}, d)
	if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion {
		err = projection.Changed()
	}
	return err
}

// AdoptProjections takes over the custom projections of an earlier release.
func AdoptProjections(rows func(ctx context.Context) ([]projection.Projection, error)) Adoption {
	return Adoption{Concern: "projections", Drafts: func(ctx context.Context, tenantID string) (drafts []event.Draft, _ error) {
		all, err := rows(ctx)
		if err != nil {
			return nil, err
		}
		others := map[string][]string{}
		for _, p := range all {
			if p.Role.IsLive() && p.Role != projection.Active {
				digest := projection.DefinitionDigest(p.Definition)
				others[p.Name] = append(others[p.Name], hex.EncodeToString(digest[:]))
			}
		}
		for _, p := range all {
			if tenant, name, isCustom := projection.SplitName(p.Name); isCustom && tenant == tenantID && p.Role == projection.Active {
				drafts = append(drafts, definedDraft(name, p.Version, p.Definition, others[p.Name]...))
			}
		}
		return drafts, nil
	}}
}

func registerProjections(r *module.Registrar) {
	r.EventType(builtin(ProjectionDefined, "A custom projection was created, or another definition of it is being built.", projectionSchema,
		`{"projection":"open-items","version":2,"definition":{"tenant_id":"acme","filter":{"types":["ap.invoice.approved"]},"key":".stream.id","fold":"(.state // 0) + 1"},`+
			`"definition_sha256":"123cf7f2916be9c7bb1af0da600e90662cf4758e52b2243bf6d006753955487c"}`))
	r.EventType(builtin(ProjectionRemoved, "A custom projection was deleted with all its versions.", projectionSchema, `{"projection":"open-items"}`))
}

const projectionSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["projection"],
  "properties": {
    "projection": {"type": "string", "minLength": 1, "maxLength": 64},
    "version": {"type": "integer", "minimum": 1},
    "definition": {"type": "object", "description": "filter, key and fold; absent when it is removed"},
    "definition_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "other_definitions_sha256": {"type": "array", "description": "of versions that an earlier release left", "items": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}
  }
}`

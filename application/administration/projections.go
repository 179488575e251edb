package administration

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// The event types of projections.
const (
	ProjectionDefined        = "backbone.projection.defined"
	ProjectionRemoved        = "backbone.projection.removed"
	ProjectionRebuildStarted = "backbone.projection.rebuild_started"
	ProjectionActivated      = "backbone.projection.activated"
	ProjectionVersionDropped = "backbone.projection.version_dropped"
	ProjectionOperated       = "backbone.projection.operated"
	ProjectionConfigured     = "backbone.projection.configured"
)

// projectionStream has the streams of projections, by name in the tenant or full name of one of a module.
const projectionStream = "backbone.projection"

var projectionTypes = []string{
	ProjectionDefined, ProjectionRemoved, ProjectionRebuildStarted, ProjectionActivated, ProjectionVersionDropped, ProjectionOperated, ProjectionConfigured,
}

// Projections records what persons decide about projections: of their tenant, and of modules. What
// a node does by itself is recorded only where it changes which version of a tenant's projection
// readers see.
type Projections struct {
	log   *Log
	actor func(ctx context.Context, tenantID, personID string) (event.Actor, error)
}

var _ ports.ProjectionDecisions = (*Projections)(nil)

// NewProjections makes the decisions about projections; actor names a person in events.
func NewProjections(log *Log, actor func(ctx context.Context, tenantID, personID string) (event.Actor, error)) *Projections {
	return &Projections{log: log, actor: actor}
}

// projectionData is the data of the events of projections.
type projectionData struct {
	Name       string                     `json:"projection"`
	Version    int                        `json:"version,omitempty"` // that the decision is about
	Definition json.RawMessage            `json:"definition,omitempty"`
	Partition  event.PartitionID          `json:"partition_id,omitempty"`
	Partitions []event.PartitionID        `json:"partition_ids,omitempty"`
	Operation  projection.Action          `json:"operation,omitempty"`
	Sequence   event.Sequence             `json:"sequence,omitempty,string"` // that is skipped
	Settings   *projection.Settings       `json:"settings,omitempty"`
	Force      bool                       `json:"forced,omitempty"`
	Reason     string                     `json:"reason,omitempty"`
	Versions   projection.DecidedVersions `json:"versions,omitempty"` // of a custom projection, after the decision
}

func projectionStreamOf(name string) event.StreamID {
	return event.StreamID{Type: projectionStream, ID: name}
}

func projectionDraft(eventType string, data projectionData) event.Draft {
	d := draft(eventType, projectionStreamOf(data.Name), data)
	if eventType == ProjectionDefined || eventType == ProjectionRemoved {
		d.SchemaVersion = 2
	}
	return d
}

func definedDraft(name string, version int, definition []byte, versions projection.DecidedVersions) event.Draft {
	return projectionDraft(ProjectionDefined, projectionData{Name: name, Version: version, Definition: definition, Versions: versions})
}

func projectionRecordOf(e *event.Recorded) (r ports.ProjectionRecord, err error) {
	var data projectionData
	err = decode(e, &data)
	r = ports.ProjectionRecord{Name: data.Name, Version: e.StreamVersion, Definition: data.Definition, Removed: e.Type == ProjectionRemoved, Versions: data.Versions}
	if action := ports.ProjectionAction(strings.TrimPrefix(e.Type, projectionStream+".")); e.Type != ProjectionDefined && !r.Removed {
		r.Latest = ports.ProjectionDecision{
			Action: action, Version: data.Version, Partition: data.Partition, Partitions: data.Partitions, Operation: data.Operation, Sequence: data.Sequence, Settings: data.Settings, Force: data.Force, Reason: data.Reason,
		}
	}
	return r, err
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
	err := p.log.Each(ctx, tenantID, projectionTypes, func(e *event.Recorded) error {
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
func (p *Projections) Define(ctx context.Context, tenantID string, before ports.ProjectionRecord, v projection.Projection, by string) error {
	return p.record(ctx, tenantID, before, by, definedDraft(before.Name, v.Version, v.Definition, before.Versions.With(v.Decided())))
}

// Decide implements ports.ProjectionDecisions.
func (p *Projections) Decide(ctx context.Context, tenantID string, before ports.ProjectionRecord, d ports.ProjectionDecision) error {
	return p.record(ctx, tenantID, before, d.By, projectionDraft(projectionStream+"."+string(d.Action), projectionData{
		Name: before.Name, Version: d.Version, Definition: before.Definition, Partition: d.Partition, Partitions: d.Partitions, Operation: d.Operation, Sequence: d.Sequence, Settings: d.Settings, Force: d.Force, Reason: d.Reason,
		Versions: d.Versions,
	}))
}

// Remove implements ports.ProjectionDecisions.
func (p *Projections) Remove(ctx context.Context, tenantID string, before ports.ProjectionRecord, by string) error {
	return p.record(ctx, tenantID, before, by, projectionDraft(ProjectionRemoved, projectionData{Name: before.Name}))
}

func (p *Projections) record(ctx context.Context, tenantID string, before ports.ProjectionRecord, by string, d event.Draft) (err error) {
	var actor event.Actor
	if by != "" {
		if actor, err = p.actor(ctx, tenantID, by); err != nil {
			return err
		}
	}
	err = p.log.Record(ctx, tenantID, actor, concurrency.StreamExpectation{Stream: d.Stream, Expected: expectVersion(before.Version)}, d)
	if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion {
		err = projection.Changed()
	}
	return err
}

// ProjectionRows lists the versions of all projections.
type ProjectionRows func(ctx context.Context) ([]projection.Projection, error)

// AdoptProjections takes over the custom projections of an earlier release.
func AdoptProjections(rows ProjectionRows) Adoption {
	return Adoption{Concern: "projections", Drafts: rows.drafts}
}

// AdoptProjectionVersions records the versions of the custom projections that have an event of
// schema version 1, which does not say them.
func AdoptProjectionVersions(rows ProjectionRows) Adoption {
	return Adoption{Concern: "projection_versions", Drafts: rows.drafts, Renews: true}
}

func (rows ProjectionRows) drafts(ctx context.Context, tenantID string) (drafts []event.Draft, _ error) {
	all, err := rows(ctx)
	if err != nil {
		return nil, err
	}
	versions := map[string]projection.DecidedVersions{}
	for _, p := range all {
		if p.Role.IsLive() {
			versions[p.Name] = versions[p.Name].With(p.Decided())
		}
	}
	for _, p := range all {
		if tenant, name, isCustom := projection.SplitName(p.Name); isCustom && tenant == tenantID && p.Role == projection.Active {
			drafts = append(drafts, definedDraft(name, p.Version, p.Definition, versions[p.Name]))
		}
	}
	return drafts, nil
}

// ProjectionSkipsAdopted has events that persons had projections skip before there were events of that.
const ProjectionSkipsAdopted = "backbone.projection.skips_adopted"

const (
	skipsStream = "backbone.projection_skips" // by number
	eventSkips  = 100                         // that one event names
)

type adoptedSkip struct {
	Projection string            `json:"projection"`
	Partition  event.PartitionID `json:"partition_id"`
	Sequence   event.Sequence    `json:"sequence,string"`
	By         string            `json:"skipped_by"`
	Reason     string            `json:"reason,omitempty"`
}

type adoptedSkips struct {
	Skips []adoptedSkip `json:"skips"`
}

// AdoptSkips takes over the events that persons had projections skip in an earlier release.
func AdoptSkips(letters ports.DeadLetters, entities ports.LegalEntities) Adoption {
	return Adoption{Concern: "projection_skips", Drafts: func(ctx context.Context, tenantID string) (drafts []event.Draft, _ error) {
		all, err := entities.LegalEntities(ctx, tenantID)
		if err != nil || len(all) == 0 {
			return nil, err
		}
		query := ports.DeadLetterQuery{Kind: ports.LetterOfProjection, Statuses: []string{ports.LetterSkipped}, Limit: eventSkips}
		for _, le := range all {
			query.Partitions = append(query.Partitions, le.Partition)
		}
		for {
			page, err := letters.ListDeadLetters(ctx, query)
			if err != nil || len(page) == 0 {
				return drafts, err
			}
			var data adoptedSkips
			for _, l := range page {
				_, name, _ := projection.SplitName(l.Name)
				data.Skips = append(data.Skips, adoptedSkip{name, l.Partition, l.Sequence, l.SettledBy, l.Reason})
			}
			drafts = append(drafts, draft(ProjectionSkipsAdopted, event.StreamID{Type: skipsStream, ID: strconv.Itoa(len(drafts) + 1)}, data))
			query.After = &page[len(page)-1]
		}
	}}
}

func registerProjections(r *module.Registrar) {
	r.EventType(builtin(ProjectionSkipsAdopted, "Events that persons had projections skip in an earlier release.", skipsSchema,
		`{"skips":[{"projection":"open-items","partition_id":4711,"sequence":"42","skipped_by":"p-0002","reason":"a test event of the migration"}]}`))
	const digest = "123cf7f2916be9c7bb1af0da600e90662cf4758e52b2243bf6d006753955487c"
	settings, _ := json.Marshal(projection.DefaultSettings())
	version := func(n int, role, more string) string {
		return `{"version":` + strconv.Itoa(n) + `,"role":"` + role + `",` + more + `"status":"running","settings":` + string(settings) + `,"definition_sha256":"` + digest + `"}`
	}
	const definition = `"definition":{"tenant_id":"acme","filter":{"types":["ap.invoice.approved"]},"key":".stream.id","fold":"(.state // 0) + 1"},`
	for _, t := range []struct{ name, description, example string }{
		{ProjectionDefined, "A custom projection was created, or another definition of it is being built.",
			`"version":2,` + definition + `"versions":[` + version(1, "active", "") + `,` + version(2, "building", `"switch":true,`) + `]`},
		{ProjectionRemoved, "A custom projection was deleted with all its versions.", ``},
		{ProjectionRebuildStarted, "A person ordered a version of a projection to be built beside the one that readers see.",
			`"version":3,` + definition + `"versions":[` + version(2, "active", "") + `,` + version(3, "building", "") + `]`},
		{ProjectionActivated, "Readers see another version of a projection, in a legal entity or in all.",
			`"version":3,` + definition + `"versions":[` + version(2, "retained", "") + `,` + version(3, "active", "") + `]`},
		{ProjectionVersionDropped, "A version of a projection that readers do not see was dropped.", `"version":2,` + definition + `"versions":[` + version(3, "active", "") + `]`},
		{ProjectionOperated, "A person started, paused, resumed, stopped or reset a projection, or had it try or skip an event that it is halted at.",
			`"version":1,"operation":"skip","partition_id":4711,"sequence":"42","reason":"a test event of the migration"`},
		{ProjectionConfigured, "The settings of a projection were replaced.", `"version":1,"settings":` + string(settings)},
	} {
		example := `{"projection":"open-items"}`
		if t.example != "" {
			example = `{"projection":"open-items",` + t.example + `}`
		}
		eventType := builtin(t.name, t.description, projectionSchema, example)
		if t.name == ProjectionDefined || t.name == ProjectionRemoved {
			eventType.SchemaVersion, eventType.Upcast = 2, upcastProjection
		}
		r.EventType(eventType)
	}
	r.EventType(builtin(ProjectionDefined, "A custom projection was created, or another definition of it is being built.", projectionSchema1,
		`{"projection":"open-items","version":2,`+definition+`"definition_sha256":"`+digest+`"}`))
	r.EventType(builtin(ProjectionRemoved, "A custom projection was deleted with all its versions.", projectionSchema1, `{"projection":"open-items"}`))
}

// upcastProjection leaves out the digests that version 1 has.
func upcastProjection(data json.RawMessage) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	delete(members, "definition_sha256")
	delete(members, "other_definitions_sha256")
	return json.Marshal(members)
}

// projectionSchema1 is version 1 of ProjectionDefined and ProjectionRemoved.
const projectionSchema1 = `{
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

const projectionSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["projection"],
  "properties": {
    "projection": {"type": "string", "minLength": 1, "maxLength": 200},
    "version": {"type": "integer", "minimum": 1, "description": "that this is about"},
    "definition": {"type": "object", "description": "of a custom projection, the newest: filter, key and fold"},
    "partition_id": {"type": "integer", "minimum": 1, "description": "of the legal entity; absent: all, or partition_ids"},
    "partition_ids": {"type": "array", "items": {"type": "integer", "minimum": 1}, "description": "of the legal entities that a fix or reset covers: those that the person may see"},
    "operation": {"enum": ["start", "pause", "resume", "stop", "reset", "fix", "skip"]},
    "sequence": {"type": "string", "pattern": "^[0-9]{1,19}$", "description": "of the event that is skipped"},
    "settings": {"type": "object", "description": "how it is run"},
    "forced": {"type": "boolean", "description": "although the version lacked events"},
    "reason": {"type": "string", "maxLength": 1000, "description": "no personal data"},
    "versions": {
      "type": "array",
      "description": "of a custom projection, as they are from now on",
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["version", "role", "status", "settings", "definition_sha256"],
        "properties": {
          "version": {"type": "integer", "minimum": 1},
          "role": {"enum": ["active", "building", "retained"]},
          "partition_id": {"type": "integer", "minimum": 1, "description": "of the one legal entity that it covers"},
          "from_snapshot": {"type": "integer", "minimum": 1},
          "switch": {"type": "boolean", "description": "readers see it as soon as it has caught up"},
          "status": {"enum": ["running", "paused", "stopped"]},
          "settings": {"type": "object", "description": "how it is run"},
          "definition_sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"}
        }
      }
    }
  }
}`

const skipsSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["skips"],
  "properties": {
    "skips": {
      "type": "array",
      "minItems": 1,
      "maxItems": 100,
      "items": {
        "type": "object",
        "additionalProperties": false,
        "required": ["projection", "partition_id", "sequence", "skipped_by"],
        "properties": {
          "projection": {"type": "string", "minLength": 1, "maxLength": 200},
          "partition_id": {"type": "integer", "minimum": 1},
          "sequence": {"type": "string", "pattern": "^[0-9]{1,19}$"},
          "skipped_by": {"type": "string", "maxLength": 512, "description": "pseudonymous id of the person"},
          "reason": {"type": "string", "maxLength": 1000, "description": "no personal data"}
        }
      }
    }
  }
}`

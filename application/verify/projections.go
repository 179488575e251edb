package verify

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
)

// The events of an administrative log about projections.
const (
	projectionEvents   = "backbone.projection."
	projectionDefined  = projectionEvents + "defined"
	projectionRemoved  = projectionEvents + "removed"
	projectionOperated = projectionEvents + "operated"
)

// recordedProjection is the data of an event about a projection.
type recordedProjection struct {
	Name       string                     `json:"projection"`
	Definition json.RawMessage            `json:"definition"`
	Versions   projection.DecidedVersions `json:"versions"`
	Others     []string                   `json:"other_definitions_sha256"` // of an event of schema version 1

	sequence event.Sequence
	former   bool     // the newest event is of schema version 1, which does not say the versions
	digests  []string // of all definitions since it was created
}

// projections compares custom projections with what the administrative log recorded: which version
// readers see, and the definitions, status and settings of versions. The key is the name.
type projections map[string]recordedProjection

func (p projections) note(c *chain, e *event.Recorded) {
	if !strings.HasPrefix(e.Type, projectionEvents) || e.Type == skipsAdopted {
		return
	}
	recorded := recordedProjection{sequence: e.Sequence}
	if !decodeData(e, &recorded) {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of a projection cannot be read")
		return
	}
	before, exists := p[recorded.Name]
	switch {
	case e.Type == projectionRemoved:
		delete(p, recorded.Name)
		return
	case e.Type == projectionDefined && before.former && e.SchemaVersion > 1: // a node that started took over the versions as they were, which records no definition
		recorded.digests = before.digests
		p[recorded.Name] = recorded
		return
	case e.Type == projectionDefined:
		recorded.former = e.SchemaVersion == 1
		digest := projection.DefinitionDigest(recorded.Definition)
		recorded.digests = append(append(before.digests, hex.EncodeToString(digest[:])), recorded.Others...)
	case !exists: // a projection of a module
		return
	default:
		recorded.digests = before.digests
	}
	for _, v := range recorded.Versions {
		if !slices.Contains(recorded.digests, v.Digest) {
			recorded.digests = append(recorded.digests, v.Digest)
		}
	}
	p[recorded.Name] = recorded
}

func (p projections) compare(ctx context.Context, c *chain, store Store) error {
	rows, err := store.ListProjections(ctx)
	if err != nil {
		return err
	}
	missing := maps.Clone(p)
	for i := range rows {
		tenant, name, isCustom := projection.SplitName(rows[i].Name)
		if !isCustom || tenant != c.entity.TenantID || !rows[i].Role.IsLive() {
			continue
		}
		if rows[i].Role == projection.Active {
			delete(missing, name)
		}
		recorded := p[name]
		if difference := recorded.differs(rows[i]); difference != "" {
			c.add(ProjectionMismatch, recorded.sequence, fmt.Sprintf("version %d of the projection %s %s", rows[i].Version, name, difference))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		c.add(ProjectionMismatch, missing[name].sequence, fmt.Sprintf("the projection %s was recorded and readers see no version of it; a node that starts repairs what a crash left", name))
	}
	return nil
}

// differs says what of a live version was never recorded; "": nothing.
func (r recordedProjection) differs(row projection.Projection) string {
	got := row.Decided()
	if !slices.Contains(r.digests, got.Digest) {
		return "has a definition that was never recorded"
	}
	if r.former {
		return ""
	}
	want, known := r.Versions.Find(row.Version)
	switch {
	case got.Role == projection.Retained && got.Scope != 0 && (!known || want.Role == projection.Building): // it took the rows that another one replaced in a legal entity
		return ""
	case !known:
		return "was never recorded, or was dropped"
	case row.Status == projection.Faulted: // a node decides that
		got.Status = want.Status
	}
	switch {
	case got.Role != want.Role || got.Scope != want.Scope:
		return fmt.Sprintf("is %s, and %s was recorded; a node that starts repairs what a crash left", got.Role, want.Role)
	case got != want:
		return "has another status, settings, definition, snapshot or switch than was recorded"
	}
	return ""
}

package verify

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
)

// The events of an administrative log about custom projections.
const (
	projectionDefined = "backbone.projection.defined"
	projectionRemoved = "backbone.projection.removed"
)

// recordedProjection is the data of an event about a custom projection.
type recordedProjection struct {
	Name   string   `json:"projection"`
	Digest string   `json:"definition_sha256"`
	Others []string `json:"other_definitions_sha256"`

	sequence event.Sequence
	digests  []string // of all definitions since it was created
}

// projections compares the definitions of custom projections with what the administrative log
// recorded. The key is the name.
type projections map[string]recordedProjection

func (p projections) note(c *chain, e *event.Recorded) {
	if e.Type != projectionDefined && e.Type != projectionRemoved {
		return
	}
	recorded := recordedProjection{sequence: e.Sequence}
	if !decodeData(e, &recorded) {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of a projection cannot be read")
		return
	}
	if e.Type == projectionRemoved {
		delete(p, recorded.Name)
		return
	}
	recorded.digests = append(append(p[recorded.Name].digests, recorded.Digest), recorded.Others...)
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
		recorded, known := p[name]
		digest := projection.DefinitionDigest(rows[i].Definition)
		if !known || !slices.Contains(recorded.digests, hex.EncodeToString(digest[:])) {
			c.add(ProjectionMismatch, recorded.sequence, fmt.Sprintf("the definition of version %d of the projection %s was never recorded", rows[i].Version, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		c.add(ProjectionMismatch, missing[name].sequence, fmt.Sprintf("the projection %s was recorded and is not there; a node that starts creates it again", name))
	}
	return nil
}

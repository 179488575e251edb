package verify

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
)

// legalEntityCreated is the event of an administrative log for each legal entity of its tenant.
const legalEntityCreated = "backbone.legal_entity.created"

// createdEntity is the data of legalEntityCreated.
type createdEntity struct {
	Code      string            `json:"code"`
	Name      string            `json:"name"`
	TimeZone  string            `json:"time_zone"`
	Partition event.PartitionID `json:"partition_id"`
	Genesis   string            `json:"genesis"`

	sequence event.Sequence
}

// compareLegalEntities compares the rows of a tenant's legal entities with what its
// administrative log recorded.
func (c *chain) compareLegalEntities(ctx context.Context, store Store, logName string) error {
	rows, err := store.LegalEntities(ctx, c.entity.TenantID)
	if err != nil {
		return err
	}
	recorded := maps.Clone(c.legalEntities)
	for _, row := range rows {
		r, ok := recorded[row.Code]
		delete(recorded, row.Code)
		if !ok {
			c.add(LegalEntityMismatch, 0, fmt.Sprintf("no event created the legal entity %s; a node that starts records one whose creation was cut off", row.Code))
			continue
		}
		genesis := event.GenesisChecksum(logName, row.Partition)
		if r.Name != row.Name || r.TimeZone != row.TimeZone || r.Partition != row.Partition || r.Genesis != hex.EncodeToString(genesis[:]) {
			c.add(LegalEntityMismatch, r.sequence, fmt.Sprintf("the row of the legal entity %s is not as it was created", row.Code))
		}
	}
	for _, code := range slices.Sorted(maps.Keys(recorded)) {
		c.add(LegalEntityMismatch, recorded[code].sequence, fmt.Sprintf("the legal entity %s was created and has no row", code))
	}
	return nil
}

// noteLegalEntity remembers a legal entity that an administrative log recorded.
func (c *chain) noteLegalEntity(e *event.Recorded, found func(FindingKind, string, ...any)) {
	created := createdEntity{sequence: e.Sequence}
	if !decodeData(e, &created) {
		found(AnnouncementUnreadable, "the event of a legal entity cannot be read")
		return
	}
	c.legalEntities[created.Code] = created
}

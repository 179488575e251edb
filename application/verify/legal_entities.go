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

// legalEntities compares the rows of a tenant's legal entities with what its administrative
// log recorded. The key is the code.
type legalEntities map[string]createdEntity

func (l legalEntities) note(c *chain, e *event.Recorded) {
	if e.Type != legalEntityCreated {
		return
	}
	created := createdEntity{sequence: e.Sequence}
	if !decodeData(e, &created) {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of a legal entity cannot be read")
		return
	}
	l[created.Code] = created
}

func (l legalEntities) compare(ctx context.Context, c *chain, store Store) error {
	rows, err := store.LegalEntities(ctx, c.entity.TenantID)
	if err != nil {
		return err
	}
	left := maps.Clone(l)
	for _, row := range rows {
		r, ok := l[row.Code]
		delete(left, row.Code)
		if !ok {
			c.add(LegalEntityMismatch, 0, fmt.Sprintf("no event created the legal entity %s; a node that starts records one whose creation was cut off", row.Code))
			continue
		}
		genesis := event.GenesisChecksum(c.logName, row.Partition)
		if r.Name != row.Name || r.TimeZone != row.TimeZone || r.Partition != row.Partition || r.Genesis != hex.EncodeToString(genesis[:]) {
			c.add(LegalEntityMismatch, r.sequence, fmt.Sprintf("the row of the legal entity %s is not as it was created", row.Code))
		}
	}
	for _, code := range slices.Sorted(maps.Keys(left)) {
		c.add(LegalEntityMismatch, l[code].sequence, fmt.Sprintf("the legal entity %s was created and has no row", code))
	}
	return nil
}

package snapshots

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// LegalEntities lists the legal entities of all tenants.
type LegalEntities interface {
	LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
}

// Projections authenticates the snapshots of projections, part by part under the secret of its
// tenant.
type Projections struct {
	entities LegalEntities
	*Authenticator
}

// NewProjections makes Projections.
func NewProjections(entities LegalEntities, a *Authenticator) *Projections {
	return &Projections{entities, a}
}

// Authenticate returns the function that computes the MAC of a part of a projection's snapshot
// that the same code has built. It loads the tenant's secret first, so that the function does not
// keep a transaction waiting for the key service. Faults: legal_entity.not_found, and those of the
// key service.
func (p *Projections) Authenticate(ctx context.Context, id event.PartitionID, code projection.Projection) (func(ports.SnapshotPart) ([]byte, error), error) {
	all, err := p.entities.LegalEntities(ctx, "")
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(le ports.LegalEntity) bool { return le.Partition == id })
	if i < 0 {
		return nil, fault.New(fault.NotFound, "legal_entity.not_found", "a projection has rows of a partition without a legal entity; run backbone verify")
	}
	if _, err := p.sign(ctx, all[i].TenantID, nil); err != nil {
		return nil, err
	}
	return func(s ports.SnapshotPart) ([]byte, error) { return p.sign(ctx, all[i].TenantID, partText(code, &s)) }, nil
}

// ReportForged logs and counts a part that was not restored.
func (p *Projections) ReportForged(ctx context.Context, c ports.SnapshotCopy) {
	p.reportForged(ctx, "projection", "projection", c.Projection, "version", c.Version, "partition", uint32(c.Partition))
}

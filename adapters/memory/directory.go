package memory

import (
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// A partition id is 12 bits of deployment and 19 random bits.
const (
	randomBits    = 19
	maxDeployment = 1<<12 - 1
)

// Directory keeps the installation and its legal entities.
type Directory struct{ *state }

// LegalEntities implements ports.LegalEntities.
func (s *Directory) LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	return s.listPartitions(ctx, tenantID, func(le ports.LegalEntity) bool { return !le.IsAdministrative() })
}

// AdministrativeLogs implements ports.LegalEntities.
func (s *Directory) AdministrativeLogs(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	return s.listPartitions(ctx, tenantID, ports.LegalEntity.IsAdministrative)
}

// Partitions implements ports.LegalEntities.
func (s *Directory) Partitions(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	return s.listPartitions(ctx, tenantID, func(ports.LegalEntity) bool { return true })
}

func (s *Directory) listPartitions(ctx context.Context, tenantID string, wanted func(ports.LegalEntity) bool) ([]ports.LegalEntity, error) {
	return get(ctx, s.state, func() ([]ports.LegalEntity, error) {
		out := []ports.LegalEntity{}
		for _, p := range s.partitions {
			if wanted(p.legalEntity) && (tenantID == "" || p.legalEntity.TenantID == tenantID) {
				out = append(out, p.legalEntity)
			}
		}
		slices.SortFunc(out, func(a, b ports.LegalEntity) int {
			return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.Code, b.Code))
		})
		return out, nil
	})
}

// CreateLegalEntity implements ports.LegalEntities. Fault
// installation.not_bootstrapped before the log has a name.
func (s *Directory) CreateLegalEntity(ctx context.Context, le ports.LegalEntity) (ports.LegalEntity, error) {
	return get(ctx, s.state, func() (ports.LegalEntity, error) {
		if s.installation == nil {
			return ports.LegalEntity{}, notBootstrapped()
		}
		for _, p := range s.partitions {
			if p.legalEntity.TenantID == le.TenantID && p.legalEntity.Code == le.Code {
				return ports.LegalEntity{}, fault.New(fault.Conflict, "legal_entity.duplicate",
					"the tenant has a legal entity with this code already; use it or choose another code")
			}
		}
		id, err := s.freePartition()
		if err != nil {
			return ports.LegalEntity{}, err
		}
		le.Partition = id
		if le.Status == "" {
			le.Status = "active"
		}
		if le.CreatedAt.IsZero() {
			le.CreatedAt = s.now()
		}
		le.CreatedAt = event.Micros(le.CreatedAt)
		s.partitions[id] = newPartition(le, event.GenesisChecksum(s.installation.LogName, id))
		return le, nil
	})
}

// freePartition draws numbers until one is free. Zero stays unused: it means
// "none" in deployment 0.
func (s *state) freePartition() (event.PartitionID, error) {
	for {
		var b [4]byte
		if _, err := io.ReadFull(s.random, b[:]); err != nil {
			return 0, fault.New(fault.Internal, "internal", "no partition number could be drawn; try again").WithCause(err)
		}
		number := binary.BigEndian.Uint32(b[:]) & (1<<randomBits - 1)
		id := event.PartitionID(uint32(s.installation.Deployment)<<randomBits | number)
		if _, taken := s.partitions[id]; number != 0 && !taken {
			return id, nil
		}
	}
}

// FormerPrincipals lists none: only databases have principals of earlier releases.
func (s *Directory) FormerPrincipals(ctx context.Context, _ string) ([]ports.Principal, error) {
	return nil, ctx.Err()
}

func notBootstrapped() error {
	return fault.New(fault.FailedPrecondition, "installation.not_bootstrapped", "the installation has no log name yet; run backbone bootstrap first")
}

// Installation implements ports.Installations.
func (s *Directory) Installation(ctx context.Context) (ports.Installation, error) {
	return get(ctx, s.state, func() (ports.Installation, error) {
		if s.installation == nil {
			return ports.Installation{}, notBootstrapped()
		}
		return *s.installation, nil
	})
}

// Bootstrap implements ports.Installations.
func (s *Directory) Bootstrap(ctx context.Context, i ports.Installation) error {
	return s.do(ctx, func() error {
		if s.installation != nil {
			if s.installation.LogName != i.LogName {
				return fault.New(fault.Conflict, "installation.log_name_fixed", "the log has another name, which is part of every checksum; use that name")
			}
			return nil
		}
		if i.CreatedAt.IsZero() {
			i.CreatedAt = s.now()
		}
		i.CreatedAt = event.Micros(i.CreatedAt)
		i.Deployment &= maxDeployment
		s.installation = &i
		return nil
	})
}

package memory

import (
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"maps"
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

// Directory keeps the installation, its legal entities and its principals.
type Directory struct{ *state }

// LegalEntities implements ports.LegalEntities.
func (s *Directory) LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	return get(ctx, s.state, func() ([]ports.LegalEntity, error) {
		out := []ports.LegalEntity{}
		for _, p := range s.partitions {
			if tenantID == "" || p.legalEntity.TenantID == tenantID {
				out = append(out, p.legalEntity)
			}
		}
		slices.SortFunc(out, func(a, b ports.LegalEntity) int {
			return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.TenantID, b.TenantID))
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

type principalKey struct{ tenantID, principalID string }

// PrincipalByTokenHash implements ports.Principals.
func (s *Directory) PrincipalByTokenHash(ctx context.Context, hash event.Hash) (ports.Principal, error) {
	return s.principal(ctx, func(p ports.Principal) bool { return p.TokenHash == hash },
		fault.New(fault.Unauthenticated, "auth.token_unknown", "the access token is not known; sign in again or ask the administrator for a new one"))
}

// PrincipalByPerson implements ports.Principals. Of several logins of a person it returns
// the oldest.
func (s *Directory) PrincipalByPerson(ctx context.Context, tenantID, personID string) (ports.Principal, error) {
	return s.principal(ctx, func(p ports.Principal) bool { return p.TenantID == tenantID && p.PersonID == personID },
		fault.New(fault.NotFound, "principal.not_found", "the tenant has no such person; check the id or create the principal"))
}

func (s *state) principal(ctx context.Context, is func(ports.Principal) bool, missing *fault.Error) (ports.Principal, error) {
	return get(ctx, s, func() (ports.Principal, error) {
		expired := map[bool]int{true: 1}
		now := s.now()
		found := list(maps.Values(s.principals), is, func(a, b ports.Principal) int {
			return cmp.Or(expired[a.Expired(now)]-expired[b.Expired(now)], a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.PrincipalID, b.PrincipalID))
		})
		if len(found) == 0 {
			return ports.Principal{}, missing
		}
		return clonePrincipal(found[0]), nil
	})
}

// SavePrincipal implements ports.Principals.
func (s *Directory) SavePrincipal(ctx context.Context, p ports.Principal) error {
	return s.do(ctx, func() error {
		p = clonePrincipal(p)
		p.ExpiresAt, p.CreatedAt = event.Micros(p.ExpiresAt), event.Micros(p.CreatedAt)
		s.principals[principalKey{p.TenantID, p.PrincipalID}] = p
		return nil
	})
}

func clonePrincipal(p ports.Principal) ports.Principal {
	p.Roles, p.LegalEntities = clone(p.Roles), clone(p.LegalEntities)
	b := &p.Binding
	b.Modules, b.ContractedTypes, b.PIIClasses = clone(b.Modules), clone(b.ContractedTypes), clone(b.PIIClasses)
	return p
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

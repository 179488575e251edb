// Package directory keeps the installation, its legal entities with the partitions that
// hold their events, and the principals who may use them.
package directory

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/directorydb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Store keeps the installation, legal entities and principals.
type Store struct {
	db                 *pg.Database
	queries            *directorydb.Queries
	physicalPartitions int // how many legal entities get tables of their own

	installationMu sync.Mutex
	installation   *ports.Installation
}

var (
	_ ports.LegalEntities = (*Store)(nil)
	_ ports.Principals    = (*Store)(nil)
	_ ports.Installations = (*Store)(nil)
)

// New makes the directory of legal entities and principals over db.
func New(db *pg.Database, physicalPartitions int) *Store {
	return &Store{db: db, queries: directorydb.New(), physicalPartitions: physicalPartitions}
}

// A partition id is 12 bits of deployment and 19 random bits.
const (
	randomBits    = 19
	maxDeployment = 1<<12 - 1
)

// How CreateLegalEntity tries to attach physical partitions while readers hold the
// tables: about ten seconds, with growing pauses, because each attempt blocks all
// appends for up to a tenth of a second.
const (
	attachTries    = 24
	attachPause    = 50 * time.Millisecond
	attachMaxShift = 3
)

func notBootstrapped() error {
	return fault.New(fault.FailedPrecondition, "installation.not_bootstrapped", "the installation has no log name yet; run backbone bootstrap first")
}

// Installation implements ports.Installations. It is read once; it cannot change.
func (s *Store) Installation(ctx context.Context) (ports.Installation, error) {
	s.installationMu.Lock()
	defer s.installationMu.Unlock()
	if s.installation != nil {
		return *s.installation, ctx.Err()
	}
	row, err := s.queries.GetInstallation(ctx, s.db.Reads)
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.Installation{}, notBootstrapped()
	}
	if err != nil {
		return ports.Installation{}, pg.Translate(ctx, err)
	}
	s.installation = &ports.Installation{LogName: row.LogName, Deployment: uint16(row.Deployment), CreatedAt: row.CreatedAt.UTC()}
	return *s.installation, nil
}

// Bootstrap implements ports.Installations.
func (s *Store) Bootstrap(ctx context.Context, i ports.Installation) error {
	if i.CreatedAt.IsZero() {
		i.CreatedAt = s.db.Now()
	}
	_, err := s.queries.InsertInstallation(ctx, s.db.Reads, &directorydb.InsertInstallationParams{
		LogName: i.LogName, Deployment: int32(i.Deployment & maxDeployment), CreatedAt: i.CreatedAt,
	})
	if err != nil {
		return pg.Translate(ctx, err)
	}
	fixed, err := s.Installation(ctx)
	if err != nil {
		return err
	}
	if fixed.LogName != i.LogName {
		return fault.New(fault.Conflict, "installation.log_name_fixed", "the log has another name, which is part of every checksum; use that name")
	}
	return nil
}

// LegalEntities implements ports.LegalEntities.
func (s *Store) LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	rows, err := s.queries.ListLegalEntities(ctx, s.db.Reads, tenantID)
	return pg.MapRows(ctx, rows, err, func(r *directorydb.ListLegalEntitiesRow) ports.LegalEntity {
		return ports.LegalEntity{
			Partition: event.PartitionID(r.PartitionID), TenantID: r.TenantID, Code: r.Code, Name: r.Name,
			TimeZone: r.TimeZone, Status: r.Status, CreatedAt: r.CreatedAt.UTC(),
		}
	})
}

// CreateLegalEntity implements ports.LegalEntities. While a long transaction reads
// the event tables the physical partitions cannot be attached; it tries for some seconds,
// each time blocking appends only briefly, and then answers store.unavailable.
func (s *Store) CreateLegalEntity(ctx context.Context, le ports.LegalEntity) (ports.LegalEntity, error) {
	fixed, err := s.Installation(ctx)
	if err != nil {
		return ports.LegalEntity{}, err
	}
	if le.Status == "" {
		le.Status = "active"
	}
	if le.CreatedAt.IsZero() {
		le.CreatedAt = s.db.Now()
	}
	le.CreatedAt = event.Micros(le.CreatedAt)
	for try := 0; ; try++ {
		if le.Partition, err = randomPartition(fixed.Deployment); err != nil {
			return ports.LegalEntity{}, err
		}
		genesis := event.GenesisChecksum(fixed.LogName, le.Partition)
		_, err = s.queries.CreateLegalEntity(ctx, s.db.Reads, &directorydb.CreateLegalEntityParams{
			PartitionID: int32(le.Partition), TenantID: le.TenantID, Code: le.Code, Name: le.Name, TimeZone: le.TimeZone, Status: le.Status,
			CreatedAt: le.CreatedAt, Genesis: genesis[:], PhysicalPartitions: int32(s.physicalPartitions),
		})
		switch {
		case err == nil:
			return le, nil
		case pg.ViolatesConstraint(err, "legal_entities_code"):
			return ports.LegalEntity{}, fault.New(fault.Conflict, "legal_entity.duplicate",
				"the tenant has a legal entity with this code already; use it or choose another code")
		case try >= attachTries || !pg.ViolatesConstraint(err, "legal_entities_pkey") && !pg.IsLockTimeout(err) && !pg.IsSerializationFailure(err):
			return ports.LegalEntity{}, pg.Translate(ctx, err)
		}
		if err := ports.Sleep(ctx, attachPause<<min(try, attachMaxShift)); err != nil {
			return ports.LegalEntity{}, err
		}
	}
}

// randomPartition draws a number. Zero stays unused: it means "none" in
// deployment 0.
func randomPartition(deployment uint16) (event.PartitionID, error) {
	for {
		var b [4]byte
		if _, err := rand.Read(b[:]); err != nil {
			return 0, fault.New(fault.Internal, pg.CodeInternal, "no partition number could be drawn; try again").WithCause(err)
		}
		if number := binary.BigEndian.Uint32(b[:]) & (1<<randomBits - 1); number != 0 {
			return event.PartitionID(uint32(deployment)<<randomBits | number), nil
		}
	}
}

// PrincipalByTokenHash implements ports.Principals.
func (s *Store) PrincipalByTokenHash(ctx context.Context, hash event.Hash) (ports.Principal, error) {
	row, err := s.queries.GetPrincipalByTokenHash(ctx, s.db.Reads, hash[:])
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.Principal{}, fault.New(fault.Unauthenticated, "auth.token_unknown", "the access token is not known; sign in again or ask the administrator for a new one")
	}
	if err != nil {
		return ports.Principal{}, pg.Translate(ctx, err)
	}
	return principal(&row.BackbonePrincipal), nil
}

// PrincipalByPerson implements ports.Principals. Of a person's several logins it
// returns the oldest.
func (s *Store) PrincipalByPerson(ctx context.Context, tenantID, personID string) (ports.Principal, error) {
	row, err := s.queries.GetPrincipalByPerson(ctx, s.db.Reads, &directorydb.GetPrincipalByPersonParams{TenantID: tenantID, PersonID: personID, Now: s.db.Now()})
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.Principal{}, fault.New(fault.NotFound, "principal.not_found", "the tenant has no such person; check the id or create the principal")
	}
	if err != nil {
		return ports.Principal{}, pg.Translate(ctx, err)
	}
	return principal(&row.BackbonePrincipal), nil
}

// SavePrincipal implements ports.Principals. Fault principal.token_taken when
// another principal has the token.
func (s *Store) SavePrincipal(ctx context.Context, p ports.Principal) error {
	err := s.queries.UpsertPrincipal(ctx, s.db.Reads, &directorydb.UpsertPrincipalParams{
		TenantID: p.TenantID, PrincipalID: p.PrincipalID, PersonID: p.PersonID, ActorType: string(p.ActorType),
		DisplayName: p.DisplayName, RoleLabel: p.RoleLabel, Roles: orEmpty(p.Roles), LegalEntities: orEmpty(p.LegalEntities),
		ResponsiblePerson: p.Binding.ResponsiblePerson, Modules: orEmpty(p.Binding.Modules), ContractedTypes: orEmpty(p.Binding.ContractedTypes),
		PiiClasses: textsOf(p.Binding.PIIClasses), TrustLevel: string(p.Binding.TrustLevel),
		TokenHash: p.TokenHash[:], Development: p.Development, ExpiresAt: pg.OptionalTime(p.ExpiresAt), CreatedAt: p.CreatedAt,
	})
	if pg.ViolatesConstraint(err, "principals_token") {
		return fault.New(fault.Conflict, "principal.token_taken", "another principal has this token; make a new token")
	}
	return pg.Translate(ctx, err)
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func textsOf(classes []shredding.Class) []string {
	out := make([]string, len(classes))
	for i, class := range classes {
		out[i] = string(class)
	}
	return out
}

func principal(r *directorydb.BackbonePrincipal) ports.Principal {
	p := ports.Principal{
		TenantID: r.TenantID, PersonID: r.PersonID, PrincipalID: r.PrincipalID, ActorType: event.ActorType(r.ActorType),
		DisplayName: r.DisplayName, RoleLabel: r.RoleLabel, Development: r.Development, CreatedAt: r.CreatedAt.UTC(), ExpiresAt: pg.TimeOrZero(r.ExpiresAt),
	}
	if len(r.Roles) > 0 {
		p.Roles = r.Roles
	}
	if len(r.LegalEntities) > 0 {
		p.LegalEntities = r.LegalEntities
	}
	p.Binding = ports.Binding{ResponsiblePerson: r.ResponsiblePerson, TrustLevel: ports.TrustLevel(r.TrustLevel)}
	if len(r.Modules) > 0 {
		p.Binding.Modules = r.Modules
	}
	if len(r.ContractedTypes) > 0 {
		p.Binding.ContractedTypes = r.ContractedTypes
	}
	for _, class := range r.PiiClasses {
		p.Binding.PIIClasses = append(p.Binding.PIIClasses, shredding.Class(class))
	}
	copy(p.TokenHash[:], r.TokenHash)
	return p
}

// Package directory keeps the installation and its legal entities with the partitions that
// hold their events.
package directory

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/directorydb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Store keeps the installation and its legal entities.
type Store struct {
	db                 *pg.Database
	queries            *directorydb.Queries
	physicalPartitions int // how many legal entities get tables of their own

	installationMu sync.Mutex
	installation   *ports.Installation
}

var (
	_ ports.LegalEntities = (*Store)(nil)
	_ ports.Installations = (*Store)(nil)
)

// New makes the directory of legal entities over db.
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
	all, err := s.Partitions(ctx, tenantID)
	return slices.DeleteFunc(all, ports.LegalEntity.IsAdministrative), err
}

// AdministrativeLogs implements ports.LegalEntities.
func (s *Store) AdministrativeLogs(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	all, err := s.Partitions(ctx, tenantID)
	return slices.DeleteFunc(all, func(le ports.LegalEntity) bool { return !le.IsAdministrative() }), err
}

// Partitions implements ports.LegalEntities.
func (s *Store) Partitions(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
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

// FormerPrincipals lists the principals that an earlier release kept in a table, by tenant and
// principal id; tenant "" lists all.
func (s *Store) FormerPrincipals(ctx context.Context, tenantID string) ([]ports.Principal, error) {
	rows, err := s.queries.ListFormerPrincipals(ctx, s.db.Reads, tenantID)
	return pg.MapRows(ctx, rows, err, func(r *directorydb.ListFormerPrincipalsRow) ports.Principal { return principal(&r.BackbonePrincipal) })
}

func principal(r *directorydb.BackbonePrincipal) ports.Principal {
	p := ports.Principal{
		TenantID: r.TenantID, PersonID: r.PersonID, PrincipalID: r.PrincipalID, ActorType: event.ActorType(r.ActorType), RoleLabel: r.RoleLabel, Development: r.Development, CreatedAt: r.CreatedAt.UTC(), ExpiresAt: pg.TimeOrZero(r.ExpiresAt),
	}
	if len(r.Roles) > 0 {
		p.Roles = r.Roles
	}
	if len(r.LegalEntities) > 0 {
		p.LegalEntities = r.LegalEntities
	}
	copy(p.TokenHash[:], r.TokenHash)
	return p
}

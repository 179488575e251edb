package ports

import (
	"context"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// LegalEntity is a partition of the log and the books behind it.
type LegalEntity struct {
	Partition event.PartitionID
	TenantID  string
	Code      string // as in scope.legal_entity
	Name      string
	TimeZone  string // IANA name; decides "today" for effective dates
	Status    string // "active"
	CreatedAt time.Time
}

// zones keeps loaded time zones: loading one reads the zone database.
var zones sync.Map // name → *time.Location

// Today is the calendar day at the moment in the entity's zone; an unknown zone
// counts as UTC.
func (le LegalEntity) Today(now time.Time) event.Date {
	zone, kept := zones.Load(le.TimeZone)
	if !kept {
		loaded, err := time.LoadLocation(le.TimeZone)
		if err != nil {
			loaded = time.UTC
		}
		zone, _ = zones.LoadOrStore(le.TimeZone, loaded)
	}
	return event.DateOf(now.In(zone.(*time.Location)))
}

// AdministrativeCode is the code of a tenant's administrative log. No legal entity of a
// business can have it: their codes begin with a letter or a digit.
const AdministrativeCode = "_ADMIN"

// IsAdministrative says whether this is the tenant's administrative log, which records what
// belongs to no legal entity: who may do what, and which legal entities there are.
func (le LegalEntity) IsAdministrative() bool { return le.Code == AdministrativeCode }

// LegalEntities is the directory of partitions.
type LegalEntities interface {
	// LegalEntities lists those of a tenant by code; tenant "" lists all. Administrative logs
	// are not among them, so that what reads all books does not read them.
	LegalEntities(ctx context.Context, tenantID string) ([]LegalEntity, error)
	// AdministrativeLogs lists the administrative log of a tenant, an empty list before there is
	// one; tenant "" lists those of all tenants, by tenant.
	AdministrativeLogs(ctx context.Context, tenantID string) ([]LegalEntity, error)
	// Partitions lists legal entities and administrative logs together, by tenant and code; tenant
	// "" lists all.
	Partitions(ctx context.Context, tenantID string) ([]LegalEntity, error)
	// CreateLegalEntity makes the partition with its genesis checksum and, within the
	// configured measure, its physical partitions. The store assigns Partition.
	// Fault legal_entity.duplicate when the tenant has the code already.
	CreateLegalEntity(ctx context.Context, le LegalEntity) (LegalEntity, error)
}

// Principal is who may call: a person or a service, known by the hash of a
// token.
type Principal struct {
	TenantID      string
	PersonID      string // the natural person (or the service) behind all its logins; what events carry as actor id
	PrincipalID   string // this login; events carry it as session id
	ActorType     event.ActorType
	RoleLabel     string // what events carry as actor name
	Roles         []string
	LegalEntities []string // codes it may see; empty: all of the tenant
	Binding       Binding  // of a service; a person has none
	TokenHash     event.Hash
	Development   bool // token made by `backbone dev`; refused by `backbone serve`
	ExpiresAt     time.Time
	CreatedAt     time.Time
	// Version is that of the stored login, which SavePrincipal replaces; 0: there is none that
	// gives access.
	Version        event.Version
	ExpiryRecorded bool   // the log says that the token has expired
	Name           string // of a person, for SavePrincipal to store sealed; what is read has none
}

// PrincipalStatus is a login with what happened to it.
type PrincipalStatus struct {
	Principal
	RevokedAt  time.Time // zero: not revoked
	ReviewedAt time.Time // of the last review; zero: none since the rights changed
	ReviewedBy string    // person
}

// Binding is what a service was enrolled for. It limits the service beside its roles and
// legal entities: what no module of the binding owns, the service neither sees nor changes.
type Binding struct {
	ResponsiblePerson string // the person who answers for the service, and counts as having done what it does
	Modules           []string
	ContractedTypes   []string          // event types of other modules that the service may read
	PIIClasses        []shredding.Class // classes of personal data that it reads in clear, in types of Modules
	TrustLevel        TrustLevel
}

// TrustLevel says how far the content of a service's events was checked before the service
// sent it. Events carry it with their actor.
type TrustLevel string

// The trust levels.
const (
	TrustUnchecked TrustLevel = "unchecked" // passed on as a third party sent it
	TrustChecked   TrustLevel = "checked"   // checked by the service against rules
	TrustOfficial  TrustLevel = "official"  // from a source of record, such as a bank or a public register
)

// TrustLevels lists the trust levels.
func TrustLevels() []TrustLevel { return []TrustLevel{TrustUnchecked, TrustChecked, TrustOfficial} }

// IsService reports whether the principal is no person.
func (p Principal) IsService() bool { return p.ActorType != event.Human }

// Actor is how events show the principal: by the person's pseudonymous id and a role label,
// never by name. A service acts for its responsible person, who therefore counts as having done
// what it does wherever two persons are needed.
func (p Principal) Actor() event.Actor {
	a := event.Actor{Type: p.ActorType, ID: p.PersonID, Name: p.RoleLabel, Details: event.ActorDetails{SessionID: p.PrincipalID, TrustLevel: string(p.Binding.TrustLevel)}}
	if responsible := p.Binding.ResponsiblePerson; responsible != "" {
		a.Details.OnBehalfOf = &event.Delegate{Type: string(event.Human), ID: responsible}
	}
	return a
}

// Expired reports whether the login is over.
func (p Principal) Expired(now time.Time) bool {
	return !p.ExpiresAt.IsZero() && !now.Before(p.ExpiresAt)
}

// Principals is the directory of callers.
type Principals interface {
	// PrincipalByTokenHash returns fault auth.token_unknown if there is none.
	PrincipalByTokenHash(ctx context.Context, hash event.Hash) (Principal, error)
	// PrincipalByPerson gives a person's first login that has not expired, or else the
	// first; fault principal.not_found if there is none.
	PrincipalByPerson(ctx context.Context, tenantID, personID string) (Principal, error)
	// ListPrincipals lists the logins of a tenant, revoked ones too, by principal id.
	ListPrincipals(ctx context.Context, tenantID string) ([]PrincipalStatus, error)
	// SavePrincipal inserts or replaces by (tenant, principal id). by is who enrolls; the zero
	// actor stands for the operator of the installation. reason is text without personal data,
	// or "". Fault principal.changed if the stored login is not at the principal's version.
	SavePrincipal(ctx context.Context, p Principal, reason string, by event.Actor) error
	// RecordExpiry records once that the token of a login has expired. It does nothing if the
	// login has another token by now.
	RecordExpiry(ctx context.Context, p Principal) error
	// ReviewPerson records that the rights of a person or service were reviewed and stay. version
	// is that of the login that PrincipalByPerson gives, or 0 for whatever it is. Faults
	// principal.not_found, principal.changed.
	ReviewPerson(ctx context.Context, tenantID, personID string, version event.Version, reason string, by event.Actor) error
	// RevokePerson ends all logins of a person or service. reason is text without personal data,
	// or "". Fault principal.not_found if there is no login to end.
	RevokePerson(ctx context.Context, tenantID, personID, reason string, by event.Actor) error
}

// Installation is what was fixed when the deployment was bootstrapped.
type Installation struct {
	LogName    string // part of every genesis checksum; immutable
	Deployment uint16 // 12 bits
	CreatedAt  time.Time
}

// Installations reads and fixes the installation.
type Installations interface {
	// Installation returns fault installation.not_bootstrapped before the first Bootstrap.
	Installation(ctx context.Context) (Installation, error)
	// Bootstrap fixes the installation; a second call with another log name is fault
	// installation.log_name_fixed, with the same one it changes nothing.
	Bootstrap(ctx context.Context, i Installation) error
}

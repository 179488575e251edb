// Package tenancy authenticates callers and limits them to their tenant's legal entities.
// Service finds principals by token, creates principals and legal entities, and bootstraps an
// installation. The HTTP API and the composition root call it. It never reads or writes
// events.
package tenancy

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Service answers who and where from memory, refreshed from the directory.
type Service struct {
	entities   ports.LegalEntities
	principals ports.Principals
	policies   ports.PolicyEngine
	owner      func(string) string
	typeOwners func(string) map[string]string
	roles      []string
	created    func(context.Context, ports.LegalEntity, event.Actor) error
	clock      ports.Clock
	ids        ports.IDSource

	allowDevelopmentTokens bool

	mu         sync.RWMutex
	byCode     map[entityKey]ports.LegalEntity
	byToken    map[event.Hash]cachedPrincipal
	roleRights map[string]roleRights // by roles
	cacheTTL   time.Duration
}

type entityKey struct{ tenantID, code string }

type cachedPrincipal struct {
	principal ports.Principal
	until     time.Time
}

// Config is what a Service needs.
type Config struct {
	LegalEntities ports.LegalEntities
	Principals    ports.Principals
	Policies      ports.PolicyEngine
	// Owner tells which built-in module owns an event or intent type, "" if none does:
	// module.Catalog.Owner. Without it no principal reads personal values.
	Owner func(recordType string) string
	// TypeOwners returns the modules of a tenant's registered event types by type, from memory:
	// registry.Registry.Owners. Without it a service sees the types of built-in modules only.
	TypeOwners func(tenantID string) map[string]string
	Roles      []string // that a principal may hold: module.Catalog.RoleNames
	// LegalEntityCreated records once who created a legal entity; nil records nothing.
	LegalEntityCreated func(ctx context.Context, le ports.LegalEntity, by event.Actor) error
	Clock              ports.Clock
	IDs                ports.IDSource
	// AllowDevelopmentTokens lets the tokens of `backbone dev` in.
	AllowDevelopmentTokens bool
}

// New makes a Service.
func New(c Config) *Service {
	if c.LegalEntityCreated == nil {
		c.LegalEntityCreated = func(context.Context, ports.LegalEntity, event.Actor) error { return nil }
	}
	return &Service{
		entities: c.LegalEntities, principals: c.Principals, policies: c.Policies, owner: c.Owner, typeOwners: c.TypeOwners, roles: c.Roles, created: c.LegalEntityCreated, clock: c.Clock, ids: c.IDs,
		allowDevelopmentTokens: c.AllowDevelopmentTokens,
		byCode:                 map[entityKey]ports.LegalEntity{}, byToken: map[event.Hash]cachedPrincipal{}, roleRights: map[string]roleRights{}, cacheTTL: 5 * time.Second,
	}
}

// NewToken makes an access token of the form bbk_<id>_<43 characters> and its
// hash. Only the hash is stored.
func (s *Service) NewToken() (token string, hash event.Hash) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	id := strings.ToLower(s.ids.NewID(s.clock.Now()).String())
	token = "bbk_" + id + "_" + base64.RawURLEncoding.EncodeToString(secret[:])
	return token, HashToken(token)
}

// HashToken is what the directory stores for a token: 32 random bytes need no
// slow hash.
func HashToken(token string) event.Hash { return sha256.Sum256([]byte(token)) }

func unauthenticated() *fault.Error {
	return fault.New(fault.Unauthenticated, "auth.token_invalid", "send a valid access token in the header Authorization: Bearer <token>")
}

// Authenticate finds the principal behind a bearer token. The answer is kept for
// a few seconds, which bounds how long a revoked token still works. Faults:
// auth.token_missing, auth.token_invalid, auth.token_expired,
// auth.development_token.
func (s *Service) Authenticate(ctx context.Context, token string) (ports.Principal, error) {
	if token == "" {
		return ports.Principal{}, fault.New(fault.Unauthenticated, "auth.token_missing", "send an access token in the header Authorization: Bearer <token>")
	}
	if len(token) > 8<<10 || !strings.HasPrefix(token, "bbk_") {
		return ports.Principal{}, unauthenticated()
	}
	hash, now := HashToken(token), s.clock.Now()
	s.mu.RLock()
	kept, ok := s.byToken[hash]
	s.mu.RUnlock()
	if !ok || now.After(kept.until) {
		p, err := s.principals.PrincipalByTokenHash(ctx, hash)
		if err != nil {
			if fault.KindOf(err) == fault.NotFound || fault.KindOf(err) == fault.Unauthenticated {
				return ports.Principal{}, unauthenticated()
			}
			return ports.Principal{}, err
		}
		kept = cachedPrincipal{principal: p, until: now.Add(s.cacheTTL)}
		s.mu.Lock()
		if len(s.byToken) > 10_000 {
			clear(s.byToken)
		}
		s.byToken[hash] = kept
		s.mu.Unlock()
	}
	p := kept.principal
	switch {
	case p.IsService() && p.Binding.ResponsiblePerson == "":
		return ports.Principal{}, fault.New(fault.Forbidden, "auth.service_unbound",
			"this service was enrolled without a responsible person and modules; an administrator enrolls it again with --renew, --responsible and --module")
	case p.Expired(now):
		s.recordExpiry(ctx, hash, p)
		return ports.Principal{}, fault.New(fault.Unauthenticated, "auth.token_expired", "the access token has expired; ask an administrator for a new one")
	case p.Development && !s.allowDevelopmentTokens:
		return ports.Principal{}, fault.New(fault.Unauthenticated, "auth.development_token", "tokens of `backbone dev` are not accepted here; use a token made by `backbone bootstrap` or an administrator")
	}
	return p, nil
}

// recordExpiry records once that an expired token was used. A failure changes nothing for the
// caller, and the next use of the token tries again.
func (s *Service) recordExpiry(ctx context.Context, hash event.Hash, p ports.Principal) {
	if p.ExpiryRecorded || s.principals.RecordExpiry(ctx, p) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept, ok := s.byToken[hash]; ok {
		kept.principal.ExpiryRecorded = true
		s.byToken[hash] = kept
	}
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func entitled(p ports.Principal, code string) bool {
	return len(p.LegalEntities) == 0 || slices.Contains(p.LegalEntities, code)
}

// entityNotFound repeats the code only if it is formed like one: anything else may be
// anything.
func entityNotFound(code string) *fault.Error {
	if !entityCode.MatchString(code) || shredding.PersonalPattern(code) != "" {
		return fault.New(fault.NotFound, "legal_entity.not_found", "there is no such legal entity; use a code from GET /api/admin/legal-entities").WithField("legal_entity")
	}
	return fault.New(fault.NotFound, "legal_entity.not_found", "there is no legal entity %q that you may see; GET /api/admin/legal-entities lists them", code).WithField("legal_entity")
}

// LegalEntity finds an entity of the tenant by code, also its administrative log.
func (s *Service) LegalEntity(ctx context.Context, tenantID, code string) (ports.LegalEntity, error) {
	if le, ok := s.cachedLegalEntity(tenantID, code); ok {
		return le, nil
	}
	if _, err := s.Partitions(ctx, tenantID); err != nil {
		return ports.LegalEntity{}, err
	}
	if le, ok := s.cachedLegalEntity(tenantID, code); ok {
		return le, nil
	}
	return ports.LegalEntity{}, entityNotFound(code)
}

func (s *Service) cachedLegalEntity(tenantID, code string) (ports.LegalEntity, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	le, ok := s.byCode[entityKey{tenantID, code}]
	return le, ok
}

// LegalEntities lists a tenant's entities by code.
func (s *Service) LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	return s.list(s.entities.LegalEntities(ctx, tenantID))
}

// AdministrativeLogs lists a tenant's administrative log.
func (s *Service) AdministrativeLogs(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	return s.list(s.entities.AdministrativeLogs(ctx, tenantID))
}

// Partitions lists a tenant's entities and its administrative log by code.
func (s *Service) Partitions(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	return s.list(s.entities.Partitions(ctx, tenantID))
}

// list remembers what the directory has listed.
func (s *Service) list(all []ports.LegalEntity, err error) ([]ports.LegalEntity, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	for _, le := range all {
		s.byCode[entityKey{le.TenantID, le.Code}] = le
	}
	s.mu.Unlock()
	return all, nil
}

var entityCode = regexp.MustCompile(`^[A-Z0-9][A-Z0-9_-]{0,31}$`)

// CreateLegalEntity makes a legal entity and its partition; the zero actor stands for the operator
// of the installation. Faults: legal_entity.code_invalid, legal_entity.time_zone_invalid,
// legal_entity.duplicate.
func (s *Service) CreateLegalEntity(ctx context.Context, le ports.LegalEntity, by event.Actor) (ports.LegalEntity, error) {
	if !entityCode.MatchString(le.Code) {
		return ports.LegalEntity{}, fault.New(fault.Invalid, "legal_entity.code_invalid", "a code has 1 to 32 capital letters, digits, _ or -; choose another").WithField("/code")
	}
	if le.TimeZone == "" {
		le.TimeZone = "UTC"
	}
	// "Local" would be another zone on every node.
	if _, err := time.LoadLocation(le.TimeZone); err != nil || le.TimeZone == "Local" {
		return ports.LegalEntity{}, fault.New(fault.Invalid, "legal_entity.time_zone_invalid", "use an IANA zone name such as Europe/Berlin").WithField("/time_zone")
	}
	if le.Name == "" {
		le.Name = le.Code
	}
	le.Status, le.CreatedAt = "active", event.Micros(s.clock.Now())
	created, err := s.entities.CreateLegalEntity(ctx, le)
	if fault.CodeOf(err) == "legal_entity.duplicate" {
		return ports.LegalEntity{}, cmp.Or(s.recordExisting(ctx, le.TenantID, le.Code, by), err)
	}
	if err != nil {
		return ports.LegalEntity{}, err
	}
	return created, s.created(ctx, created, by)
}

// recordExisting records a legal entity whose creation may have been cut off before that, with the
// caller who repeats it.
func (s *Service) recordExisting(ctx context.Context, tenantID, code string, by event.Actor) error {
	le, err := s.LegalEntity(ctx, tenantID, code)
	if err != nil {
		return err
	}
	return s.created(ctx, le, by)
}

// Bootstrap fixes the log's name, which enters every genesis checksum and never
// changes. Faults: installation.log_name_invalid, installation.deployment_invalid,
// installation.log_name_fixed.
func Bootstrap(ctx context.Context, installations ports.Installations, clock ports.Clock, logName string, deployment uint16) error {
	if logName == "" || len(logName) > 200 || strings.ContainsAny(logName, "\n\r+ ") {
		return fault.New(fault.Invalid, "installation.log_name_invalid", "a log name is like a host name, without blanks: ledger.example.org").WithField("log_name")
	}
	if deployment >= 1<<12 {
		return fault.New(fault.Invalid, "installation.deployment_invalid", "a deployment number is 0 to 4095").WithField("deployment")
	}
	return installations.Bootstrap(ctx, ports.Installation{LogName: logName, Deployment: deployment, CreatedAt: event.Micros(clock.Now())})
}

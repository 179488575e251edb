package tenancy_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/opa"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

var start = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)

// directory counts lookups and fails while it is broken.
type directory struct {
	*memory.Directory
	testkit.Principals
	tokens, lists atomic.Int64
	broken        atomic.Bool
}

var errBroken = errors.New("broken")

func (d *directory) PrincipalByTokenHash(ctx context.Context, h event.Hash) (ports.Principal, error) {
	d.tokens.Add(1)
	if d.broken.Load() {
		return ports.Principal{}, errBroken
	}
	return d.Principals.PrincipalByTokenHash(ctx, h)
}

func (d *directory) Partitions(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	d.lists.Add(1)
	if d.broken.Load() {
		return nil, errBroken
	}
	return d.Directory.Partitions(ctx, tenantID)
}

type tenancyFixture struct {
	*tenancy.Service
	directory *directory
	clock     *testkit.Clock
}

func newTenancyFixture(t *testing.T, change func(*tenancy.Config)) tenancyFixture {
	t.Helper()
	clock := testkit.NewClock(start)
	store := &directory{Directory: memory.New(memory.Config{LogName: "ledger.example.org", Clock: clock}).Directory}
	var rego []ports.PolicyModule
	for path, source := range configs.Policies() {
		rego = append(rego, ports.PolicyModule{Path: path, Source: source})
	}
	catalog, err := module.Build(jsonschema.New(), gl.New(), ap.New())
	require.NoError(t, err)
	policies, err := opa.New(rego, opa.WithData("roles", catalog.RoleRights()), opa.WithTimeout(time.Minute)) // a busy machine decides as an idle one
	require.NoError(t, err)
	c := tenancy.Config{LegalEntities: store, Principals: store, Policies: policies, Roles: catalog.RoleNames(), Clock: clock, IDs: system.NewIDs()}
	if change != nil {
		change(&c)
	}
	return tenancyFixture{tenancy.New(c), store, clock}
}

func (o tenancyFixture) enroll(t *testing.T, p ports.Principal) string {
	t.Helper()
	if p.PrincipalID == "" {
		p.TenantID, p.PersonID, p.PrincipalID, p.ActorType, p.RoleLabel = "acme", "p-1", "p-1-login", event.Human, "clerk"
	}
	if p.Roles == nil {
		p.Roles = []string{"ap_clerk"}
	}
	token, err := o.Enroll(t.Context(), p)
	require.NoError(t, err)
	return token
}

func code(t *testing.T, err error) string {
	t.Helper()
	require.Error(t, err)
	return fault.CodeOf(err)
}

func TestTokens(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	form := regexp.MustCompile(`^bbk_[0-9a-hjkmnp-tv-z]{26}_[A-Za-z0-9_-]{43}$`)
	seen := map[string]bool{}
	for range 100 {
		token, hash := o.NewToken()
		require.Regexp(t, form, token)
		require.Equal(t, tenancy.HashToken(token), hash)
		require.False(t, seen[token])
		seen[token] = true
	}
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	token := o.enroll(t, ports.Principal{Roles: []string{"ap_clerk"}})
	p, err := o.Authenticate(t.Context(), token)
	require.NoError(t, err)
	require.Equal(t, "p-1", p.PersonID)
	require.Equal(t, []string{"ap_clerk"}, p.Roles)
	require.Equal(t, start, p.CreatedAt)
	require.Equal(t, tenancy.HashToken(token), p.TokenHash, "only the hash is stored")

	for name, c := range map[string]struct{ token, code string }{
		"none":      {"", "auth.token_missing"},
		"garbage":   {"garbage", "auth.token_invalid"},
		"changed":   {token[:len(token)-1] + string(token[len(token)-1]^1), "auth.token_invalid"},
		"case":      {strings.ToUpper(token), "auth.token_invalid"},
		"blank":     {token + " ", "auth.token_invalid"},
		"enormous":  {"bbk_" + strings.Repeat("x", 9<<10), "auth.token_invalid"},
		"unknown":   {"bbk_x_y", "auth.token_invalid"},
		"only hash": {string(p.TokenHash[:]), "auth.token_invalid"},
	} {
		_, err := o.Authenticate(t.Context(), c.token)
		require.Equal(t, c.code, code(t, err), name)
		require.Equal(t, fault.Unauthenticated, fault.KindOf(err), name)
	}
	before := o.directory.tokens.Load()
	_, _ = o.Authenticate(t.Context(), "bbk_"+strings.Repeat("x", 9<<10))
	require.Equal(t, before, o.directory.tokens.Load(), "what cannot be a token is not looked up")
}

func TestEnroll(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	sound := func() ports.Principal {
		return ports.Principal{TenantID: "acme", PersonID: "p-1", PrincipalID: "p-1-login", ActorType: event.Human, Roles: []string{"cfo", "admin"}}
	}
	for name, c := range map[string]struct {
		change func(*ports.Principal)
		code   string
	}{
		"no tenant":     {func(p *ports.Principal) { p.TenantID = "" }, "principal.id_invalid"},
		"no person":     {func(p *ports.Principal) { p.PersonID = "" }, "principal.id_invalid"},
		"no role":       {func(p *ports.Principal) { p.Roles = nil }, "principal.id_invalid"},
		"unknown role":  {func(p *ports.Principal) { p.Roles = []string{"cfo", "root"} }, "principal.role_unknown"},
		"a real person": {func(p *ports.Principal) { p.PersonID = "ada@example.org" }, "pii.in_identifier"},
	} {
		p := sound()
		c.change(&p)
		token, err := o.Enroll(t.Context(), p)
		require.Equal(t, c.code, code(t, err), name)
		require.Empty(t, token, name)
	}
	token, err := o.Enroll(t.Context(), sound())
	require.NoError(t, err)
	p, err := o.Authenticate(t.Context(), token)
	require.NoError(t, err)
	require.Equal(t, "cfo", p.RoleLabel, "the first role, where no label was given")
}

func TestTokens_Expire(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	token := o.enroll(t, ports.Principal{ExpiresAt: start.Add(3 * time.Second)})
	_, err := o.Authenticate(t.Context(), token)
	require.NoError(t, err)
	o.clock.Set(start.Add(3*time.Second - time.Microsecond))
	_, err = o.Authenticate(t.Context(), token)
	require.NoError(t, err)
	o.clock.Set(start.Add(3 * time.Second)) // still kept in memory, but expired
	_, err = o.Authenticate(t.Context(), token)
	require.Equal(t, "auth.token_expired", code(t, err))
	o.clock.Advance(time.Hour)
	_, err = o.Authenticate(t.Context(), token)
	require.Equal(t, "auth.token_expired", code(t, err))
}

func TestTokens_Development(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	token := o.enroll(t, ports.Principal{Development: true})
	for range 2 { // also from memory
		_, err := o.Authenticate(t.Context(), token)
		require.Equal(t, "auth.development_token", code(t, err))
	}
	dev := newTenancyFixture(t, func(c *tenancy.Config) { c.AllowDevelopmentTokens = true })
	token = dev.enroll(t, ports.Principal{Development: true})
	_, err := dev.Authenticate(t.Context(), token)
	require.NoError(t, err)
}

func TestAuthenticate_CachesForSeconds(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	old := o.enroll(t, ports.Principal{})
	_, err := o.Authenticate(t.Context(), old)
	require.NoError(t, err)
	fresh := o.enroll(t, ports.Principal{Roles: []string{"cfo"}}) // the same login
	asked := o.directory.tokens.Load()
	o.clock.Advance(5 * time.Second)
	_, err = o.Authenticate(t.Context(), old)
	require.NoError(t, err, "within the kept time")
	require.Equal(t, asked, o.directory.tokens.Load())
	o.clock.Advance(time.Microsecond)
	_, err = o.Authenticate(t.Context(), old)
	require.Equal(t, "auth.token_invalid", code(t, err))
	p, err := o.Authenticate(t.Context(), fresh)
	require.NoError(t, err)
	require.Equal(t, []string{"cfo"}, p.Roles)
}

func TestAuthenticate_ReportsBrokenDirectory(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	token := o.enroll(t, ports.Principal{})
	o.directory.broken.Store(true)
	_, err := o.Authenticate(t.Context(), token)
	require.ErrorIs(t, err, errBroken)
	o.directory.broken.Store(false)
	_, err = o.Authenticate(t.Context(), token)
	require.NoError(t, err, "nothing of the failure was kept")
	o.directory.broken.Store(true)
	_, err = o.Authenticate(t.Context(), token)
	require.NoError(t, err, "the kept answer bridges it")
}

func TestActor(t *testing.T) {
	t.Parallel()
	a := ports.Principal{PersonID: "p-1", PrincipalID: "p-1-login", ActorType: event.Human, RoleLabel: "clerk"}.Actor()
	require.Equal(t, event.Actor{Type: event.Human, ID: "p-1", Name: "clerk", Details: event.ActorDetails{SessionID: "p-1-login"}}, a)
	a = ports.Principal{
		PersonID: "s-1", PrincipalID: "s-1-1", ActorType: event.System, RoleLabel: "importer", Binding: ports.Binding{ResponsiblePerson: "p-1", TrustLevel: ports.TrustChecked},
	}.Actor()
	require.Equal(t, event.ActorDetails{SessionID: "s-1-1", TrustLevel: "checked", OnBehalfOf: &event.Delegate{Type: "human", ID: "p-1"}}, a.Details)
}

func TestAuthorize(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, func(c *tenancy.Config) {
		c.TypeOwners = func(string) map[string]string { return map[string]string{"people.hired": "hr"} }
	})
	clerk := ports.Principal{TenantID: "acme", ActorType: event.Human, Roles: []string{"ap_clerk"}, LegalEntities: []string{"USMF"}}
	everywhere := clerk
	everywhere.LegalEntities = nil
	service := ports.Principal{Roles: []string{"module"}, ActorType: event.System, Binding: ports.Binding{Modules: []string{"hr"}}}
	admin := ports.Principal{Roles: []string{"admin"}, ActorType: event.Human}
	german := admin
	german.LegalEntities = []string{"DEMF"}
	unbound := ports.Principal{Roles: []string{"module"}, ActorType: event.System}
	person := ports.Principal{Roles: []string{"module"}, ActorType: event.Human}
	hired := []tenancy.TypeAccess{{Type: "hr.x", Module: "hr"}}
	for name, c := range map[string]struct {
		who    ports.Principal
		action tenancy.Action
		code   string
	}{
		"granted":               {clerk, tenancy.Action{Name: "events.read", LegalEntity: "USMF"}, ""},
		"of all of the tenant":  {everywhere, tenancy.Action{Name: "events.read", LegalEntity: "DEMF"}, ""},
		"without legal entity":  {clerk, tenancy.Action{Name: "legal_entities.read"}, ""},
		"another legal entity":  {clerk, tenancy.Action{Name: "events.read", LegalEntity: "DEMF"}, "legal_entity.not_found"},
		"part of a code":        {clerk, tenancy.Action{Name: "events.read", LegalEntity: "USM"}, "legal_entity.not_found"},
		"no role and elsewhere": {ports.Principal{ActorType: event.Human, LegalEntities: []string{"USMF"}}, tenancy.Action{Name: "events.read", LegalEntity: "DEMF"}, "legal_entity.not_found"},
		"role":                  {clerk, tenancy.Action{Name: "event_types.register"}, "auth.forbidden"},
		"no roles":              {ports.Principal{}, tenancy.Action{Name: "events.read", LegalEntity: "USMF"}, "auth.forbidden"},
		"unknown action":        {admin, tenancy.Action{Name: "events.delete", LegalEntity: "USMF"}, "auth.forbidden"},
		"no action":             {admin, tenancy.Action{}, "auth.forbidden"},
		"tenant-wide":           {admin, tenancy.Action{Name: "event_types.register"}, ""},
		"tenant-wide of some":   {german, tenancy.Action{Name: "event_types.register"}, "auth.forbidden"},
		"legal entity of some":  {german, tenancy.Action{Name: "legal_entities.create"}, "auth.forbidden"},
		"type of another module": {service, tenancy.Action{Name: "events.append", LegalEntity: "USMF", EventTypes: []tenancy.TypeAccess{{Type: "crm.x", Module: "crm"}}},
			"auth.forbidden"},
		"type of no module": {service, tenancy.Action{Name: "events.append", LegalEntity: "USMF", EventTypes: []tenancy.TypeAccess{{Type: "crm.x"}}}, "auth.forbidden"},
		"registered type":   {service, tenancy.Action{Name: "events.append", LegalEntity: "USMF", EventTypes: []tenancy.TypeAccess{{Type: "people.hired"}}}, ""},
		"intent of another": {service, tenancy.Action{Name: "intents.submit", LegalEntity: "USMF", EventTypes: []tenancy.TypeAccess{{Type: "ap.submit_invoice"}}}, "auth.forbidden"},
		"service unbound":   {unbound, tenancy.Action{Name: "events.append", LegalEntity: "USMF", EventTypes: hired}, "auth.forbidden"},
		"person as service": {person, tenancy.Action{Name: "events.append", LegalEntity: "USMF", EventTypes: hired}, "auth.forbidden"},
		"own event type": {service, tenancy.Action{Name: "events.append", LegalEntity: "USMF", EventTypes: []tenancy.TypeAccess{{Type: "hr.x", Module: "hr"}}},
			""},
		"built-in event type": {service, tenancy.Action{Name: "events.append", LegalEntity: "USMF", EventTypes: []tenancy.TypeAccess{{Type: "hr.x", Module: "hr"}, {Type: "gl.x", Module: "gl", BuiltIn: true}}},
			"auth.forbidden"},
	} {
		err := o.Authorize(t.Context(), c.who, c.action)
		if c.code == "" {
			require.NoError(t, err, name)
			continue
		}
		require.Equal(t, c.code, code(t, err), name)
	}
}

func TestAuthorize_EveryRole(t *testing.T) {
	t.Parallel()
	var roles []string
	o := newTenancyFixture(t, func(c *tenancy.Config) { roles = c.Roles })
	require.Len(t, roles, 14)
	for _, role := range roles {
		require.NoError(t, o.Authorize(t.Context(), ports.Principal{ActorType: kindOf(role), Roles: []string{role}}, tenancy.Action{Name: "event_types.read"}), role)
	}
}

// kindOf is the kind of the holders of a role.
func kindOf(role string) event.ActorType {
	if module.IsServiceRole(role) {
		return event.System
	}
	return event.Human
}

// failingPolicies is a policy engine that cannot decide.
type failingPolicies struct{ ports.PolicyEngine }

func (failingPolicies) Decide(context.Context, string, any, any) error {
	return fault.New(fault.Internal, "policy.undecided", "the policy gave no decision; look at the log")
}

// emptyDecisions decides nothing and reports no error.
type emptyDecisions struct{ ports.PolicyEngine }

func (emptyDecisions) Decide(context.Context, string, any, any) error { return nil }

func TestAuthorize_WithoutDecision(t *testing.T) {
	t.Parallel()
	admin := ports.Principal{ActorType: event.Human, Roles: []string{"admin"}}
	o := newTenancyFixture(t, func(c *tenancy.Config) { c.Policies = failingPolicies{} })
	require.Equal(t, "policy.undecided", code(t, o.Authorize(t.Context(), admin, tenancy.Action{Name: "event_types.read"})))
	o = newTenancyFixture(t, func(c *tenancy.Config) { c.Policies = emptyDecisions{} })
	require.Equal(t, "auth.forbidden", code(t, o.Authorize(t.Context(), admin, tenancy.Action{Name: "event_types.read"})))
}

func TestLegalEntity_ForeignLooksUnknown(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	_, err := o.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "DEMF"}, event.Actor{})
	require.NoError(t, err)
	hidden := o.Authorize(t.Context(), ports.Principal{LegalEntities: []string{"USMF"}}, tenancy.Action{Name: "events.read", LegalEntity: "DEMF"})
	_, unknown := o.LegalEntity(t.Context(), "acme", "NONE")
	h, _ := fault.As(hidden)
	u, _ := fault.As(unknown)
	require.Equal(t, strings.ReplaceAll(u.Detail, "NONE", "DEMF"), h.Detail, "both answers are the same")
	require.Equal(t, []any{u.Kind, u.Code, u.Field}, []any{h.Kind, h.Code, h.Field})
}

func TestLegalEntities(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	le, err := o.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "DEMF"}, event.Actor{})
	require.NoError(t, err)
	require.Equal(t, []string{"DEMF", "UTC", "active"}, []string{le.Name, le.TimeZone, le.Status})
	require.Equal(t, start, le.CreatedAt)
	require.NotZero(t, le.Partition)

	got, err := o.LegalEntity(t.Context(), "acme", "DEMF")
	require.NoError(t, err)
	require.Equal(t, le, got)
	lists := o.directory.lists.Load()
	_, err = o.LegalEntity(t.Context(), "acme", "DEMF")
	require.NoError(t, err)
	require.Equal(t, lists, o.directory.lists.Load(), "from memory")

	// One that another node made is found at once.
	_, err = o.directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "USMF"})
	require.NoError(t, err)
	_, err = o.LegalEntity(t.Context(), "acme", "USMF")
	require.NoError(t, err)

	_, err = o.LegalEntity(t.Context(), "rival", "DEMF")
	require.Equal(t, "legal_entity.not_found", code(t, err), "another tenant's")
	_, err = o.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "DEMF"}, event.Actor{})
	require.Equal(t, "legal_entity.duplicate", code(t, err))
	other, err := o.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "rival", Code: "DEMF"}, event.Actor{})
	require.NoError(t, err)
	require.NotEqual(t, le.Partition, other.Partition)
	all, err := o.LegalEntities(t.Context(), "acme")
	require.NoError(t, err)
	require.Len(t, all, 2)
}

// A legal entity is recorded with who created it. One that exists may lack its event, so that a
// second call records it too, by no person.
func TestLegalEntities_AreRecorded(t *testing.T) {
	t.Parallel()
	var recorded []string
	var failure error
	o := newTenancyFixture(t, func(c *tenancy.Config) {
		c.LegalEntityCreated = func(_ context.Context, le ports.LegalEntity, by event.Actor) error {
			recorded = append(recorded, le.Code+" by "+by.ID)
			return failure
		}
	})
	admin := event.Actor{Type: event.Human, ID: "p-admin"}
	failure = fault.New(fault.Unavailable, "store.unavailable", "try again")
	for range 2 {
		_, err := o.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "DEMF"}, admin)
		require.Equal(t, "store.unavailable", code(t, err))
	}
	failure = nil
	_, err := o.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "DEMF"}, admin)
	require.Equal(t, "legal_entity.duplicate", code(t, err))
	require.Equal(t, []string{"DEMF by p-admin", "DEMF by p-admin", "DEMF by p-admin"}, recorded)
}

func TestLegalEntity_OddTenantNames(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	_, err := o.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme/north", Code: "DEMF"}, event.Actor{})
	require.NoError(t, err)
	_, err = o.LegalEntities(t.Context(), "acme/north") // now it is in memory
	require.NoError(t, err)
	_, err = o.LegalEntity(t.Context(), "acme", "north/DEMF")
	require.Equal(t, "legal_entity.not_found", code(t, err))
}

func TestLegalEntity_Input(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	for _, bad := range []string{"", "usmf", "US MF", "-US", "_US", "ÄMF", "US/MF", "USMF\n", strings.Repeat("A", 33)} {
		_, err := o.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: bad}, event.Actor{})
		f, _ := fault.As(err)
		require.NotNil(t, f, "%q", bad)
		require.Equal(t, []string{"legal_entity.code_invalid", "/code"}, []string{f.Code, f.Field}, "%q", bad)
	}
	for _, good := range []string{"A", "0", "US-MF_1", strings.Repeat("A", 32)} {
		_, err := o.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: good}, event.Actor{})
		require.NoError(t, err, good)
	}
	for _, bad := range []string{"Mars/Olympus", "../../etc/passwd", "CEST+2", "Local"} {
		_, err := o.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "ZONE", TimeZone: bad}, event.Actor{})
		f, _ := fault.As(err)
		require.NotNil(t, f, bad)
		require.Equal(t, []string{"legal_entity.time_zone_invalid", "/time_zone"}, []string{f.Code, f.Field}, bad)
	}
	le, err := o.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "ZONE", TimeZone: "Asia/Kathmandu", Name: "Himal", Status: "closed"}, event.Actor{})
	require.NoError(t, err)
	require.Equal(t, []string{"Himal", "Asia/Kathmandu", "active"}, []string{le.Name, le.TimeZone, le.Status})
}

func TestBootstrap(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock(start)
	store := memory.New(memory.Config{Clock: clock})
	s := tenancy.New(tenancy.Config{LegalEntities: store.Directory, Clock: clock, IDs: system.NewIDs()})
	bootstrap := func(logName string, deployment uint16) error {
		return tenancy.Bootstrap(t.Context(), store.Directory, clock, logName, deployment)
	}
	_, err := s.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "USMF"}, event.Actor{})
	require.Equal(t, "installation.not_bootstrapped", code(t, err))
	for _, bad := range []string{"", "a b", "a\nb", "a+b", strings.Repeat("x", 201)} {
		require.Equal(t, "installation.log_name_invalid", code(t, bootstrap(bad, 1)), "%q", bad)
	}
	require.Equal(t, "installation.deployment_invalid", code(t, bootstrap("ledger.example.org", 4096)))

	require.NoError(t, bootstrap("ledger.example.org", 4095))
	clock.Advance(time.Hour)
	require.NoError(t, bootstrap("ledger.example.org", 4095))
	require.Equal(t, "installation.log_name_fixed", code(t, bootstrap("other.example.org", 4095)))
	i, err := store.Directory.Installation(t.Context())
	require.NoError(t, err)
	require.Equal(t, ports.Installation{LogName: "ledger.example.org", Deployment: 4095, CreatedAt: start}, i)

	le, err := s.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "USMF"}, event.Actor{})
	require.NoError(t, err)
	require.EqualValues(t, 4095, le.Partition>>19)
	head, err := store.Events.Head(t.Context(), le.Partition)
	require.NoError(t, err)
	require.Equal(t, event.GenesisChecksum("ledger.example.org", le.Partition), head.Genesis)
}

func hrTypes(string) map[string]string {
	return map[string]string{"hr.employee.hired": "hr", "hr.employee.left": "hr", "crm.customer.created": "crm"}
}

func TestRights(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, func(c *tenancy.Config) {
		c.TypeOwners = hrTypes
		c.Owner = func(recordType string) string {
			if strings.HasPrefix(recordType, "ap.") {
				return "ap"
			}
			return ""
		}
	})
	for _, c := range []struct {
		roles  []string
		record string
		class  shredding.Class
		reads  bool
	}{
		{[]string{"ap_clerk"}, "ap.vendor.contact_set", shredding.Contact, true},
		{[]string{"ap_clerk"}, "ap.set_vendor_contact", shredding.Contact, true},
		{[]string{"ap_clerk"}, "ap.vendor.contact_set", shredding.Bank, false},
		{[]string{"ap_clerk"}, "hr.employee.hired", shredding.Contact, false},
		{[]string{"ap_clerk", "treasurer"}, "ap.vendor.contact_set", shredding.Bank, true},
		{[]string{"treasurer", "ap_clerk"}, "ap.vendor.contact_set", shredding.Identity, true},
		{[]string{"ap_clerk", "auditor"}, "ap.vendor.contact_set", shredding.Contact, false},
		{[]string{"module"}, "hr.employee.hired", shredding.Health, true},
		{[]string{"module"}, "hr.employee.hired", "", false},
		{[]string{"module"}, "", shredding.Health, false},
		{[]string{"module"}, "ap.vendor.contact_set", shredding.Contact, false},
		{nil, "hr.employee.hired", shredding.Contact, false},
	} {
		for range 2 { // asked, then kept
			p := ports.Principal{ActorType: event.Human, Roles: c.roles}
			if slices.ContainsFunc(c.roles, module.IsServiceRole) {
				p.ActorType, p.Binding = event.System, ports.Binding{Modules: []string{"hr", "ap"}, PIIClasses: shredding.Classes()}
			}
			r, err := o.Rights(t.Context(), p, nil)
			require.NoError(t, err)
			require.Equal(t, c.reads, r.Reads(c.record, c.class), "%v", c)
		}
	}
	for name, c := range map[string]struct {
		binding ports.Binding
		class   shredding.Class
		reads   bool
	}{
		"named class":              {ports.Binding{Modules: []string{"hr"}, PIIClasses: []shredding.Class{shredding.Health}}, shredding.Health, true},
		"class that was not named": {ports.Binding{Modules: []string{"hr"}, PIIClasses: []shredding.Class{shredding.Health}}, shredding.Bank, false},
		"no class":                 {ports.Binding{Modules: []string{"hr"}}, shredding.Health, false},
		"type of another module":   {ports.Binding{Modules: []string{"crm"}, PIIClasses: shredding.Classes()}, shredding.Health, false},
		"contracted type":          {ports.Binding{Modules: []string{"crm"}, ContractedTypes: []string{"hr.employee.hired"}, PIIClasses: shredding.Classes()}, shredding.Health, false},
		"not bound":                {ports.Binding{}, shredding.Health, false},
	} {
		r, err := o.Rights(t.Context(), ports.Principal{Roles: []string{"module"}, ActorType: event.System, Binding: c.binding}, nil)
		require.NoError(t, err)
		require.Equal(t, c.reads, r.Reads("hr.employee.hired", c.class), name)
	}
	r, err := newTenancyFixture(t, nil).Rights(t.Context(), ports.Principal{ActorType: event.System, Roles: []string{"module"}, Binding: ports.Binding{Modules: []string{"hr"}, PIIClasses: shredding.Classes()}}, nil)
	require.NoError(t, err)
	require.False(t, r.Reads("hr.employee.hired", shredding.Contact), "without a catalog the owner of a type is unknown")
}

func TestAuthorize_ErasureApproval(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	approve := func(kind event.ActorType, person, requester string) error {
		p := ports.Principal{Roles: []string{"compliance"}, ActorType: kind, PersonID: person}
		return o.Authorize(t.Context(), p, tenancy.Action{Name: "erasure.approve", Requester: requester})
	}
	require.NoError(t, approve(event.Human, "p-1", ""), "whether at all is asked before the request is known")
	require.NoError(t, approve(event.Human, "p-1", "p-2"))
	require.Equal(t, "erasure.same_person", code(t, approve(event.Human, "p-1", "p-1")))
	require.Equal(t, "auth.forbidden", code(t, approve(event.System, "p-1", "")))
	require.Contains(t, approve(event.System, "p-1", "p-2").Error(), "use a person's token")
}

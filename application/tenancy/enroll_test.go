package tenancy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// hrService is a sound service of the module hr that p-1 answers for.
func hrService() ports.Principal {
	return ports.Principal{
		TenantID: "acme", PersonID: "s-hr", ActorType: event.System, Roles: []string{"module"},
		Binding: ports.Binding{ResponsiblePerson: "p-1", Modules: []string{"hr"}, PIIClasses: []shredding.Class{shredding.Contact}},
	}
}

func TestEnroll_Services(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	o.enroll(t, ports.Principal{})
	o.enroll(t, ports.Principal{TenantID: "acme", PersonID: "p-gone", PrincipalID: "p-gone-1", ActorType: event.Human, ExpiresAt: start})
	o.enroll(t, ports.Principal{TenantID: "rival", PersonID: "p-rival", PrincipalID: "p-rival-1", ActorType: event.Human})
	sound := hrService()
	sound.PrincipalID = "s-hr-1"
	token, err := o.Enroll(t.Context(), sound)
	require.NoError(t, err)
	p, err := o.Authenticate(t.Context(), token)
	require.NoError(t, err)
	require.Equal(t, ports.TrustUnchecked, p.Binding.TrustLevel, "where none was given")
	require.Equal(t, []string{"hr"}, p.Binding.Modules)

	for name, c := range map[string]struct {
		change func(*ports.Principal)
		code   string
	}{
		"no responsible person":             {func(p *ports.Principal) { p.Binding.ResponsiblePerson = "" }, "principal.responsible_missing"},
		"unknown responsible person":        {func(p *ports.Principal) { p.Binding.ResponsiblePerson = "p-9" }, "principal.responsible_unknown"},
		"responsible person without access": {func(p *ports.Principal) { p.Binding.ResponsiblePerson = "p-gone" }, "principal.responsible_unknown"},
		"responsible person elsewhere":      {func(p *ports.Principal) { p.Binding.ResponsiblePerson = "p-rival" }, "principal.responsible_unknown"},
		"responsible service":               {func(p *ports.Principal) { p.Binding.ResponsiblePerson = "s-hr" }, "principal.responsible_unknown"},
		"no module":                         {func(p *ports.Principal) { p.Binding.Modules = nil }, "principal.module_missing"},
		"module without a name":             {func(p *ports.Principal) { p.Binding.Modules = []string{""} }, "principal.module_invalid"},
		"too many modules":                  {func(p *ports.Principal) { p.Binding.Modules = make([]string, 257) }, "principal.binding_too_large"},
		"contracted type without a name":    {func(p *ports.Principal) { p.Binding.ContractedTypes = []string{"crm.*"} }, "principal.type_invalid"},
		"class of personal data":            {func(p *ports.Principal) { p.Binding.PIIClasses = []shredding.Class{"hobbies"} }, "principal.pii_class_unknown"},
		"trust level":                       {func(p *ports.Principal) { p.Binding.TrustLevel = "blind" }, "principal.trust_level_unknown"},
		"person in the role of a service":   {func(p *ports.Principal) { p.ActorType, p.Binding = event.Human, ports.Binding{} }, "principal.role_of_service"},
		"person with modules":               {func(p *ports.Principal) { p.ActorType, p.Roles = event.Human, []string{"ap_clerk"} }, "principal.binding_of_person"},
	} {
		p := sound
		c.change(&p)
		_, err := o.Enroll(t.Context(), p)
		require.Equal(t, c.code, code(t, err), name)
	}
}

// A service from before services were bound: its row has no responsible person.
func TestAuthenticate_RefusesUnboundServices(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	token, hash := o.NewToken()
	require.NoError(t, o.directory.SavePrincipal(t.Context(), ports.Principal{
		TenantID: "acme", PersonID: "s-old", PrincipalID: "s-old-1", ActorType: event.System, Roles: []string{"module"}, TokenHash: hash,
	}, "", event.Actor{}))
	for range 2 { // also from memory
		_, err := o.Authenticate(t.Context(), token)
		require.Equal(t, "auth.service_unbound", code(t, err))
		require.Equal(t, fault.Forbidden, fault.KindOf(err))
	}
	o.enroll(t, ports.Principal{})
	old := hrService()
	old.PersonID, old.Roles = "s-old", nil
	_, token, renewed, err := o.Admit(t.Context(), nil, tenancy.Application{Principal: old, Renew: true})
	require.NoError(t, err)
	require.True(t, renewed)
	p, err := o.Authenticate(t.Context(), token)
	require.NoError(t, err)
	require.Equal(t, []string{"module"}, p.Roles)
	require.Equal(t, []string{"hr"}, p.Binding.Modules)
}

func TestSight(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, func(c *tenancy.Config) { c.TypeOwners = hrTypes })
	sight := o.Sight(ports.Principal{ActorType: event.Human, Roles: []string{"ap_clerk"}})
	require.True(t, sight.IsFull())
	sight = o.Sight(hrService())
	require.Equal(t, []string{"hr.employee.hired", "hr.employee.left"}, sight.Types())
	contracted := hrService()
	contracted.Binding.ContractedTypes = []string{"crm.customer.created"}
	sight = o.Sight(contracted)
	require.True(t, sight.Sees("crm.customer.created"))
	require.False(t, sight.Owns("crm.customer.created"), "a contract is for reading")
	unbound := hrService()
	unbound.Binding = ports.Binding{}
	sight = o.Sight(unbound)
	require.Empty(t, sight.Types())
	require.False(t, sight.Sees("unregistered.type"))
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	admin := ports.Principal{TenantID: "acme", PersonID: "p-admin", PrincipalID: "p-admin-1", ActorType: event.Human, Roles: []string{"admin"}}
	german := admin
	german.PersonID, german.PrincipalID, german.LegalEntities = "p-german", "p-german-1", []string{"DEMF", "FRMF"}
	for _, p := range []ports.Principal{admin, german} {
		o.enroll(t, p)
	}
	clerk := func(person string, entities ...string) ports.Principal {
		return ports.Principal{TenantID: "acme", PersonID: person, ActorType: event.Human, Roles: []string{"ap_clerk"}, LegalEntities: entities}
	}
	p, token, renewed, err := o.Admit(t.Context(), &admin, tenancy.Application{Principal: clerk("p-1")})
	require.NoError(t, err)
	require.False(t, renewed)
	require.Equal(t, start.Add(tenancy.TokenLifetime), p.ExpiresAt)
	_, err = o.Authenticate(t.Context(), token)
	require.NoError(t, err)
	_, _, _, err = o.Admit(t.Context(), &german, tenancy.Application{Principal: clerk("p-2", "DEMF")})
	require.NoError(t, err)

	service := hrService()
	service.Binding.ResponsiblePerson = "p-admin"
	for name, c := range map[string]struct {
		by   ports.Principal
		a    tenancy.Application
		code string
	}{
		"no role":                         {admin, tenancy.Application{Principal: ports.Principal{TenantID: "acme", PersonID: "p-3", ActorType: event.Human}}, "principal.role_missing"},
		"known":                           {admin, tenancy.Application{Principal: clerk("p-1")}, "principal.duplicate"},
		"unknown":                         {admin, tenancy.Application{Principal: clerk("p-3"), Renew: true}, "principal.not_found"},
		"all legal entities by some":      {german, tenancy.Application{Principal: clerk("p-3")}, "auth.forbidden"},
		"one legal entity too many":       {german, tenancy.Application{Principal: clerk("p-3", "DEMF", "USMF")}, "auth.forbidden"},
		"a wider principal made narrower": {german, tenancy.Application{Principal: clerk("p-1", "DEMF"), Renew: true}, "auth.forbidden"},
		"a narrower one made wider":       {german, tenancy.Application{Principal: clerk("p-2"), Renew: true, Everywhere: true}, "auth.forbidden"},
		"themselves":                      {admin, tenancy.Application{Principal: clerk("p-admin"), Renew: true}, "auth.forbidden"},
		"a service of their own":          {admin, tenancy.Application{Principal: service}, "auth.forbidden"},
		"by a clerk":                      {clerk("p-1"), tenancy.Application{Principal: clerk("p-3")}, "auth.forbidden"},
		"a person who becomes a service":  {admin, tenancy.Application{Principal: ports.Principal{TenantID: "acme", PersonID: "p-1", ActorType: event.System, Roles: []string{"module"}}, Renew: true, KindGiven: true}, "principal.kind_differs"},
	} {
		_, token, _, err := o.Admit(t.Context(), &c.by, c.a)
		require.Equal(t, c.code, code(t, err), name)
		require.Empty(t, token, name)
	}
	_, _, renewed, err = o.Admit(t.Context(), nil, tenancy.Application{Principal: ports.Principal{TenantID: "acme", PersonID: "p-admin", ActorType: event.Human}, Renew: true})
	require.NoError(t, err, "the operator of the installation may renew any access")
	require.True(t, renewed)
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	admin := ports.Principal{TenantID: "acme", PersonID: "p-admin", PrincipalID: "p-admin-1", ActorType: event.Human, Roles: []string{"admin"}}
	german := admin
	german.PersonID, german.PrincipalID, german.LegalEntities = "p-german", "p-german-1", []string{"DEMF"}
	for _, p := range []ports.Principal{admin, german} {
		o.enroll(t, p)
	}
	token := o.enroll(t, ports.Principal{})
	_, err := o.Authenticate(t.Context(), token)
	require.NoError(t, err)
	clerk := admin
	clerk.Roles = []string{"ap_clerk"}
	for name, c := range map[string]struct {
		by             ports.Principal
		person, reason string
		code           string
	}{
		"themselves":         {admin, "p-admin", "a mistake", "auth.forbidden"},
		"beyond their own":   {german, "p-1", "left", "auth.forbidden"},
		"by a clerk":         {clerk, "p-1", "left", "auth.forbidden"},
		"unknown":            {admin, "p-9", "left", "principal.not_found"},
		"reason with a mail": {admin, "p-1", "wrote from ada@example.org", "pii.in_text"},
	} {
		require.Equal(t, c.code, code(t, o.Revoke(t.Context(), &c.by, "acme", c.person, c.reason)), name)
	}
	_, err = o.Authenticate(t.Context(), token)
	require.NoError(t, err)
	require.NoError(t, o.Revoke(t.Context(), &admin, "acme", "p-1", "left"))
	_, err = o.Authenticate(t.Context(), token)
	require.Equal(t, "auth.token_invalid", code(t, err))
}

// A person may have several logins, and a change may end each of them: an administrator of some
// legal entities changes nothing of a person who has a login beyond these, wherever it stands.
func TestAdmit_PersonWithWiderLogin(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	german := ports.Principal{TenantID: "acme", PersonID: "p-german", PrincipalID: "p-german-1", ActorType: event.Human, Roles: []string{"admin"}, LegalEntities: []string{"DEMF"}}
	o.enroll(t, german)
	first := ports.Principal{TenantID: "acme", PersonID: "p-1", PrincipalID: "p-1-1", ActorType: event.Human, Roles: []string{"ap_clerk"}, LegalEntities: []string{"DEMF"}}
	o.enroll(t, first)
	require.NoError(t, o.Review(t.Context(), &german, "acme", "p-1", 0, "needed"))
	wide := first
	wide.PrincipalID, wide.LegalEntities = "p-1-2", nil
	token := o.enroll(t, wide)

	_, _, _, err := o.Admit(t.Context(), &german, tenancy.Application{Principal: first, Renew: true})
	require.Equal(t, "auth.forbidden", code(t, err))
	require.Equal(t, "auth.forbidden", code(t, o.Review(t.Context(), &german, "acme", "p-1", 0, "needed")))
	require.Equal(t, "auth.forbidden", code(t, o.Revoke(t.Context(), &german, "acme", "p-1", "left")))
	_, err = o.Authenticate(t.Context(), token)
	require.NoError(t, err)
}

// What a service reads belongs to its modules, so a renewal keeps or replaces them together.
func TestAdmit_RenewsServices(t *testing.T) {
	t.Parallel()
	o := newTenancyFixture(t, nil)
	o.enroll(t, ports.Principal{})
	_, _, _, err := o.Admit(t.Context(), nil, tenancy.Application{Principal: hrService()})
	require.NoError(t, err)
	o.clock.Advance(time.Second)
	renewal := func(b ports.Binding) (ports.Principal, error) {
		p, _, _, err := o.Admit(t.Context(), nil, tenancy.Application{Principal: ports.Principal{TenantID: "acme", PersonID: "s-hr", ActorType: event.Human, Binding: b}, Renew: true})
		return p, err
	}
	p, err := renewal(ports.Binding{TrustLevel: ports.TrustOfficial})
	require.NoError(t, err)
	require.Equal(t, ports.Binding{ResponsiblePerson: "p-1", Modules: []string{"hr"}, PIIClasses: []shredding.Class{shredding.Contact}, TrustLevel: ports.TrustOfficial}, p.Binding)
	p, err = renewal(ports.Binding{Modules: []string{"crm"}})
	require.NoError(t, err)
	require.Empty(t, p.Binding.PIIClasses)
	_, err = renewal(ports.Binding{PIIClasses: []shredding.Class{shredding.Bank}})
	require.Equal(t, "principal.module_missing", code(t, err))
}

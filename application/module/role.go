package module

import (
	"regexp"
	"slices"

	"github.com/erpbackbone/backbone/domain/shredding"
)

// Role is a kind of person or agent that works with modules. Its holders may use the API
// as all business roles may: submit intents, read events, entities, streams and reports,
// and subscribe. Which intents they may submit or approve is decided by the policies of
// the intents' modules, which name roles of their own and of other modules.
type Role struct {
	Name        string // lower-case letters, digits and underscores: "ap_clerk"
	Description string
	Approves    bool              // may decide on intents that wait for approval
	Reads       []shredding.Class // classes of personal data of the modules' event types that it reads in clear
	Persona     string            // display name of the role's holder in `backbone dev`; "" is the role's name
}

// The access policy fixes the rights of these roles, so no module may declare them:
// services that write events and documents, and the roles that run and audit an
// installation.
var (
	serviceRoles   = []string{"module", "importer"}
	platformRoles  = []string{"auditor", "compliance", "compliance_approver", "admin", "operator"}
	roleName       = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	maxRoleNameLen = 64
)

// IsServiceRole reports whether a role is for services only.
func IsServiceRole(name string) bool { return slices.Contains(serviceRoles, name) }

// Roles declares roles.
func (r *Registrar) Roles(roles ...Role) {
	for _, role := range roles {
		r.role(role)
	}
}

func (r *Registrar) role(role Role) {
	if !roleName.MatchString(role.Name) || len(role.Name) > maxRoleNameLen {
		r.fail("role %q: a name has at most %d lower-case letters, digits and underscores, and begins with a letter", role.Name, maxRoleNameLen)
	}
	if slices.Contains(serviceRoles, role.Name) || slices.Contains(platformRoles, role.Name) {
		r.fail("role %s belongs to the platform", role.Name)
	}
	for _, class := range role.Reads {
		if !class.Valid() {
			r.fail("role %s reads %q, which is no class of personal data", role.Name, class)
		}
	}
	for _, have := range r.catalog.Roles {
		if have.Name == role.Name {
			r.fail("role %s is declared twice", role.Name)
		}
	}
	r.catalog.Roles = append(r.catalog.Roles, role)
}

// RoleNames lists all roles that a principal may hold: those of the platform and those
// that modules declare.
func (c *Catalog) RoleNames() []string {
	names := slices.Clone(serviceRoles)
	for _, role := range c.Roles {
		names = append(names, role.Name)
	}
	return append(names, platformRoles...)
}

// rights is the entry of a role in the access policy's document data.roles.
type rights struct {
	Approves bool              `json:"approves"`
	Reads    []shredding.Class `json:"reads"`
}

// RoleRights is the document data.roles of the access policy: the declared roles by name.
func (c *Catalog) RoleRights() any {
	out := make(map[string]rights, len(c.Roles))
	for _, role := range c.Roles {
		out[role.Name] = rights{Approves: role.Approves, Reads: append([]shredding.Class{}, role.Reads...)}
	}
	return out
}

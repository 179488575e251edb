package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// installation is the set-up before the first server starts: a migrated
// database with separate keys, and a tenant with an administrator.
type installation struct {
	owner, app string   // DSNs
	env        []string // of commands and servers
	admin      string   // token
}

// install makes an installation with a key server inside its processes, and further settings.
func install(t *testing.T, settings ...string) *installation {
	t.Helper()
	return installWith(t, append(newKeySettings(t), settings...)...)
}

// installWith makes an installation with settings, those of a key service among them. TestServe has
// the commands that make one; here it is a copy of the first.
func installWith(t *testing.T, settings ...string) *installation {
	t.Helper()
	needPostgres(t)
	i := &installation{owner: testkit.Database(t, func(_ context.Context, owner string) error {
		if migrated := command(t, nil, "migrate", "--dsn", owner); migrated.code != 0 {
			return fmt.Errorf("migrate: %v", migrated)
		}
		made := command(t, []string{"BACKBONE_DATABASE_DSN=" + asApplication(t, owner)}, "bootstrap", "--tenant", "acme", "--admin", "p-0001", "--log-name", "ledger.example.org")
		if made.code != 0 {
			return fmt.Errorf("bootstrap: %v", made)
		}
		installed.server, installed.admin = testkit.Server(t), strings.TrimSpace(made.stdout)
		return nil
	}, installed.template)}
	i.admin = installed.admin
	i.app = asApplication(t, i.owner)
	i.env = append([]string{"BACKBONE_DATABASE_DSN=" + i.app, "BACKBONE_DATABASE_ERASER_DSN=" + asEraser(t, i.owner)}, settings...)
	return i
}

// installed is the template of installations. Its name is that of this run, which alone knows the token.
var installed = struct{ server, template, admin string }{template: "e2e_installed_" + strings.ToLower(rand.Text())}

// dropInstalled drops the template at the end of the run.
func dropInstalled() error {
	if installed.admin == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	return testkit.DropTemplate(ctx, installed.server, installed.template)
}

// serviceFlags are the flags that enroll a service for the modules of the tests, for which a
// person answers.
func serviceFlags(responsible string) []string {
	return []string{"--responsible", responsible, "--module", "equipment,hr,crm,fleet,ap", "--pii-class", "contact,identity,bank,tax,health,free_text"}
}

// enroll enrolls a person or service with the command, and returns the token.
func (i *installation) enroll(t *testing.T, person, role string, more ...string) string {
	t.Helper()
	if slices.Contains(more, "--service") {
		more = append(more, serviceFlags("p-0001")...)
	}
	r := command(t, i.env, append([]string{"enroll", "--tenant", "acme", "--person", person, "--role", role}, more...)...)
	require.Zero(t, r.code, r)
	return strings.TrimSpace(r.stdout)
}

// enroll enrolls a person as an administrator, and returns the token. It costs a twentieth of the command,
// which is a process with connections of its own.
func (c client) enroll(t *testing.T, person, role string) string {
	t.Helper()
	var enrolled struct {
		Token string `json:"token"`
	}
	require.NoError(t, c.want(http.StatusCreated, &enrolled, "POST", "/api/admin/principals", fmt.Sprintf(`{"person_id":%q,"kind":"person","roles":[%q]}`, person, role)))
	return enrolled.Token
}

// serve starts a server with further settings.
func (i *installation) serve(t *testing.T, settings ...string) (*process, client) {
	t.Helper()
	return startServe(t, i.app, append(i.env[:len(i.env):len(i.env)], settings...)...)
}

// machines lets a server know the type that the tests write.
func (i *installation) machines(t *testing.T, server string) {
	t.Helper()
	registerMachines(t, &dev{devFile: devFile{HTTP: server, Tokens: map[string]string{"admin": i.admin}}})
}

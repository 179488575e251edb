package e2e

import (
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

// installWith makes an installation with settings, those of a key service among them.
func installWith(t *testing.T, settings ...string) *installation {
	t.Helper()
	needPostgres(t)
	i := &installation{owner: testkit.Database(t, nil, "e2e_empty")}
	i.app = asApplication(t, i.owner)
	i.env = append([]string{"BACKBONE_DATABASE_DSN=" + i.app, "BACKBONE_DATABASE_ERASER_DSN=" + asEraser(t, i.owner)}, settings...)
	migrated := command(t, nil, "migrate", "--dsn", i.owner)
	require.Zero(t, migrated.code, migrated)
	made := command(t, i.env, "bootstrap", "--tenant", "acme", "--admin", "p-0001", "--log-name", "ledger.example.org")
	require.Zero(t, made.code, made)
	i.admin = strings.TrimSpace(made.stdout)
	return i
}

// serviceFlags are the flags that enroll a service for the modules of the tests, for which a
// person answers.
func serviceFlags(responsible string) []string {
	return []string{"--responsible", responsible, "--module", "equipment,hr,crm,fleet,ap", "--pii-class", "contact,identity,bank,tax,health,free_text"}
}

// enroll enrolls a person and returns the token.
func (i *installation) enroll(t *testing.T, person, role string, more ...string) string {
	t.Helper()
	if slices.Contains(more, "--service") {
		more = append(more, serviceFlags("p-0001")...)
	}
	r := command(t, i.env, append([]string{"enroll", "--tenant", "acme", "--person", person, "--role", role}, more...)...)
	require.Zero(t, r.code, r)
	return strings.TrimSpace(r.stdout)
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

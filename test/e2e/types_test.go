package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestTypesCommand takes an event type from files through registration, change,
// deprecation and reactivation on the command line.
func TestTypesCommand(t *testing.T) {
	t.Parallel()
	const entity, name = "TYPX", "fleet.truck.fuelled"
	d := sharedDev(t)
	newEntity(t, d, entity)
	types := func(persona string, args ...string) result {
		return d.as(t, persona).command(t, append([]string{"types"}, args...)...)
	}
	dir := t.TempDir()
	file := func(version int, schema string) string {
		path := filepath.Join(dir, fmt.Sprintf("%s.v%d.json", name, version))
		text := fmt.Sprintf(`{"type":%q,"schema_version":%d,"module":"fleet","data_schema":%s}`, name, version, schema)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	fuelled := func(data string) answer {
		a, err := d.as(t, "module").do("POST", "/api/events", fmt.Sprintf(
			`{"events":[{"type":%q,"scope":{"legal_entity":%q},"stream":{"type":"truck","id":"T-1"},"data":%s}]}`, name, entity, data))
		require.NoError(t, err)
		return a
	}

	file(1, `{"type":"object","additionalProperties":false,"required":["litres"],"properties":{"litres":{"type":"number"}}}`)
	r := types("admin", "push", dir)
	require.Zero(t, r.code, r)
	require.Contains(t, r.stdout, "Registered 1, unchanged 0.")
	require.Equal(t, http.StatusCreated, fuelled(`{"litres":40}`).status)

	second := file(2, `{"type":"object","additionalProperties":false,"required":["litres","fuel"],"properties":{"litres":{"type":"number"},"fuel":{"type":"string"}}}`)
	r = types("module", "check", second)
	require.Equal(t, 1, r.code, r)
	require.Contains(t, r.stdout, "REFUSED  required_added /data_schema/properties/fuel")
	r = types("admin", "push", dir)
	require.Equal(t, 1, r.code, r)
	require.Contains(t, r.stderr, "types.refused")
	require.Equal(t, http.StatusCreated, fuelled(`{"litres":41}`).status, "nothing was registered")

	file(2, `{"type":"object","additionalProperties":false,"required":["litres","fuel"],"properties":{"litres":{"type":"number"},"fuel":{"type":"string","default":"diesel"}}}`)
	r = types("admin", "push", dir, "--dry-run")
	require.Zero(t, r.code, r)
	require.NotContains(t, r.stdout, "Registered")
	r = types("admin", "push", dir)
	require.Zero(t, r.code, r)
	require.Contains(t, r.stdout, "Registered 1, unchanged 1.")
	require.Equal(t, http.StatusCreated, fuelled(`{"litres":42,"fuel":"diesel"}`).status)

	pulled := t.TempDir()
	for _, want := range []string{"written   " + name + ".v2.json", "Written 0,"} {
		testkit.Eventually(t, endTime, func() bool { // other tests register types too
			r = types("auditor", "pull", pulled)
			require.Zero(t, r.code, r)
			return strings.Contains(r.stdout, want)
		}, want)
	}
	require.NoFileExists(t, filepath.Join(pulled, "gl.journal.posted.v1.json"), "comes with the program")

	r = types("module", "deprecate", name)
	require.Equal(t, 1, r.code, r)
	require.Contains(t, r.stderr, "auth.forbidden")
	r = types("admin", "deprecate", name, "--reason", "Trucks are sold.")
	require.Zero(t, r.code, r)
	require.Equal(t, http.StatusCreated, fuelled(`{"litres":43,"fuel":"diesel"}`).status, "proposed only")
	r = types("admin", "confirm", name)
	require.Equal(t, 1, r.code, r)
	require.Contains(t, r.stderr, "event_type.same_person")
	r = types("second_admin", "confirm", name)
	require.Zero(t, r.code, r)
	a := fuelled(`{"litres":43,"fuel":"diesel"}`)
	require.Equal(t, http.StatusUnprocessableEntity, a.status, a)
	require.Equal(t, "event_type.deprecated", a.code())
	r = types("admin", "reactivate", name, "--schema-version", "2")
	require.Zero(t, r.code, r)
	r = types("second_admin", "confirm", name)
	require.Zero(t, r.code, r)
	require.Equal(t, http.StatusCreated, fuelled(`{"litres":43,"fuel":"diesel"}`).status)
	r = types("auditor", "history", name)
	require.Zero(t, r.code, r)
	require.Regexp(t, `2 +deprecation_proposed +\S+ +[0-9a-f]{12} +Trucks are sold\.`, r.stdout)
	require.Regexp(t, `2 +reactivated`, r.stdout)
	r = types("auditor", "history")
	require.Zero(t, r.code, r)
	require.Regexp(t, name+` +2 +reactivated`, r.stdout)
	require.Regexp(t, `gl\.journal\.posted +1 +registered +module:general_ledger`, r.stdout)
	r = types("admin", "deprecate", "gl.journal.posted")
	require.Equal(t, 1, r.code, r)
	require.Contains(t, r.stderr, "event_type.owned_by_module")
}

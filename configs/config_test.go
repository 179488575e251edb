package configs

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/stretchr/testify/require"
)

func noEnvironment() []string { return nil }

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backbone.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestSampleFileShowsEveryDefault(t *testing.T) {
	t.Parallel()
	c, err := load("backbone.example.yaml", noEnvironment)
	require.NoError(t, err)
	require.Equal(t, Default(), c)

	k := koanf.New(".")
	require.NoError(t, k.Load(file.Provider("backbone.example.yaml"), yaml.Parser()))
	shown := k.Keys()
	require.ElementsMatch(t, slices.Collect(maps.Keys(fieldsOf(&c))), shown)
}

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	c, err := load("", noEnvironment)
	require.NoError(t, err)
	require.Equal(t, Default(), c)
	require.NotEmpty(t, Version)
}

func TestEnvironmentWinsOverFileOverDefaults(t *testing.T) {
	t.Parallel()
	path := written(t, "http:\n  listen: 127.0.0.1:9000\n  read_timeout: 5s\ndatabase:\n  read_pool: 3\nlimits:\n")
	c, err := load(path, func() []string {
		return []string{
			"BACKBONE_HTTP_LISTEN=127.0.0.1:9001", "BACKBONE_DATABASE_OWNER_DSN=postgres://o:pw@h/db?a=b", "BACKBONE_INTAKE_RETRIES=10ms, 1s",
			"BACKBONE_LIMITS_BATCH_EVENTS=7", "BACKBONE_TOKEN=bbk_x", "BACKBONE_SERVER=http://x", "HTTP_LISTEN=nothing", "BACKBONE_LOG_LEVEL=debug", "BACKBONE_=x", "BACKBONE_HTTP=x:1",
		}
	})
	require.Error(t, err) // BACKBONE_HTTP names a section
	require.Equal(t, Config{}, c)

	c, err = load(path, func() []string {
		return []string{
			"BACKBONE_HTTP_LISTEN=127.0.0.1:9001", "BACKBONE_DATABASE_OWNER_DSN=postgres://o:pw@h/db?a=b", "BACKBONE_INTAKE_RETRIES=10ms, 1s",
			"BACKBONE_LIMITS_BATCH_EVENTS=7", "BACKBONE_TOKEN=bbk_x", "BACKBONE_SERVER=http://x", "HTTP_LISTEN=nothing", "BACKBONE_LOG_LEVEL=debug",
		}
	})
	require.NoError(t, err)
	want := Default()
	want.HTTP.Listen, want.HTTP.ReadTimeout = "127.0.0.1:9001", 5*time.Second
	want.Database.ReadPool, want.Database.OwnerDSN = 3, "postgres://o:pw@h/db?a=b"
	want.Limits.BatchEvents = 7
	want.Intake.Retries = []time.Duration{10 * time.Millisecond, time.Second}
	want.Log.Level = "debug"
	require.Equal(t, want, c)

	c, err = load("", func() []string {
		return []string{"BACKBONE_KMS_ALLOW_LOCAL=true", "BACKBONE_KMS_LOCAL_DIRECTORY=/keys"}
	})
	require.NoError(t, err)
	require.True(t, c.KMS.AllowLocal)
	require.True(t, c.KMS.Configured())

	c, err = load(written(t, "intake:\n  retries: []\n"), noEnvironment)
	require.NoError(t, err)
	require.Empty(t, c.Intake.Retries)
}

func TestLoadReadsTheProcessEnvironment(t *testing.T) {
	t.Setenv("BACKBONE_PROJECTOR_BATCH", "42")
	c, err := Load("")
	require.NoError(t, err)
	require.Equal(t, 42, c.Projector.Batch)
}

func TestErrorsNameTheKeyAndNotTheValue(t *testing.T) {
	t.Parallel()
	for text, key := range map[string]string{
		"http:\n  lisen: x\n":                            "http.lisen",
		"htp:\n  listen: x\n":                            "htp.listen",
		"http: SECRET\n":                                 "http",
		"http:\n  listen: SECRET\n":                      "http.listen",
		"http:\n  listen: 127.0.0.1:SECRET\n":            "http.listen",
		"http:\n  listen: 127.0.0.1:99999\n":             "http.listen",
		"http:\n  read_timeout: 5\n":                     "http.read_timeout",
		"http:\n  read_timeout: SECRET\n":                "http.read_timeout",
		"http:\n  read_timeout: -5s\n":                   "http.read_timeout",
		"http:\n  body_limit_bytes: 1.5\n":               "http.body_limit_bytes",
		"http:\n  body_limit_bytes: 4 MiB\n":             "http.body_limit_bytes",
		"database:\n  dsn: 5\n":                          "database.dsn",
		"database:\n  dsn: {SECRET: 1}\n":                "database.dsn.SECRET",
		"database:\n  appenders: 0\n":                    "database.appenders",
		"engine:\n  partition_requests: 5000\n":          "engine.partition_requests",
		"engine:\n  lease_lock_timeout: 6s\n":            "engine.lease_lock_timeout",
		"engine:\n  one_partition_per_group: SECRET\n":   "engine.one_partition_per_group",
		"policy:\n  cached_decisions: 0\n":               "policy.cached_decisions",
		"subscriptions:\n  orphans: 1s\n":                "subscriptions.orphans",
		"limits:\n  depth: 33\n":                         "limits.depth",
		"limits:\n  nodes: true\n":                       "limits.nodes",
		"intake:\n  retries: 50\n":                       "intake.retries",
		"intake:\n  retries: [50]\n":                     "intake.retries",
		"intake:\n  retries: [1h]\n":                     "intake.retries",
		"idempotency:\n  ttl: 1s\n":                      "idempotency.ttl",
		"kms:\n  allow_local: SECRET\n":                  "kms.allow_local",
		"kms:\n  endpoint: SECRET\n":                     "kms.endpoint",
		"kms:\n  region: x\n  local_directory: SECRET\n": "kms.local_directory",
		"rotation:\n  at: SECRET\n":                      "rotation.at",
		"rotation:\n  at: 25:00\n":                       "rotation.at",
		"rotation:\n  deletion_days: 6\n":                "rotation.deletion_days",
		"erasure:\n  gate_interval: 2m\n":                "erasure.gate_interval",
		"node:\n  id: SECRET NAME\n":                     "node.id",
		"delivery:\n  listen: SECRET\n":                  "delivery.listen",
		"delivery:\n  poll: 1ms\n":                       "delivery.poll",
		"feeds:\n  per_node: 0\n":                        "feeds.per_node",
		"feeds:\n  review: 1h\n":                         "feeds.review",
		"feeds:\n  origins: [https://SECRET/]\n":         "feeds.origins",
		"feeds:\n  origins: [7]\n":                       "feeds.origins",
		"log:\n  level: SECRET\n":                        "log.level",
		"log:\n  format: xml\n":                          "log.format",
		"telemetry:\n  otlp_endpoint: http://SECRET/x\n": "telemetry.otlp_endpoint",
	} {
		_, err := load(written(t, text), noEnvironment)
		var e *Error
		require.ErrorAs(t, err, &e, text)
		require.Equal(t, key, e.Key, text)
		require.NotContains(t, e.Problem, "SECRET")
		require.True(t, strings.HasPrefix(err.Error(), "configuration: "+key+" "), err)
	}
	for variable, key := range map[string]string{
		"BACKBONE_HTTP_LISEN=SECRET": "BACKBONE_HTTP_LISEN", "BACKBONE_DATABASE_READ_POOL=SECRET": "database.read_pool", "BACKBONE_HTTP=SECRET": "BACKBONE_HTTP",
	} {
		_, err := load("", func() []string { return []string{variable} })
		var e *Error
		require.ErrorAs(t, err, &e, variable)
		require.Equal(t, key, e.Key)
		require.NotContains(t, err.Error(), "SECRET")
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "none.yaml"), written(t, "a: [\n"), written(t, "- x\n")} {
		_, err := load(path, noEnvironment)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Empty(t, e.Key)
	}
}

func TestDSNDoesNotPrint(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Database.DSN = "postgres://app:hunter2@localhost/db"
	text, err := json.Marshal(c)
	require.NoError(t, err)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("start", "database", c.Database, "dsn", c.Database.DSN)
	for _, printed := range []string{string(text), log.String(), fmt.Sprint(c), fmt.Sprintf("%+v %#v %q %x %s", c, c.Database, c.Database.DSN, c.Database.DSN, c.Database.DSN)} {
		require.NotContains(t, printed, "hunter2")
	}
	require.Equal(t, "postgres://app:hunter2@localhost/db", c.Database.DSN.Reveal())
}

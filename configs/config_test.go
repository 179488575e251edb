package configs

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
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

// settingsFile writes a configuration file.
func settingsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backbone.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestExampleFile(t *testing.T) {
	t.Parallel()
	c, err := load("backbone.example.yaml", noEnvironment)
	require.NoError(t, err)
	require.Equal(t, Default(), c)

	k := koanf.New(".")
	require.NoError(t, k.Load(file.Provider("backbone.example.yaml"), yaml.Parser()))
	require.ElementsMatch(t, slices.Collect(maps.Keys(fieldsOf(&c))), k.Keys())
}

func TestDefault(t *testing.T) {
	t.Parallel()
	c, err := load("", noEnvironment)
	require.NoError(t, err)
	require.Equal(t, Default(), c)
	require.NotEmpty(t, Version)
}

func TestLoad(t *testing.T) {
	t.Parallel()
	file := settingsFile(t, "http:\n  listen: 127.0.0.1:9000\n  read_timeout: 5s\ndatabase:\n  read_pool: 3\nlimits:\n")
	environment := []string{
		"BACKBONE_HTTP_LISTEN=127.0.0.1:9001", "BACKBONE_DATABASE_OWNER_DSN=postgres://o:pw@h/db?a=b", "BACKBONE_INTAKE_RETRIES=10ms, 1s",
		"BACKBONE_LIMITS_BATCH_EVENTS=7", "BACKBONE_TOKEN=bbk_x", "BACKBONE_SERVER=http://x", "HTTP_LISTEN=nothing", "BACKBONE_LOG_LEVEL=debug",
		"BACKBONE_GLOBAL_LOG_EXPORT_INTERVAL=1m", "BACKBONE_keystore_pool=5",
	}
	t.Run("environment wins over file and file over defaults", func(t *testing.T) {
		t.Parallel()
		c, err := load(file, func() []string { return environment })
		require.NoError(t, err)
		want := Default()
		want.HTTP.Listen, want.HTTP.ReadTimeout = "127.0.0.1:9001", 5*time.Second
		want.Database.ReadPool, want.Database.OwnerDSN = 3, "postgres://o:pw@h/db?a=b"
		want.Limits.BatchEvents = 7
		want.Intake.Retries = []time.Duration{10 * time.Millisecond, time.Second}
		want.Log.Level = "debug"
		want.GlobalLog.ExportInterval, want.KeyStore.Pool = time.Minute, 5
		require.Equal(t, want, c)
	})
	t.Run("variable that names a section is refused", func(t *testing.T) {
		t.Parallel()
		c, err := load(file, func() []string { return append([]string{"BACKBONE_=x", "BACKBONE_HTTP=x:1"}, environment...) })
		require.Error(t, err)
		require.Equal(t, Config{}, c)
	})
	t.Run("key service from the environment", func(t *testing.T) {
		t.Parallel()
		c, err := load("", func() []string {
			return []string{"BACKBONE_KMS_ALLOW_LOCAL=true", "BACKBONE_KMS_LOCAL_DIRECTORY=/keys"}
		})
		require.NoError(t, err)
		require.True(t, c.KMS.AllowLocal)
		require.True(t, c.KMS.Configured())
	})
	t.Run("empty list", func(t *testing.T) {
		t.Parallel()
		c, err := load(settingsFile(t, "intake:\n  retries: []\n"), noEnvironment)
		require.NoError(t, err)
		require.Empty(t, c.Intake.Retries)
	})
	t.Run("broker and webhooks from the environment", func(t *testing.T) {
		t.Parallel()
		c, err := load("", func() []string {
			return []string{envPrefix + "NATS_URLS=nats://u:secret@a:4222", envPrefix + "WEBHOOK_ALLOWED_NETWORKS=10.1.2.3/16"}
		})
		require.NoError(t, err)
		require.True(t, c.NATS.Configured())
		require.NotContains(t, c.NATS.URLs.String(), "secret")
		require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, c.Webhook.Networks())
		require.False(t, Default().NATS.Configured())
	})
}

func TestLoadProcessEnvironment(t *testing.T) {
	t.Setenv("BACKBONE_PROJECTOR_BATCH", "42")
	c, err := Load("")
	require.NoError(t, err)
	require.Equal(t, 42, c.Projector.Batch)
}

// TestLoadRefuses checks that an error names the key of the wrong setting and not its value.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for text, key := range map[string]string{
		"http:\n  lisen: x\n":                                   "http.lisen",
		"htp:\n  listen: x\n":                                   "htp.listen",
		"http: SECRET\n":                                        "http",
		"http:\n  listen: SECRET\n":                             "http.listen",
		"http:\n  listen: 127.0.0.1:SECRET\n":                   "http.listen",
		"http:\n  listen: 127.0.0.1:99999\n":                    "http.listen",
		"http:\n  read_timeout: 5\n":                            "http.read_timeout",
		"http:\n  read_timeout: SECRET\n":                       "http.read_timeout",
		"http:\n  read_timeout: -5s\n":                          "http.read_timeout",
		"http:\n  body_limit_bytes: 1.5\n":                      "http.body_limit_bytes",
		"http:\n  body_limit_bytes: 4 MiB\n":                    "http.body_limit_bytes",
		"database:\n  dsn: 5\n":                                 "database.dsn",
		"database:\n  dsn: {SECRET: 1}\n":                       "database.dsn.SECRET",
		"database:\n  appenders: 0\n":                           "database.appenders",
		"engine:\n  partition_requests: 5000\n":                 "engine.partition_requests",
		"engine:\n  lease_lock_timeout: 6s\n":                   "engine.lease_lock_timeout",
		"engine:\n  one_partition_per_group: SECRET\n":          "engine.one_partition_per_group",
		"policy:\n  cached_decisions: 0\n":                      "policy.cached_decisions",
		"subscriptions:\n  orphans: 1s\n":                       "subscriptions.orphans",
		"limits:\n  depth: 33\n":                                "limits.depth",
		"limits:\n  nodes: true\n":                              "limits.nodes",
		"intake:\n  retries: 50\n":                              "intake.retries",
		"intake:\n  retries: [50]\n":                            "intake.retries",
		"intake:\n  retries: [1h]\n":                            "intake.retries",
		"idempotency:\n  ttl: 1s\n":                             "idempotency.ttl",
		"intake:\n  cached_streams: 0\n":                        "intake.cached_streams",
		"vault:\n  key_life: 61s\n":                             "vault.key_life",
		"vault:\n  cached_keys: 0\n":                            "vault.cached_keys",
		"kms:\n  tries: 0\n":                                    "kms.tries",
		"kms:\n  call_wait: 0s\n":                               "kms.call_wait",
		"keystore:\n  pool: 0\n":                                "keystore.pool",
		"rotation:\n  workers: 0\n":                             "rotation.workers",
		"kms:\n  allow_local: SECRET\n":                         "kms.allow_local",
		"kms:\n  endpoint: SECRET\n":                            "kms.endpoint",
		"kms:\n  region: x\n  local_directory: SECRET\n":        "kms.local_directory",
		"rotation:\n  at: SECRET\n":                             "rotation.at",
		"rotation:\n  at: 25:00\n":                              "rotation.at",
		"rotation:\n  deletion_days: 6\n":                       "rotation.deletion_days",
		"erasure:\n  gate_interval: 2m\n":                       "erasure.gate_interval",
		"node:\n  id: SECRET NAME\n":                            "node.id",
		"delivery:\n  listen: SECRET\n":                         "delivery.listen",
		"delivery:\n  poll: 1ms\n":                              "delivery.poll",
		"feeds:\n  per_node: 0\n":                               "feeds.per_node",
		"feeds:\n  review: 1h\n":                                "feeds.review",
		"feeds:\n  origins: [https://SECRET/]\n":                "feeds.origins",
		"feeds:\n  origins: [7]\n":                              "feeds.origins",
		"mirror:\n  lock: 24h\n":                                "mirror.lock",
		"mirror:\n  directory: /x\narchive:\n  directory: /x\n": "mirror.directory",
		"mirror:\n  tries: 0\n":                                 "mirror.tries",
		"log:\n  level: SECRET\n":                               "log.level",
		"log:\n  format: xml\n":                                 "log.format",
		"telemetry:\n  otlp_endpoint: http://SECRET/x\n":        "telemetry.otlp_endpoint",
	} {
		_, err := load(settingsFile(t, text), noEnvironment)
		var e *Error
		require.ErrorAs(t, err, &e, text)
		require.Equal(t, key, e.Key, text)
		require.NotContains(t, e.Problem, "SECRET")
		require.True(t, strings.HasPrefix(err.Error(), "configuration: "+key+" "), err)
	}
	for variable, key := range map[string]string{
		"BACKBONE_HTTP_LISEN=SECRET": "BACKBONE_HTTP_LISEN", "BACKBONE_DATABASE_READ_POOL=SECRET": "database.read_pool", "BACKBONE_HTTP=SECRET": "BACKBONE_HTTP",
		"BACKBONE_ACCESS_LOG_RETENTON=SECRET": "BACKBONE_ACCESS_LOG_RETENTON",
	} {
		_, err := load("", func() []string { return []string{variable} })
		var e *Error
		require.ErrorAs(t, err, &e, variable)
		require.Equal(t, key, e.Key)
		require.NotContains(t, err.Error(), "SECRET")
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "none.yaml"), settingsFile(t, "a: [\n"), settingsFile(t, "- x\n")} {
		_, err := load(path, noEnvironment)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Empty(t, e.Key)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for setting, valid := range map[string]bool{
		"NATS_URLS=nats://u:p@a:4222,nats://b:4222": true, "NATS_SUBJECT_PREFIX=erp.events": true, "NATS_REPLICAS=3": true,
		"NATS_SUBJECT_PREFIX=erp.>": false, "NATS_SUBJECT_PREFIX=a..b": false, "NATS_STREAM=a.b": false, "NATS_REPLICAS=6": false, "NATS_BATCH=1001": false,
		"NATS_CERT_FILE=x": false, "NATS_MAX_AGE=1s": false, "NATS_DUPLICATE_WINDOW=0s": false,
		"SUBSCRIPTIONS_PER_TENANT=5": true, "SUBSCRIPTIONS_PER_TENANT=0": false, "SUBSCRIPTIONS_POLL_BYTES=65536": true, "SUBSCRIPTIONS_POLL_BYTES=1": false,
		"SUBSCRIPTIONS_SWEEP=1ms": false, "SUBSCRIPTIONS_RECHECK=2m": false, "SUBSCRIPTIONS_MEASURE=1s": true, "PROJECTOR_BYTES=1": false,
		"WEBHOOK_ALLOWED_NETWORKS=10.1.0.0/16,fd00:1::/64": true, "WEBHOOK_ALLOWED_NETWORKS=10.1.0.0": false, "WEBHOOK_TIMEOUT=1ms": false, "WEBHOOK_CONCURRENCY=0": false,
	} {
		_, err := load("", func() []string { return []string{envPrefix + setting} })
		require.Equal(t, valid, err == nil, "%s: %v", setting, err)
	}
}

func TestDSN(t *testing.T) {
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

package architecture

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImportViolations checks the import rule itself on allowed and forbidden imports.
func TestImportViolations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pkg, path string
		allowed   bool
	}{
		{"domain/event", "crypto/sha256", true},
		{"domain/event", "github.com/oklog/ulid/v2", true},
		{"domain/event", module + "domain/fault", true},
		{"domain/event", module + "domain/eventtype", false},
		{"domain/event", module + "ports", false},
		{"domain/event", "github.com/google/uuid", false},
		{"domain/fault", module + "domain/money", false},
		{"domain/intent", module + "domain/shredding", true},
		{"domain/money", "github.com/cockroachdb/apd/v3", true},
		{"domain/event", "github.com/cockroachdb/apd/v3", false},
		{"modules/gl/domain", "github.com/cockroachdb/apd/v3", false},
		{"ports", module + "domain/event", true},
		{"ports", module + "application/module", false},
		{"application/pipeline", module + "application/module", true},
		{"application/pipeline", module + "application/pipeline/retry", true},
		{"application/pipeline", module + "application/append", false},
		{"application/pipeline", module + "adapters/memory", false},
		{"application/pipeline", "github.com/prometheus/client_golang/prometheus", false},
		{"adapters/memory", module + "ports", true},
		{"adapters/memory", module + "adapters/postgres", false},
		{"adapters/memory", module + "application/append", false},
		{"adapters/httpapi", module + "application/pipeline", true},
		{"adapters/httpapi/internal/api", "github.com/labstack/echo/v4", true},
		{"adapters/system", "github.com/labstack/echo/v4", false},
		{"adapters/postgres/eventlog", "github.com/jackc/pgx/v5", true},
		{"adapters/postgres/migrate", module + "sql/backbone", true},
		{"adapters/postgres/streams", module + "adapters/postgres/internal/pg", true},
		{"adapters/postgres/streams", module + "adapters/postgres/eventlog", false},
		{"adapters/postgres/projections", module + "adapters/postgres/eventlog", true},
		{"adapters/postgres/projections", module + "adapters/postgres/eventlog/appender", false},
		{"adapters/postgres/eventlog", module + "adapters/postgres/eventlog/appender", false},
		{"adapters/embeddedpg", "github.com/jackc/pgx/v5", true},
		{"adapters/memory", "github.com/jackc/pgx/v5", false},
		{"adapters/nats", "github.com/nats-io/nats.go/jetstream", true},
		{"test/testkit/natstest", "github.com/nats-io/nats-server/v2/server", true},
		{"adapters/nats/natsd", "github.com/nats-io/nats-server/v2/server", false},
		{"adapters/postgres", "github.com/nats-io/nats.go", false},
		{"cmd/wire", "github.com/nats-io/nats.go", false},
		{"application/fanout", "github.com/nats-io/nats.go", false},
		{"adapters/jq", "github.com/itchyny/gojq", true},
		{"adapters/opa", "github.com/itchyny/gojq", false},
		{"adapters/httpapi", "github.com/coder/websocket", true},
		{"cmd/wire", "github.com/coder/websocket", false},
		{"adapters/s3", "github.com/aws/aws-sdk-go-v2/service/s3", true},
		{"adapters/exportdir", "github.com/aws/aws-sdk-go-v2/service/s3", false},
		{"adapters/prometheus", "github.com/prometheus/client_golang/prometheus", true},
		{"cmd/wire", "github.com/prometheus/client_golang/prometheus", false},
		{"configs", "github.com/knadh/koanf/v2", true},
		{"cmd/wire", "github.com/knadh/koanf/v2", false},
		{"adapters/webhook", "github.com/standard-webhooks/standard-webhooks/libraries/go", false},
		{"modules/ap", module + "application/module", true},
		{"modules/ap/domain", module + "modules/gl/contract", true},
		{"modules/ap/domain", module + "modules/gl/domain", false},
		{"modules/ap", module + "modules/ap/adapters/postgres", false},
		{"modules/ap", module + "adapters/postgres", false},
		{"modules/ap", "github.com/jackc/pgx/v5", false},
		{"modules/ap/adapters/postgres", "github.com/jackc/pgx/v5", true},
		{"modules/ap/adapters/postgres", module + "adapters/postgres", true},
		{"modules/ap/adapters/postgres", module + "adapters/memory", false},
		{"modules/ap/adapters/postgres", module + "adapters/plugin", true},
		{"modules/ap/adapters/cli", module + "modules/ap/adapters/einvoice", true},
		{"modules/ap/adapters/einvoice", module + "adapters/xmltree", true},
		{"modules/ap", module + "adapters/xmltree", false},
		{"cmd/wire", module + "modules/ap", false},
		{"cmd/wire", module + "adapters/plugin", true},
		{"modules", module + "modules/ap/adapters/plugin", true},
		{"modules", module + "modules/ap", false},
		{"modules/ap/adapters/plugin", module + "modules/ap/adapters/postgres", true},
		{"modules/ap/adapters/plugin", module + "modules/gl", false},
		{"cmd/backbone", module + "cmd/app", true},
		{"cmd/backbone", module + "modules", true},
		{"cmd/backbone", module + "modules/ap", false},
		{"cmd/backbone", module + "adapters/postgres", false},
		{"test/testkit", module + "adapters/embeddedpg", true},
		{"test/testkit", module + "adapters/postgres", false},
		{"test/e2e", module + "cmd/wire", true},
		{"somewhere/else", module + "domain/event", false},
	} {
		findings := importViolations(c.pkg, false, []string{c.path})
		require.Equal(t, c.allowed, len(findings) == 0, "%s imports %s: %v", c.pkg, c.path, findings)
	}
	require.Empty(t, importViolations("domain/event", true, []string{"github.com/stretchr/testify/require"}), "tests are free")
}

// TestSyntaxRules checks the rules about floats, calls and lengths themselves.
func TestSyntaxRules(t *testing.T) {
	t.Parallel()
	s := source{path: "modules/x/domain/a.go", content: []byte(`package a

import (
	"strconv"
	"time"
)

type invoice struct {
	Total        float64
	WaitSeconds  float64
	MissRatio    float32
}

var rate = float32(1)
var waitedMillis = float64(3)

func parse(text string) { _, _ = strconv.ParseFloat(text, 64) }
func observe(d time.Duration) { seconds := float64(d) / 1e9; _ = seconds; time.Sleep(d) }
`)}
	positions, file := s.parse()
	require.NotNil(t, file)
	require.Equal(t, []int{9, 14, 17}, floats(positions, file))
	require.Equal(t, []int{18}, callsTo(positions, file, "time", "Sleep"))
	require.Equal(t, 3, lineCount([]byte("a\nb\nc\n")))
	require.True(t, generatedLine.MatchString("// Code generated by sqlc. DO NOT EDIT.\n\npackage a\n"))
}

// Package configs is Backbone's configuration and its own policies. A value comes
// from the defaults, then a YAML file, then the environment; the later wins.
package configs

import (
	"fmt"
	"log/slog"
	"time"
)

// Version is the version of this build, set by the linker
// (-ldflags "-X github.com/erpbackbone/backbone/configs.Version=v1.2.3").
var Version = "dev"

// Config is everything that can be set. The names in the file are the tags; the
// environment variable of http.listen is BACKBONE_HTTP_LISTEN.
type Config struct {
	HTTP      HTTP      `config:"http"`
	Database  Database  `config:"database"`
	Engine    Engine    `config:"engine"`
	Limits    Limits    `config:"limits"`
	Intake    Intake    `config:"intake"`
	Policy    Policy    `config:"policy"`
	Query     Query     `config:"query"`
	Projector Projector `config:"projector"`
	Delivery  Delivery  `config:"delivery"`
	Feeds     Feeds     `config:"feeds"`

	Subscriptions Subscriptions `config:"subscriptions"`

	NATS        NATS        `config:"nats"`
	Webhook     Webhook     `config:"webhook"`
	Idempotency Idempotency `config:"idempotency"`
	KMS         KMS         `config:"kms"`
	KeyStore    KeyStore    `config:"keystore"`
	Erasure     Erasure     `config:"erasure"`
	Rotation    Rotation    `config:"rotation"`
	Node        Node        `config:"node"`
	Log         Log         `config:"log"`
	Telemetry   Telemetry   `config:"telemetry"`
}

// HTTP is the API server.
type HTTP struct {
	Listen          string        `config:"listen"`           // host:port
	BodyLimitBytes  int           `config:"body_limit_bytes"` // larger request bodies are refused while they arrive
	ReadTimeout     time.Duration `config:"read_timeout"`     // for a body to arrive
	RequestTimeout  time.Duration `config:"request_timeout"`  // from the arrival of a request to its answer; work is stopped then
	ShutdownTimeout time.Duration `config:"shutdown_timeout"` // for requests in flight when the server stops
}

// Database is PostgreSQL.
type Database struct {
	DSN                DSN `config:"dsn"`                 // the application's role
	OwnerDSN           DSN `config:"owner_dsn"`           // the owner's role, for migrations only
	EraserDSN          DSN `config:"eraser_dsn"`          // the eraser's role: erasures, redactions and rotation of keys; empty: this node does none of them
	ListenDSN          DSN `config:"listen_dsn"`          // a direct connection for wake-ups when dsn leads through a pooler; empty: dsn
	ReadPool           int `config:"read_pool"`           // connections for reads
	Appenders          int `config:"appenders"`           // connections that append, about one per core of the database
	PhysicalPartitions int `config:"physical_partitions"` // legal entities with tables of their own; 0 on Citus. Plans over hundreds of tables exhaust the lock table
}

// Limits bound what one caller may send.
type Limits struct {
	EventBytes  int `config:"event_bytes"`  // one event
	BatchEvents int `config:"batch_events"` // events of one request
	Depth       int `config:"depth"`        // JSON inside JSON
	Nodes       int `config:"nodes"`        // JSON values of one event
	EntityRefs  int `config:"entity_refs"`  // references of one event
	Tags        int `config:"tags"`         // tags of one event
}

// Intake is the intent pipeline.
type Intake struct {
	Retries []time.Duration `config:"retries"` // pauses before an intent that met a conflict is planned again
}

// Query is how entities and streams are folded on read.
type Query struct {
	FoldBudget    time.Duration `config:"fold_budget"`    // a fold of an entity that takes longer is answered as far as it came
	SnapshotEvery int           `config:"snapshot_every"` // events between snapshots of an entity or a stream
}

// Projector keeps the read models.
type Projector struct {
	Poll    time.Duration `config:"poll"`    // how often to look for what operators decided
	Batch   int           `config:"batch"`   // events of one transaction, unless a projection's settings say
	Bytes   int           `config:"bytes"`   // of the payloads of one transaction, unless one event alone has more
	Workers int           `config:"workers"` // partitions that a node works at a time
	TTL     time.Duration `config:"ttl"`     // another node takes over when a node was silent for so long
	Renew   time.Duration `config:"renew"`   // how often a node gives a sign of life; at most a third of ttl
	Stall   time.Duration `config:"stall"`   // readiness is degraded when events wait so long without an attempt

	RecomputeEvents int `config:"recompute_events"` // events of one entity or person whose rows are recomputed in place: they delay the projection
	RecomputeReads  int `config:"recompute_reads"`  // events of a legal entity that recomputing rows of a tenant's projection may read

	SwitchWithin int    `config:"switch_within"` // events that a rebuilt version may lack in a legal entity when readers are switched to it
	Switch       string `config:"switch"`        // auto: a version that a newer release builds is switched to once it has caught up; manual: by an operator

	OperatorTenant string `config:"operator_tenant"` // whose operators decide about projections where several tenants share them; empty: nobody does then
}

// Delivery is how a node learns that events were written, for all who wait for them.
type Delivery struct {
	Listen string        `config:"listen"` // notify: PostgreSQL's signals wake; poll: none are listened to, as behind a pooler without a direct way
	Poll   time.Duration `config:"poll"`   // how often to look when nothing wakes; every 2 s while signals announce every event
}

// Feeds are the live feeds of the API.
type Feeds struct {
	PerPrincipal int           `config:"per_principal"` // feeds of one principal on a node
	PerNode      int           `config:"per_node"`      // feeds on a node
	Batch        int           `config:"batch"`         // events that are read at once
	Heartbeat    time.Duration `config:"heartbeat"`     // silence after which a feed shows that it lives
	WriteTimeout time.Duration `config:"write_timeout"` // for a reader to take what it is sent
	Review       time.Duration `config:"review"`        // how often the reader's rights are looked at again
	Origins      []string      `config:"origins"`       // hosts, such as *.example.org, whose pages may open WebSockets besides the server's own
}

// Idempotency is how repeated requests are recognised.
type Idempotency struct {
	TTL time.Duration `config:"ttl"` // how long a key is remembered; business keys never expire
}

// KMS is the key service that wraps the keys of persons and signs receipts: AWS KMS,
// a `backbone kmsd`, or the same embedded in this process.
type KMS struct {
	Endpoint        string `config:"endpoint"`         // URL or unix:PATH; empty with a region: AWS KMS itself
	Region          string `config:"region"`           // such as eu-central-1; empty with an endpoint: "local", which is kmsd's
	CredentialsFile string `config:"credentials_file"` // in the form of AWS's shared credentials; empty: found the way AWS tools do
	AppProfile      string `config:"app_profile"`      // makes and opens data keys. Empty: "app" of credentials_file, else AWS's default
	RotatorProfile  string `config:"rotator_profile"`  // makes, re-wraps and ends KEKs. Empty: "rotator", else as above
	SignerProfile   string `config:"signer_profile"`   // signs receipts and certificates. Empty: "signer", else as above
	LocalDirectory  string `config:"local_directory"`  // keys of an embedded kmsd, instead of endpoint
	AllowLocal      bool   `config:"allow_local"`      // an embedded kmsd is accepted by `backbone serve`
}

// Configured tells whether there is a key service at all.
func (k KMS) Configured() bool { return k.Endpoint != "" || k.Region != "" || k.LocalDirectory != "" }

// KeyStore is where the wrapped keys of persons lie when it is not the database of
// the log.
type KeyStore struct {
	DSN       DSN `config:"dsn"`        // the application's role; empty: database.dsn
	OwnerDSN  DSN `config:"owner_dsn"`  // the owner's role, for migrations only; empty: database.owner_dsn
	EraserDSN DSN `config:"eraser_dsn"` // the eraser's role; empty: database.eraser_dsn unless dsn is set
	ListenDSN DSN `config:"listen_dsn"` // a direct connection when dsn leads through a pooler; empty: database.listen_dsn unless dsn is set
}

// Erasure is how persons are erased.
type Erasure struct {
	ExportDirectory string        `config:"export_directory"` // receipts, certificates and exports of keys; outside the database and its backups, the same for all nodes
	Poll            time.Duration `config:"poll"`             // how often approved requests are looked for
	GateInterval    time.Duration `config:"gate_interval"`    // how often receipts outside and inside the database are compared
}

// Rotation is how KEKs are replaced, which makes backups from before an erasure
// useless to find an erased person's keys in.
type Rotation struct {
	At           string        `config:"at"`            // time of day in UTC, such as 02:00, of the tenants with erasures since the last one; empty: never by itself
	MaximumAge   time.Duration `config:"max_age"`       // tenants without erasures are rotated when their KEK is this old
	DeletionDays int           `config:"deletion_days"` // from the end of an epoch to the destruction of its KEK
}

// Node is this process among several on one database.
type Node struct {
	ID string `config:"id"` // empty: the host's name and a random part, new at every start
}

// Log is the program's log.
type Log struct {
	Level  string `config:"level"`  // debug, info, warn, error
	Format string `config:"format"` // json, text
}

// Telemetry is where traces go.
type Telemetry struct {
	OTLPEndpoint string `config:"otlp_endpoint"` // OTLP over HTTP: URL or host:port of a collector; empty: no traces
}

// DSN is a connection string. It may hold a password, so it does not print.
type DSN string

// String implements fmt.Stringer.
func (d DSN) String() string {
	if d == "" {
		return ""
	}
	return "[DSN]"
}

// Format implements fmt.Formatter for all verbs.
func (d DSN) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(d.String())) }

// LogValue implements slog.LogValuer.
func (d DSN) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalText implements encoding.TextMarshaler, which JSON and YAML use.
func (d DSN) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Reveal gives the connection string itself.
func (d DSN) Reveal() string { return string(d) }

// Default gives the configuration when nothing is set. backbone.example.yaml
// shows the same.
func Default() Config {
	return Config{
		HTTP:      HTTP{Listen: "127.0.0.1:8080", BodyLimitBytes: 4 << 20, ReadTimeout: 30 * time.Second, RequestTimeout: 30 * time.Second, ShutdownTimeout: 20 * time.Second},
		Database:  Database{ReadPool: 8, Appenders: 2, PhysicalPartitions: 32},
		Engine:    defaultEngine(),
		Limits:    Limits{EventBytes: 1 << 20, BatchEvents: 100, Depth: 32, Nodes: 50_000, EntityRefs: 128, Tags: 32},
		Intake:    Intake{Retries: []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 800 * time.Millisecond}},
		Policy:    Policy{CachedDecisions: 16_384},
		Query:     Query{FoldBudget: 500 * time.Millisecond, SnapshotEvery: 100},
		Projector: Projector{Poll: 2 * time.Second, Batch: 500, Bytes: 16 << 20, Workers: 4, TTL: 10 * time.Second, Renew: 3 * time.Second, Stall: 30 * time.Second, RecomputeEvents: 10_000, RecomputeReads: 200_000, SwitchWithin: 1000, Switch: "auto"},
		Delivery:  Delivery{Listen: "notify", Poll: 500 * time.Millisecond},
		Feeds:     Feeds{PerPrincipal: 20, PerNode: 1000, Batch: 100, Heartbeat: 15 * time.Second, WriteTimeout: 30 * time.Second, Review: time.Minute},
		NATS:      defaultNATS(),

		Subscriptions: defaultSubscriptions(),

		Webhook:     defaultWebhook(),
		Idempotency: Idempotency{TTL: 24 * time.Hour},
		Erasure:     Erasure{Poll: time.Second, GateInterval: time.Minute},
		Rotation:    Rotation{At: "02:00", MaximumAge: 365 * 24 * time.Hour, DeletionDays: 7},
		Log:         Log{Level: "info", Format: "json"},
	}
}

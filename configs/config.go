// Package configs holds Backbone's configuration and its own policies. Load reads a value from
// the defaults, then from a YAML file, then from the environment; the later source wins.
// Commands load a Config; cmd/wire passes its sections to the services, which read no
// configuration themselves.
package configs

import (
	"fmt"
	"log/slog"
	"time"
)

// Version is the version of this build, set by the linker
// (-ldflags "-X github.com/erpbackbone/backbone/configs.Version=v1.2.3").
var Version = "dev"

// Config holds all settings. The tags are the names in the file; the environment variable of
// http.listen is BACKBONE_HTTP_LISTEN.
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
	Vault       Vault       `config:"vault"`
	KMS         KMS         `config:"kms"`
	KeyStore    KeyStore    `config:"keystore"`
	Erasure     Erasure     `config:"erasure"`
	Rotation    Rotation    `config:"rotation"`
	GlobalLog   GlobalLog   `config:"global_log"`
	Mirror      Mirror      `config:"mirror"`
	Archive     Archive     `config:"archive"`
	AccessLog   AccessLog   `config:"access_log"`
	Disclosure  Disclosure  `config:"disclosure"`
	Node        Node        `config:"node"`
	Log         Log         `config:"log"`
	Telemetry   Telemetry   `config:"telemetry"`
}

// HTTP configures the API server.
type HTTP struct {
	Listen         string        `config:"listen"`           // host:port
	BodyLimitBytes int           `config:"body_limit_bytes"` // the server refuses a larger request body before it has read all of it
	ReadTimeout    time.Duration `config:"read_timeout"`     // for a body to arrive
	RequestTimeout time.Duration `config:"request_timeout"`  // from the arrival of a request to its answer; the server cancels the request's work then

	RequestsInFlight  int `config:"requests_in_flight"` // requests with a body that the server works on; it refuses more with http.server_busy
	BytesInFlight     int `config:"bytes_in_flight"`    // of their bodies together; a body needs up to ten times its size while it is decoded, validated and sealed
	PrincipalRequests int `config:"principal_requests"` // the share of one principal in them, so that it does not keep others out; more are refused with http.principal_busy
	PrincipalBytes    int `config:"principal_bytes"`    // the share of one principal in the bytes
	PaperBytes        int `config:"paper_bytes"`        // of papers that the server receives or sends at the same time, half of it for one principal; a paper needs about three times its size in memory

	ShutdownTimeout time.Duration `config:"shutdown_timeout"` // for requests in flight when the server stops; it closes their connections then
}

// Database configures the connections to PostgreSQL.
type Database struct {
	DSN                DSN `config:"dsn"`                 // the application's role, backbone_app
	OwnerDSN           DSN `config:"owner_dsn"`           // the owner's role, backbone_owner, or a superuser; only `backbone migrate` connects with it
	EraserDSN          DSN `config:"eraser_dsn"`          // the eraser's role, backbone_eraser, for erasures, redactions and rotation of keys; serve requires it or keystore.eraser_dsn
	ListenDSN          DSN `config:"listen_dsn"`          // a direct connection for LISTEN when dsn is that of a pooler; empty: dsn
	ReadPool           int `config:"read_pool"`           // connections for reads
	Appenders          int `config:"appenders"`           // connections that append, about one per core of the database
	PhysicalPartitions int `config:"physical_partitions"` // legal entities that get tables of their own; 0 on Citus. A query over hundreds of tables can exhaust PostgreSQL's lock table
}

// Limits bound what one caller may send.
type Limits struct {
	EventBytes  int `config:"event_bytes"`  // one event
	BatchEvents int `config:"batch_events"` // events of one request
	Depth       int `config:"depth"`        // nesting of the JSON
	Nodes       int `config:"nodes"`        // JSON values of one event
	EntityRefs  int `config:"entity_refs"`  // references of one event
	Tags        int `config:"tags"`         // tags of one event
}

// Intake configures the intent pipeline.
type Intake struct {
	Retries       []time.Duration `config:"retries"`        // pauses before the pipeline plans an intent again that met a conflict
	WaitingLimit  time.Duration   `config:"waiting_limit"`  // an intent that waits for approval expires this long after its submission
	CachedStreams int             `config:"cached_streams"` // streams whose states a node keeps in memory; another one is folded from its events or a snapshot
}

// Query configures folds of entities and streams on read.
type Query struct {
	FoldBudget    time.Duration `config:"fold_budget"`    // a read of an entity answers with the events that were folded within it
	SnapshotEvery int           `config:"snapshot_every"` // events between snapshots of an entity or a stream
}

// Projector configures the projections.
type Projector struct {
	Poll    time.Duration `config:"poll"`    // how often a node reads the decisions of operators
	Batch   int           `config:"batch"`   // events of one transaction, unless a projection declares its own number
	Bytes   int           `config:"bytes"`   // payloads of one transaction; a larger event has a transaction of its own
	Workers int           `config:"workers"` // partitions that a node processes at the same time
	TTL     time.Duration `config:"ttl"`     // of a lease: another node takes over from a node that has not renewed for so long
	Renew   time.Duration `config:"renew"`   // how often a node renews its leases; at most a third of ttl
	Stall   time.Duration `config:"stall"`   // readiness reports degraded when no attempt was made for so long while events wait

	RecomputeEvents int `config:"recompute_events"` // most events of an entity or person whose rows are recomputed in place, which delays the projection
	RecomputeReads  int `config:"recompute_reads"`  // most events of a legal entity that recomputing the rows of a custom projection may read

	SwitchWithin  int    `config:"switch_within"`  // most events that a rebuilt version may be behind in a legal entity when readers are switched to it
	SnapshotEvery int    `config:"snapshot_every"` // events of all legal entities between two snapshots of a projection that nodes take by themselves; 0: none
	Switch        string `config:"switch"`         // auto: a node switches readers to the version of a newer release once it has caught up; manual: an operator does

	OperatorTenant string `config:"operator_tenant"` // the tenant whose operators decide about projections that several tenants share; empty: no operator may
}

// Delivery configures how a node learns of new events, for all its feeds, subscriptions and projections.
type Delivery struct {
	Listen string        `config:"listen"` // notify: LISTEN wakes the node; poll: it does not listen, which a transaction pooler without listen_dsn requires
	Poll   time.Duration `config:"poll"`   // how often the node looks for events; every 2 s while notifications announce them
}

// Feeds configures the live feeds of the API.
type Feeds struct {
	PerPrincipal int           `config:"per_principal"` // feeds of one principal on a node
	PerNode      int           `config:"per_node"`      // feeds on a node
	Batch        int           `config:"batch"`         // events of one read
	Heartbeat    time.Duration `config:"heartbeat"`     // silence after which a feed sends a heartbeat
	WriteTimeout time.Duration `config:"write_timeout"` // for the reader to receive what was sent; a slower one is disconnected
	Review       time.Duration `config:"review"`        // how often the reader's rights are checked again
	Origins      []string      `config:"origins"`       // hosts, such as *.example.org, whose pages may open WebSockets besides the server's own
}

// Idempotency configures how repeated requests are recognised.
type Idempotency struct {
	TTL time.Duration `config:"ttl"` // how long a key is remembered; business keys never expire
}

// Vault configures the keys of persons in a node's memory, with which it seals and opens their
// values.
type Vault struct {
	CachedKeys int           `config:"cached_keys"` // keys in memory; another one costs a call of the key service
	KeyLife    time.Duration `config:"key_life"`    // how long a key stays in memory; at most a minute, after which an erasure counts on it
	Poll       time.Duration `config:"poll"`        // how often a node reports to the key store which destroyed keys it has evicted
}

// KMS configures the key service, which wraps the keys of persons and signs receipts: AWS KMS,
// a `backbone kmsd`, or a kmsd embedded in this process.
type KMS struct {
	Endpoint        string        `config:"endpoint"`         // URL or unix:PATH; empty with a region: AWS KMS itself
	Region          string        `config:"region"`           // such as eu-central-1; empty with an endpoint: "local", which is kmsd's
	CredentialsFile string        `config:"credentials_file"` // in the form of AWS's shared credentials, or a folder with one file for each profile; empty: found the way AWS tools do
	AppProfile      string        `config:"app_profile"`      // profile that creates and opens data keys; empty: "app" if credentials_file is set, else AWS's default
	RotatorProfile  string        `config:"rotator_profile"`  // profile that creates KEKs, re-wraps with them and ends them; empty: "rotator", or as above
	SignerProfile   string        `config:"signer_profile"`   // profile that signs receipts and certificates; empty: "signer", or as above
	LocalDirectory  string        `config:"local_directory"`  // folder of the keys of an embedded kmsd, instead of endpoint
	AllowLocal      bool          `config:"allow_local"`      // lets `backbone serve` embed a kmsd
	Timeout         time.Duration `config:"timeout"`          // one try of a call
	Tries           int           `config:"tries"`            // of a call that times out or that the service could not answer
	Backoff         time.Duration `config:"backoff"`          // mean pause before the second try; doubled for each further one
	Calls           int           `config:"calls"`            // that seal and open at the same time on a node, so that a slow service does not block all requests
	CallWait        time.Duration `config:"call_wait"`        // a request waits at most so long to be one of them; then it is refused
}

// Configured reports whether a key service is configured.
func (k KMS) Configured() bool { return k.Endpoint != "" || k.Region != "" || k.LocalDirectory != "" }

// KeyStore configures the connections to the wrapped keys of persons, whose database may be
// another than the log's.
type KeyStore struct {
	DSN         DSN           `config:"dsn"`          // the application's role; empty: database.dsn
	OwnerDSN    DSN           `config:"owner_dsn"`    // the owner's role, for migrations only; empty: database.owner_dsn
	EraserDSN   DSN           `config:"eraser_dsn"`   // the eraser's role; empty: database.eraser_dsn unless dsn is set
	ListenDSN   DSN           `config:"listen_dsn"`   // a direct connection for LISTEN when dsn is that of a pooler; empty: database.listen_dsn unless dsn is set
	Pool        int           `config:"pool"`         // connections of each of the two roles
	LockTimeout time.Duration `config:"lock_timeout"` // a mint or an erasure waits at most so long for a lock, and PostgreSQL ends a session that is silent for so long in a transaction
}

// Erasure configures the erasure of persons.
type Erasure struct {
	ExportDirectory string        `config:"export_directory"` // receipts, certificates and exports of keys; outside the database and its backups, the same for all nodes
	Poll            time.Duration `config:"poll"`             // how often a node looks for approved requests
	GateInterval    time.Duration `config:"gate_interval"`    // how often the gate compares the receipts in export_directory with those in the database
}

// Rotation configures the replacement of KEKs. After it, the keys of an erased person in older
// backups can no longer be unwrapped.
type Rotation struct {
	At           string        `config:"at"`            // time of day in UTC, such as 02:00, at which a node rotates tenants with erasures since their last rotation; empty: only `backbone keys rotate` does
	MaximumAge   time.Duration `config:"max_age"`       // age of a KEK at which a node rotates a tenant without erasures
	DeletionDays int           `config:"deletion_days"` // days from the end of an epoch to the destruction of its KEK
	Workers      int           `config:"workers"`       // calls of the key service at the same time
}

// ObjectStore is a folder, or a bucket of an S3-compatible store.
type ObjectStore struct {
	Directory       string        `config:"directory"`        // such as a mounted share
	Bucket          string        `config:"bucket"`           // instead of directory
	Endpoint        string        `config:"endpoint"`         // URL of the store; empty: AWS S3 itself
	Region          string        `config:"region"`           // of the bucket, such as eu-central-1; stores of your own have one too
	Prefix          string        `config:"prefix"`           // begins the names of all objects
	CredentialsFile string        `config:"credentials_file"` // in the form of AWS's shared credentials; empty: found the way AWS tools do
	Profile         string        `config:"profile"`          // of the credentials; empty: AWS's default
	Timeout         time.Duration `config:"timeout"`          // one try of a call
	Tries           int           `config:"tries"`            // of a call that times out or that the store could not answer
	Backoff         time.Duration `config:"backoff"`          // mean pause before the second try; doubled for each further one
}

// IsConfigured reports whether there is such a store.
func (o ObjectStore) IsConfigured() bool { return o.Directory != "" || o.Bucket != "" }

// Archive says where payloads are that were moved out of the database; the same for all nodes and tools.
type Archive struct{ ObjectStore }

// Mirror says where checkpoints and tiles of the global log are kept besides, for outsiders.
type Mirror struct {
	ObjectStore
	Lock time.Duration `config:"lock"` // how long from its writing the bucket refuses to delete an object, also for administrators; 0: not
}

// GlobalLog configures the signed checkpoints of the global log.
type GlobalLog struct {
	CheckpointInterval time.Duration `config:"checkpoint_interval"` // between two checkpoints at least; each is a call of the key service
	WitnessPolicy      string        `config:"witness_policy"`      // file of a policy (c2sp.org/tlog-policy) whose witnesses are asked to sign checkpoints too; empty: none
	WitnessTimeout     time.Duration `config:"witness_timeout"`     // of a request to a witness
	ExportInterval     time.Duration `config:"export_interval"`     // between two checkpoints in the export folder at least; what a superuser cuts off after the newest one is not missed there
}

// AccessLog configures the record of reads that matter.
type AccessLog struct {
	Retention time.Duration `config:"retention"` // how long an access is kept; then a node deletes it
}

// Disclosure configures grants of personal data to auditors.
type Disclosure struct {
	LongestGrant time.Duration `config:"longest_grant"` // from the beginning of a grant to its end
}

// Node identifies this process among the nodes of a database.
type Node struct {
	ID string `config:"id"` // empty: the host's name and a random part, new at every start
}

// Log configures the program's log.
type Log struct {
	Level  string `config:"level"`  // debug, info, warn, error
	Format string `config:"format"` // json, text
}

// Telemetry configures where traces are sent.
type Telemetry struct {
	OTLPEndpoint string `config:"otlp_endpoint"` // host:port of a collector that receives OTLP over HTTP; empty: no traces
}

// DSN is a connection string. It may hold a password, so that it prints as "[DSN]".
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

// Reveal returns the connection string itself.
func (d DSN) Reveal() string { return string(d) }

func defaultHTTP() HTTP {
	return HTTP{
		Listen: "127.0.0.1:8080", BodyLimitBytes: 4 << 20, ReadTimeout: 30 * time.Second, RequestTimeout: 30 * time.Second, ShutdownTimeout: 20 * time.Second,
		RequestsInFlight: 2048, BytesInFlight: 16 << 20, PrincipalRequests: 1024, PrincipalBytes: 8 << 20, PaperBytes: 80 << 20,
	}
}

func defaultObjectStore() ObjectStore {
	return ObjectStore{Timeout: 30 * time.Second, Tries: 3, Backoff: 100 * time.Millisecond}
}

// Default returns the default of every setting. backbone.example.yaml documents the same values.
func Default() Config {
	return Config{
		HTTP:      defaultHTTP(),
		Database:  Database{ReadPool: 8, Appenders: 2, PhysicalPartitions: 32},
		Engine:    defaultEngine(),
		Limits:    Limits{EventBytes: 1 << 20, BatchEvents: 100, Depth: 32, Nodes: 50_000, EntityRefs: 128, Tags: 32},
		Intake:    Intake{Retries: []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 800 * time.Millisecond}, CachedStreams: 100_000, WaitingLimit: 30 * 24 * time.Hour},
		Policy:    Policy{CachedDecisions: 16_384},
		Query:     Query{FoldBudget: 500 * time.Millisecond, SnapshotEvery: 100},
		Projector: Projector{Poll: 2 * time.Second, Batch: 500, Bytes: 16 << 20, Workers: 4, TTL: 10 * time.Second, Renew: 3 * time.Second, Stall: 30 * time.Second, RecomputeEvents: 10_000, RecomputeReads: 200_000, SwitchWithin: 1000, Switch: "auto"},
		Delivery:  Delivery{Listen: "notify", Poll: 500 * time.Millisecond},
		Feeds:     Feeds{PerPrincipal: 20, PerNode: 1000, Batch: 100, Heartbeat: 15 * time.Second, WriteTimeout: 30 * time.Second, Review: time.Minute},
		NATS:      defaultNATS(),

		Subscriptions: defaultSubscriptions(),

		Webhook:     defaultWebhook(),
		Idempotency: Idempotency{TTL: 24 * time.Hour},
		Vault:       Vault{CachedKeys: 50_000, KeyLife: time.Minute, Poll: 5 * time.Second},
		KMS:         KMS{Timeout: 2 * time.Second, Tries: 3, Backoff: 100 * time.Millisecond, Calls: 64, CallWait: 5 * time.Second},
		KeyStore:    KeyStore{Pool: 4, LockTimeout: 10 * time.Second},
		Erasure:     Erasure{Poll: time.Second, GateInterval: time.Minute},
		Archive:     Archive{defaultObjectStore()},
		Rotation:    Rotation{At: "02:00", MaximumAge: 365 * 24 * time.Hour, DeletionDays: 7, Workers: 8},
		Mirror:      Mirror{ObjectStore: defaultObjectStore()},
		GlobalLog:   GlobalLog{CheckpointInterval: 5 * time.Second, WitnessTimeout: 2 * time.Second, ExportInterval: 10 * time.Minute},
		AccessLog:   AccessLog{Retention: 90 * 24 * time.Hour},
		Disclosure:  Disclosure{LongestGrant: 30 * 24 * time.Hour},
		Log:         Log{Level: "info", Format: "json"},
	}
}

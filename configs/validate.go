package configs

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/paper"
)

// rule is a condition that a setting must meet.
type rule struct {
	key     string
	met     bool
	problem string // ends with what to write instead
}

// between is the rule of a setting with a range, whose ends are allowed.
func between[N int | time.Duration](key string, value, low, high N) rule {
	return rule{key, low <= value && value <= high, fmt.Sprintf("is out of range; use %v to %v", low, high)}
}

// stores are the rules of the archive and the mirror.
func (c Config) stores() []rule {
	return slices.Concat(c.Archive.rules("archive"), c.Mirror.rules("mirror"), []rule{
		{"mirror.directory", c.Mirror.Directory == "" || c.Mirror.Directory != c.Erasure.ExportDirectory && c.Mirror.Directory != c.Archive.Directory, "is a folder of its own; name another one than of the exports and the archive"},
		{"mirror.lock", c.Mirror.Lock == 0 || c.Mirror.Bucket != "", "is for objects of a bucket; set mirror.bucket, or leave it out"},
	})
}

func (o ObjectStore) rules(section string) []rule {
	return []rule{
		between(section+".timeout", o.Timeout, time.Second, 10*time.Minute),
		between(section+".tries", o.Tries, 1, 10),
		between(section+".backoff", o.Backoff, time.Millisecond, 10*time.Second),
	}
}

// Validate checks all settings; its error is an *Error for the first wrong one. A DSN may be
// empty: the commands that need it check that.
func (c Config) Validate() error {
	for _, r := range slices.Concat(c.numbers(), c.durations(), c.texts(), c.NATS.rules(), c.Subscriptions.rules(), c.Webhook.rules(), c.stores(), c.identities()) {
		if !r.met {
			return &Error{Key: r.key, Problem: r.problem}
		}
	}
	return nil
}

func (c Config) numbers() []rule {
	return []rule{
		between("http.body_limit_bytes", c.HTTP.BodyLimitBytes, 1<<10, 64<<20),
		between("http.requests_in_flight", c.HTTP.RequestsInFlight, 1, 1_000_000),
		between("http.bytes_in_flight", c.HTTP.BytesInFlight, c.HTTP.BodyLimitBytes, 1<<30),
		between("http.principal_requests", c.HTTP.PrincipalRequests, 1, c.HTTP.RequestsInFlight),
		between("http.paper_bytes", c.HTTP.PaperBytes, 2*paper.MaxBytes, 1<<31),
		between("http.principal_bytes", c.HTTP.PrincipalBytes, c.HTTP.BodyLimitBytes, c.HTTP.BytesInFlight),
		between("database.read_pool", c.Database.ReadPool, 1, 1000),
		between("database.appenders", c.Database.Appenders, 1, 64),
		between("database.physical_partitions", c.Database.PhysicalPartitions, 0, 256),
		between("engine.group_events", c.Engine.GroupEvents, 1, 10_000),
		between("engine.group_bytes", c.Engine.GroupBytes, 64<<10, 256<<20),
		between("engine.oversize_bytes", c.Engine.OversizeBytes, 1<<10, c.Engine.GroupBytes),
		between("engine.queue_requests", c.Engine.QueueRequests, 1, 1_000_000),
		between("engine.queue_bytes", c.Engine.QueueBytes, 1<<20, 1<<30),
		between("engine.partition_requests", c.Engine.PartitionRequests, 1, c.Engine.QueueRequests),
		between("engine.partition_bytes", c.Engine.PartitionBytes, 64<<10, c.Engine.QueueBytes),
		between("policy.cached_decisions", c.Policy.CachedDecisions, 1, 10_000_000),
		between("limits.event_bytes", c.Limits.EventBytes, 1<<10, 16<<20),
		between("limits.batch_events", c.Limits.BatchEvents, 1, 1000),
		between("limits.depth", c.Limits.Depth, 4, 32),
		between("limits.nodes", c.Limits.Nodes, 100, 50_000),
		between("limits.entity_refs", c.Limits.EntityRefs, 1, 128),
		between("limits.tags", c.Limits.Tags, 1, 32),
		between("intake.retries", len(c.Intake.Retries), 0, 10),
		between("intake.waiting_limit", c.Intake.WaitingLimit, time.Minute, 10*365*24*time.Hour),
		between("intake.cached_streams", c.Intake.CachedStreams, 1, 10_000_000),
		between("query.snapshot_every", c.Query.SnapshotEvery, 10, 100_000),
		between("projector.batch", c.Projector.Batch, 1, 10_000),
		between("projector.bytes", c.Projector.Bytes, 64<<10, 1<<30),
		between("projector.workers", c.Projector.Workers, 1, 1000),
		between("projector.recompute_events", c.Projector.RecomputeEvents, 1, 1_000_000),
		between("projector.recompute_reads", c.Projector.RecomputeReads, 1, 100_000_000),
		between("projector.switch_within", c.Projector.SwitchWithin, 1, 100_000),
		between("feeds.per_principal", c.Feeds.PerPrincipal, 1, 100_000),
		between("feeds.per_node", c.Feeds.PerNode, 1, 100_000),
		between("feeds.batch", c.Feeds.Batch, 1, 1000),
		between("feeds.origins", len(c.Feeds.Origins), 0, 100),
		between("vault.cached_keys", c.Vault.CachedKeys, 1, 10_000_000),
		between("kms.tries", c.KMS.Tries, 1, 10),
		between("kms.calls", c.KMS.Calls, 1, 10_000),
		between("keystore.pool", c.KeyStore.Pool, 1, 1000),
		between("rotation.deletion_days", c.Rotation.DeletionDays, 7, 30),
		between("rotation.workers", c.Rotation.Workers, 1, 1000),
	}
}

func (c Config) durations() []rule {
	out := []rule{
		between("http.read_timeout", c.HTTP.ReadTimeout, time.Second, 10*time.Minute),
		between("http.request_timeout", c.HTTP.RequestTimeout, time.Second, 10*time.Minute),
		between("http.shutdown_timeout", c.HTTP.ShutdownTimeout, time.Second, 10*time.Minute),
		between("engine.group_timeout", c.Engine.GroupTimeout, time.Second, 10*time.Minute),
		between("engine.lock_timeout", c.Engine.LockTimeout, 10*time.Millisecond, 10*time.Minute),
		between("engine.lease_lock_timeout", c.Engine.LeaseLockTimeout, 10*time.Millisecond, c.Engine.LockTimeout),
		between("engine.idle_timeout", c.Engine.IdleTimeout, 100*time.Millisecond, time.Minute),
		between("engine.projection_idle_timeout", c.Engine.ProjectionIdleTimeout, 100*time.Millisecond, 10*time.Minute),
		between("engine.notify_timeout", c.Engine.NotifyTimeout, 100*time.Millisecond, time.Minute),
		between("engine.listen_check", c.Engine.ListenCheck, time.Second, 10*time.Minute),
		between("engine.max_clock_skew", c.Engine.MaxClockSkew, 10*time.Millisecond, time.Minute),
		between("query.fold_budget", c.Query.FoldBudget, 10*time.Millisecond, 30*time.Second),
		between("projector.poll", c.Projector.Poll, 10*time.Millisecond, time.Minute),
		between("projector.ttl", c.Projector.TTL, time.Second, time.Hour),
		between("projector.renew", c.Projector.Renew, 100*time.Millisecond, c.Projector.TTL/3),
		between("projector.stall", c.Projector.Stall, time.Second, time.Hour),
		between("delivery.poll", c.Delivery.Poll, 10*time.Millisecond, time.Minute),
		between("feeds.heartbeat", c.Feeds.Heartbeat, time.Second, 10*time.Minute),
		between("feeds.write_timeout", c.Feeds.WriteTimeout, time.Second, 10*time.Minute),
		between("feeds.review", c.Feeds.Review, time.Second, time.Minute),
		between("idempotency.ttl", c.Idempotency.TTL, time.Minute, 30*24*time.Hour),
		between("vault.key_life", c.Vault.KeyLife, time.Second, time.Minute),
		between("vault.poll", c.Vault.Poll, 100*time.Millisecond, 30*time.Second),
		between("kms.timeout", c.KMS.Timeout, 100*time.Millisecond, 30*time.Second),
		between("kms.backoff", c.KMS.Backoff, time.Millisecond, 5*time.Second),
		between("kms.call_wait", c.KMS.CallWait, 10*time.Millisecond, time.Minute),
		between("keystore.lock_timeout", c.KeyStore.LockTimeout, 100*time.Millisecond, 10*time.Minute),
		between("erasure.poll", c.Erasure.Poll, 50*time.Millisecond, time.Minute),
		between("erasure.gate_interval", c.Erasure.GateInterval, time.Second, time.Minute),
		between("mirror.lock", c.Mirror.Lock, 0, 100*365*24*time.Hour),
		between("access_log.retention", c.AccessLog.Retention, disclosure.MinRetention, 10*365*24*time.Hour),
		between("disclosure.longest_grant", c.Disclosure.LongestGrant, time.Hour, 366*24*time.Hour),
		between("global_log.checkpoint_interval", c.GlobalLog.CheckpointInterval, time.Second, time.Hour),
		between("global_log.witness_timeout", c.GlobalLog.WitnessTimeout, 100*time.Millisecond, time.Minute),
		between("global_log.export_interval", c.GlobalLog.ExportInterval, time.Second, 24*time.Hour),
		between("rotation.max_age", c.Rotation.MaximumAge, 24*time.Hour, 10*365*24*time.Hour),
	}
	for _, pause := range c.Intake.Retries {
		out = append(out, between("intake.retries", pause, time.Millisecond, 10*time.Second))
	}
	return out
}

func (c Config) texts() []rule {
	return []rule{
		{"http.listen", isHostPort(c.HTTP.Listen), "must be host:port, such as 127.0.0.1:8080"},
		{"telemetry.otlp_endpoint", c.Telemetry.OTLPEndpoint == "" || isHostPort(c.Telemetry.OTLPEndpoint), "must be host:port, such as 127.0.0.1:4318, or empty"},
		{"delivery.listen", slices.Contains([]string{"notify", "poll"}, c.Delivery.Listen), "must be notify or poll"},
		{"projector.snapshot_every", c.Projector.SnapshotEvery == 0 || c.Projector.SnapshotEvery >= 1000 && c.Projector.SnapshotEvery <= 1_000_000_000, "must be 0, or between 1000 and 1000000000"},
		{"projector.switch", slices.Contains([]string{"auto", "manual"}, c.Projector.Switch), "must be auto or manual"},
		{"feeds.origins", !slices.ContainsFunc(c.Feeds.Origins, isNoHostPattern), "must be hosts such as app.example.org or *.example.org, without scheme and path"},
		{"log.level", slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level), "must be debug, info, warn or error"},
		{"log.format", slices.Contains([]string{"json", "text"}, c.Log.Format), "must be json or text"},
	}
}

var (
	streamName    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	subjectPrefix = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,3}$`)
)

func (n NATS) rules() []rule {
	return []rule{
		between("nats.replicas", n.Replicas, 1, 5),
		between("nats.batch", n.Batch, 1, 1000),
		between("nats.workers", n.Workers, 1, 64),
		{"nats.duplicate_window", n.DuplicateWindow >= time.Second && n.DuplicateWindow <= 24*time.Hour, "is out of range; use 1s to 24h"},
		{"nats.timeout", n.Timeout >= 100*time.Millisecond && n.Timeout <= time.Minute, "is out of range; use 100ms to 1m"},
		{"nats.max_age", n.MaxAge == 0 || n.MaxAge >= time.Minute, "is out of range; use 1m and more, or 0"},
		{"nats.stream", streamName.MatchString(n.Stream), "must be 1 to 64 of letters, digits, underscore and hyphen, such as BACKBONE"},
		{"nats.subject_prefix", subjectPrefix.MatchString(n.SubjectPrefix), "must be one to four tokens of letters, digits, underscore and hyphen, such as backbone or erp.events"},
		{"nats.cert_file", (n.CertFile == "") == (n.KeyFile == ""), "and nats.key_file belong together; set both or none"},
	}
}

func (s Subscriptions) rules() []rule {
	return []rule{
		between("subscriptions.per_tenant", s.PerTenant, 1, 100_000),
		between("subscriptions.poll_bytes", s.PollBytes, 64<<10, 256<<20),
		between("subscriptions.sweep", s.Sweep, 50*time.Millisecond, time.Minute),
		between("subscriptions.recheck", s.Recheck, 50*time.Millisecond, time.Minute),
		between("subscriptions.measure", s.Measure, time.Second, 10*time.Minute),
		between("subscriptions.orphans", s.Orphans, time.Minute, 24*time.Hour),
	}
}

func (w Webhook) rules() []rule {
	return []rule{
		{"webhook.allowed_networks", !slices.ContainsFunc(w.AllowedNetworks, isNoNetwork), "must be networks such as 10.20.0.0/16 or fd00:1::/64"},
		{"webhook.timeout", w.Timeout >= 100*time.Millisecond && w.Timeout <= 5*time.Minute, "is out of range; use 100ms to 5m"},
		between("webhook.concurrency", w.Concurrency, 1, 64),
		{"webhook.secret_overlap", w.SecretOverlap >= 0 && w.SecretOverlap <= 30*24*time.Hour, "is out of range; use 0s to 720h"},
	}
}

var nodeID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// identities are the rules of the key service, of rotations and of the node.
func (c Config) identities() []rule {
	k := c.KMS
	return []rule{
		{
			"kms.local_directory", k.LocalDirectory == "" || k.Endpoint == "" && k.Region == "" && k.CredentialsFile == "",
			"is an embedded key server and excludes kms.endpoint, kms.region and kms.credentials_file; keep one of the two",
		},
		{
			"kms.endpoint", k.Endpoint == "" || strings.Contains(k.Endpoint, ":"),
			"must be a URL such as https://kms.eu-central-1.amazonaws.com or http://127.0.0.1:8089, or unix:PATH",
		},
		{"rotation.at", c.Rotation.At == "" || isTimeOfDay(c.Rotation.At), "must be a time of day in UTC such as 02:00, or empty"},
		{"node.id", c.Node.ID == "" || nodeID.MatchString(c.Node.ID), "must be 1 to 63 of letters, digits, dot, underscore and hyphen, or empty"},
	}
}

// isNoHostPattern reports whether an origin is no pattern of a host.
func isNoHostPattern(origin string) bool {
	_, err := path.Match(origin, "")
	return err != nil || origin == "" || strings.Contains(origin, "/")
}

func isNoNetwork(text string) bool {
	_, err := netip.ParsePrefix(text)
	return err != nil
}

func isTimeOfDay(text string) bool {
	_, err := time.Parse("15:04", text)
	return err == nil
}

func isHostPort(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= 0 && n <= 65535
}

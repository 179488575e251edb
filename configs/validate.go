package configs

import (
	"fmt"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Validate checks the ranges of all settings; its error is an *Error for the first wrong one. A
// DSN may be empty: the commands that need it check that.
func (c Config) Validate() error {
	type span struct {
		key       string
		value     int
		low, high int
	}
	for _, s := range []span{
		{"http.body_limit_bytes", c.HTTP.BodyLimitBytes, 1 << 10, 64 << 20},
		{"database.read_pool", c.Database.ReadPool, 1, 1000},
		{"database.appenders", c.Database.Appenders, 1, 64},
		{"database.physical_partitions", c.Database.PhysicalPartitions, 0, 256},
		{"engine.group_events", c.Engine.GroupEvents, 1, 10_000},
		{"engine.group_bytes", c.Engine.GroupBytes, 64 << 10, 256 << 20},
		{"engine.oversize_bytes", c.Engine.OversizeBytes, 1 << 10, c.Engine.GroupBytes},
		{"engine.queue_requests", c.Engine.QueueRequests, 1, 1_000_000},
		{"engine.queue_bytes", c.Engine.QueueBytes, 1 << 20, 1 << 30},
		{"engine.partition_requests", c.Engine.PartitionRequests, 1, c.Engine.QueueRequests},
		{"engine.partition_bytes", c.Engine.PartitionBytes, 64 << 10, c.Engine.QueueBytes},
		{"policy.cached_decisions", c.Policy.CachedDecisions, 1, 10_000_000},
		{"limits.event_bytes", c.Limits.EventBytes, 1 << 10, 16 << 20},
		{"limits.batch_events", c.Limits.BatchEvents, 1, 1000},
		{"limits.depth", c.Limits.Depth, 4, 32},
		{"limits.nodes", c.Limits.Nodes, 100, 50_000},
		{"limits.entity_refs", c.Limits.EntityRefs, 1, 128},
		{"limits.tags", c.Limits.Tags, 1, 32},
		{"intake.retries", len(c.Intake.Retries), 0, 10},
		{"query.snapshot_every", c.Query.SnapshotEvery, 10, 100_000},
		{"projector.batch", c.Projector.Batch, 1, 10_000},
		{"projector.bytes", c.Projector.Bytes, 64 << 10, 1 << 30},
		{"projector.workers", c.Projector.Workers, 1, 1000},
		{"projector.recompute_events", c.Projector.RecomputeEvents, 1, 1_000_000},
		{"projector.recompute_reads", c.Projector.RecomputeReads, 1, 100_000_000},
		{"projector.switch_within", c.Projector.SwitchWithin, 1, 100_000},
		{"feeds.per_principal", c.Feeds.PerPrincipal, 1, 100_000},
		{"feeds.per_node", c.Feeds.PerNode, 1, 100_000},
		{"feeds.batch", c.Feeds.Batch, 1, 1000},
		{"feeds.origins", len(c.Feeds.Origins), 0, 100},
		{"rotation.deletion_days", c.Rotation.DeletionDays, 7, 30},
	} {
		if s.value < s.low || s.value > s.high {
			return &Error{Key: s.key, Problem: fmt.Sprintf("is out of range; use %d to %d", s.low, s.high)}
		}
	}
	type period struct {
		key       string
		value     time.Duration
		low, high time.Duration
	}
	periods := []period{
		{"http.read_timeout", c.HTTP.ReadTimeout, time.Second, 10 * time.Minute},
		{"http.request_timeout", c.HTTP.RequestTimeout, time.Second, 10 * time.Minute},
		{"http.shutdown_timeout", c.HTTP.ShutdownTimeout, time.Second, 10 * time.Minute},
		{"engine.group_timeout", c.Engine.GroupTimeout, time.Second, 10 * time.Minute},
		{"engine.lock_timeout", c.Engine.LockTimeout, 10 * time.Millisecond, 10 * time.Minute},
		{"engine.lease_lock_timeout", c.Engine.LeaseLockTimeout, 10 * time.Millisecond, c.Engine.LockTimeout},
		{"engine.idle_timeout", c.Engine.IdleTimeout, 100 * time.Millisecond, time.Minute},
		{"engine.projection_idle_timeout", c.Engine.ProjectionIdleTimeout, 100 * time.Millisecond, 10 * time.Minute},
		{"engine.notify_timeout", c.Engine.NotifyTimeout, 100 * time.Millisecond, time.Minute},
		{"engine.listen_check", c.Engine.ListenCheck, time.Second, 10 * time.Minute},
		{"engine.max_clock_skew", c.Engine.MaxClockSkew, 10 * time.Millisecond, time.Minute},
		{"query.fold_budget", c.Query.FoldBudget, 10 * time.Millisecond, 30 * time.Second},
		{"projector.poll", c.Projector.Poll, 10 * time.Millisecond, time.Minute},
		{"projector.ttl", c.Projector.TTL, time.Second, time.Hour},
		{"projector.renew", c.Projector.Renew, 100 * time.Millisecond, c.Projector.TTL / 3},
		{"projector.stall", c.Projector.Stall, time.Second, time.Hour},
		{"delivery.poll", c.Delivery.Poll, 10 * time.Millisecond, time.Minute},
		{"feeds.heartbeat", c.Feeds.Heartbeat, time.Second, 10 * time.Minute},
		{"feeds.write_timeout", c.Feeds.WriteTimeout, time.Second, 10 * time.Minute},
		{"feeds.review", c.Feeds.Review, time.Second, time.Minute},
		{"idempotency.ttl", c.Idempotency.TTL, time.Minute, 30 * 24 * time.Hour},
		{"erasure.poll", c.Erasure.Poll, 50 * time.Millisecond, time.Minute},
		{"erasure.gate_interval", c.Erasure.GateInterval, time.Second, time.Minute},
		{"rotation.max_age", c.Rotation.MaximumAge, 24 * time.Hour, 10 * 365 * 24 * time.Hour},
	}
	for _, r := range c.Intake.Retries {
		periods = append(periods, period{"intake.retries", r, time.Millisecond, 10 * time.Second})
	}
	for _, p := range periods {
		if p.value < p.low || p.value > p.high {
			return &Error{Key: p.key, Problem: fmt.Sprintf("is out of range; use %s to %s", p.low, p.high)}
		}
	}
	if !hostPort(c.HTTP.Listen) {
		return &Error{Key: "http.listen", Problem: "must be host:port, such as 127.0.0.1:8080"}
	}
	if e := c.Telemetry.OTLPEndpoint; e != "" && !hostPort(e) {
		return &Error{Key: "telemetry.otlp_endpoint", Problem: "must be host:port, such as 127.0.0.1:4318, or empty"}
	}
	if !slices.Contains([]string{"notify", "poll"}, c.Delivery.Listen) {
		return &Error{Key: "delivery.listen", Problem: "must be notify or poll"}
	}
	if !slices.Contains([]string{"auto", "manual"}, c.Projector.Switch) {
		return &Error{Key: "projector.switch", Problem: "must be auto or manual"}
	}
	for _, o := range c.Feeds.Origins {
		if _, err := path.Match(o, ""); err != nil || o == "" || strings.Contains(o, "/") {
			return &Error{Key: "feeds.origins", Problem: "must be hosts such as app.example.org or *.example.org, without scheme and path"}
		}
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		return &Error{Key: "log.level", Problem: "must be debug, info, warn or error"}
	}
	if !slices.Contains([]string{"json", "text"}, c.Log.Format) {
		return &Error{Key: "log.format", Problem: "must be json or text"}
	}
	if err := c.NATS.validate(); err != nil {
		return err
	}
	if err := c.Subscriptions.validate(); err != nil {
		return err
	}
	if err := c.Webhook.validate(); err != nil {
		return err
	}
	return c.validateKeys()
}

var nodeID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (c Config) validateKeys() error {
	k := c.KMS
	switch {
	case k.LocalDirectory != "" && (k.Endpoint != "" || k.Region != "" || k.CredentialsFile != ""):
		return &Error{Key: "kms.local_directory", Problem: "is an embedded key server and excludes kms.endpoint, kms.region and kms.credentials_file; keep one of the two"}
	case k.Endpoint != "" && !strings.Contains(k.Endpoint, ":"):
		return &Error{Key: "kms.endpoint", Problem: "must be a URL such as https://kms.eu-central-1.amazonaws.com or http://127.0.0.1:8089, or unix:PATH"}
	case c.Rotation.At != "" && !isTimeOfDay(c.Rotation.At):
		return &Error{Key: "rotation.at", Problem: "must be a time of day in UTC such as 02:00, or empty"}
	case c.Node.ID != "" && !nodeID.MatchString(c.Node.ID):
		return &Error{Key: "node.id", Problem: "must be 1 to 63 of letters, digits, dot, underscore and hyphen, or empty"}
	}
	return nil
}

func isTimeOfDay(text string) bool {
	_, err := time.Parse("15:04", text)
	return err == nil
}

func hostPort(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= 0 && n <= 65535
}

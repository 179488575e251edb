package configs

import "time"

// Engine bounds the append engine and its sessions in the database. The defaults suit one
// server with one database; an operator changes a limit when a metric or an alarm suggests it.
type Engine struct {
	OnePartitionPerGroup  bool          `config:"one_partition_per_group"` // a transaction writes one legal entity, so that on Citus it stays on one shard
	GroupEvents           int           `config:"group_events"`            // events of one append transaction
	GroupBytes            int           `config:"group_bytes"`             // payloads of one append transaction
	OversizeBytes         int           `config:"oversize_bytes"`          // a larger request has a transaction of its own, so that small ones do not wait for it
	QueueRequests         int           `config:"queue_requests"`          // append queue: requests that wait for one appender; the engine refuses more
	QueueBytes            int           `config:"queue_bytes"`             // payloads of the requests in the queue of one appender
	PartitionRequests     int           `config:"partition_requests"`      // the share of one legal entity in them, so that it does not fill the queue
	PartitionBytes        int           `config:"partition_bytes"`         // the share of one legal entity in their payloads
	GroupTimeout          time.Duration `config:"group_timeout"`           // one append transaction
	LockTimeout           time.Duration `config:"lock_timeout"`            // a caller waits at most so long for a lock of another session
	LeaseLockTimeout      time.Duration `config:"lease_lock_timeout"`      // a node passes over leases that another session locks for longer
	IdleTimeout           time.Duration `config:"idle_timeout"`            // silence after which PostgreSQL ends an append session that holds locks
	ProjectionIdleTimeout time.Duration `config:"projection_idle_timeout"` // the same for other sessions in a transaction, such as one that holds a checkpoint or a cursor
	NotifyTimeout         time.Duration `config:"notify_timeout"`          // a notification that takes longer is dropped, and readers find the events by polling
	ListenCheck           time.Duration `config:"listen_check"`            // silence after which a listening connection is probed
	MaxClockSkew          time.Duration `config:"max_clock_skew"`          // between this node's clock and the database's; appends are refused beyond
}

func defaultEngine() Engine {
	return Engine{
		GroupEvents: 512, GroupBytes: 4 << 20, OversizeBytes: 512 << 10,
		QueueRequests: 4096, QueueBytes: 64 << 20, PartitionRequests: 2048, PartitionBytes: 32 << 20,
		GroupTimeout: 30 * time.Second, LockTimeout: 5 * time.Second, LeaseLockTimeout: 100 * time.Millisecond,
		IdleTimeout: 2 * time.Second, ProjectionIdleTimeout: 10 * time.Second, NotifyTimeout: 5 * time.Second,
		ListenCheck: 15 * time.Second, MaxClockSkew: time.Second,
	}
}

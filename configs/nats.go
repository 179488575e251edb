package configs

import (
	"regexp"
	"time"
)

// NATS configures the fan-out of all events to a stream of a NATS JetStream cluster.
type NATS struct {
	URLs            DSN           `config:"urls"`             // of the cluster's servers, separated by commas; empty: no fan-out. They may hold a password
	Credentials     string        `config:"credentials"`      // .creds file; empty: none
	CAFile          string        `config:"ca_file"`          // root certificates; empty: the system's
	CertFile        string        `config:"cert_file"`        // of this client; empty: none
	KeyFile         string        `config:"key_file"`         // of cert_file
	Stream          string        `config:"stream"`           // the node creates it if it does not exist, else only checks it
	SubjectPrefix   string        `config:"subject_prefix"`   // subjects are <prefix>.<tenant>.<legal entity>.<type>
	Replicas        int           `config:"replicas"`         // of a new stream; an existing one must have at least as many
	DuplicateWindow time.Duration `config:"duplicate_window"` // within which the stream stores a repeated message once; an existing stream must have at least this
	MaxAge          time.Duration `config:"max_age"`          // of the messages of a new stream; 0: unlimited
	Reader          string        `config:"reader"`           // person id of the principal whose rights decide which personal values are published in clear; empty: none
	Batch           int           `config:"batch"`            // events of one batch
	Workers         int           `config:"workers"`          // legal entities that publish at the same time
	Timeout         time.Duration `config:"timeout"`          // for the acknowledgement of a batch
}

// Configured reports whether the fan-out is configured.
func (n NATS) Configured() bool { return n.URLs != "" }

func defaultNATS() NATS {
	return NATS{
		Stream: "BACKBONE", SubjectPrefix: "backbone", Replicas: 1, DuplicateWindow: 2 * time.Minute,
		Batch: 256, Workers: 4, Timeout: 5 * time.Second,
	}
}

var (
	streamName    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	subjectPrefix = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,3}$`)
)

func (n NATS) validate() error {
	switch {
	case n.Replicas < 1 || n.Replicas > 5:
		return &Error{Key: "nats.replicas", Problem: "is out of range; use 1 to 5"}
	case n.Batch < 1 || n.Batch > 1000:
		return &Error{Key: "nats.batch", Problem: "is out of range; use 1 to 1000"}
	case n.Workers < 1 || n.Workers > 64:
		return &Error{Key: "nats.workers", Problem: "is out of range; use 1 to 64"}
	case n.DuplicateWindow < time.Second || n.DuplicateWindow > 24*time.Hour:
		return &Error{Key: "nats.duplicate_window", Problem: "is out of range; use 1s to 24h"}
	case n.Timeout < 100*time.Millisecond || n.Timeout > time.Minute:
		return &Error{Key: "nats.timeout", Problem: "is out of range; use 100ms to 1m"}
	case n.MaxAge != 0 && n.MaxAge < time.Minute:
		return &Error{Key: "nats.max_age", Problem: "is out of range; use 1m and more, or 0"}
	case !streamName.MatchString(n.Stream):
		return &Error{Key: "nats.stream", Problem: "must be 1 to 64 of letters, digits, underscore and hyphen, such as BACKBONE"}
	case !subjectPrefix.MatchString(n.SubjectPrefix):
		return &Error{Key: "nats.subject_prefix", Problem: "must be one to four tokens of letters, digits, underscore and hyphen, such as backbone or erp.events"}
	case (n.CertFile == "") != (n.KeyFile == ""):
		return &Error{Key: "nats.cert_file", Problem: "and nats.key_file belong together; set both or none"}
	default:
		return nil
	}
}

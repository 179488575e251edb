package configs

import "time"

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

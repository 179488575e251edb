// Package nats publishes events to a stream of a NATS JetStream cluster.
//
// Where the stream allows it (nats-server 2.12 and later), it publishes atomic batches: the
// broker stores all messages of a batch in their order, or none. On other streams one message
// of a partition is in flight at a time, since a broker that changes its leader may lose one of
// several and store the next. Either way the broker drops messages whose id it has stored within
// the stream's duplicate window.
package nats

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Config names the broker and the stream.
type Config struct {
	URLs          []string // of several servers of the cluster
	Credentials   string   // .creds file; "": none
	CAFile        string   // root certificates; "": the system's
	CertFile      string   // of this client, with KeyFile; "": none
	KeyFile       string
	Stream        string        // name
	SubjectPrefix string        // first tokens of every subject
	MaxAge        time.Duration // of stored messages; only for a new stream; 0: no limit

	Limits
	Logger      *slog.Logger // nil: silent
	Reconnected func()       // called when the broker is back; nil: none
}

// Limits bound a Publisher and its stream; all are required.
type Limits struct {
	// What the stream is created with; an existing stream must have at least this.
	Replicas        int
	DuplicateWindow time.Duration

	Timeout time.Duration // until a message or a batch must be acknowledged
	Batch   int           // messages of one atomic batch; at most 1000, which is what a server accepts
}

// Publisher implements ports.Publisher.
type Publisher struct {
	config Config
	conn   *client.Conn
	js     jetstream.JetStream

	mu          sync.Mutex
	stream      *streamLimits                   // nil: the stream is not read yet
	lastRefusal atomic.Pointer[connectionError] // newest refusal of rights
}

// streamLimits are the settings of the stream that Publish obeys.
type streamLimits struct {
	atomic   bool
	maxBytes int // of a message; 0: only the server's limit
}

// connectionError is an error that the server sent outside of the answers to requests.
type connectionError struct {
	at   time.Time
	text string
}

// Open connects in the background, so that the broker may start later. Fault:
// publisher.config_invalid.
func Open(c Config) (*Publisher, error) {
	if err := fault.RequirePositive("nats.Config", c.Limits); err != nil {
		return nil, err
	}
	if c.Stream == "" || c.SubjectPrefix == "" {
		return nil, errors.New("nats.Config: Stream or SubjectPrefix is empty; give both, as package configs has them")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Publisher{config: c}
	options, err := p.options()
	if err != nil {
		return nil, err
	}
	options.Servers = c.URLs
	p.conn, err = options.Connect()
	if err != nil {
		return nil, fault.New(fault.Invalid, "publisher.config_invalid", "the broker's addresses, credentials or certificates cannot be used; correct the settings nats.*").WithCause(err)
	}
	if p.js, err = jetstream.New(p.conn, jetstream.WithDefaultTimeout(c.Timeout)); err != nil {
		p.conn.Close()
		return nil, fault.New(fault.Internal, "publisher.config_invalid", "no JetStream context could be made; report this").WithCause(err)
	}
	return p, nil
}

func (p *Publisher) options() (client.Options, error) {
	o := client.GetDefaultOptions()
	o.Name = "backbone"
	o.AllowReconnect, o.MaxReconnect, o.RetryOnFailedConnect = true, -1, true
	o.ReconnectWait, o.ReconnectJitter = 500*time.Millisecond, 500*time.Millisecond
	o.PingInterval, o.MaxPingsOut = 5*time.Second, 2
	// No message is buffered while the broker is unavailable: after an error the dispatcher
	// publishes again from the cursor.
	o.ReconnectBufSize = -1
	var apply []client.Option
	if p.config.Credentials != "" {
		apply = append(apply, client.UserCredentials(p.config.Credentials))
	}
	if p.config.CAFile != "" {
		apply = append(apply, client.RootCAs(p.config.CAFile))
	}
	if p.config.CertFile != "" {
		apply = append(apply, client.ClientCert(p.config.CertFile, p.config.KeyFile))
	}
	for _, option := range apply {
		if err := option(&o); err != nil {
			return o, fault.New(fault.Invalid, "publisher.config_invalid", "credentials or certificates cannot be read; correct the settings nats.*").WithCause(err)
		}
	}
	back := func(*client.Conn) {
		p.forgetStream()
		if p.config.Reconnected != nil {
			p.config.Reconnected()
		}
	}
	o.ConnectedCB, o.ReconnectedCB = back, back
	o.DisconnectedErrCB = func(_ *client.Conn, err error) {
		if err != nil {
			p.config.Logger.Warn("the connection to NATS was lost; reconnecting", "error", err.Error())
		}
	}
	o.AsyncErrorCB = func(_ *client.Conn, _ *client.Subscription, err error) {
		if errors.Is(err, client.ErrPermissionViolation) || errors.Is(err, client.ErrAuthorization) {
			p.lastRefusal.Store(&connectionError{time.Now(), err.Error()})
		}
		p.config.Logger.Warn("error of the connection to NATS", "error", err.Error())
	}
	return o, nil
}

// Close ends the connection.
func (p *Publisher) Close() { p.conn.Close() }

// forgetStream makes the next Publish read the stream again.
func (p *Publisher) forgetStream() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stream = nil
}

// Publish implements ports.Publisher.
func (p *Publisher) Publish(ctx context.Context, messages []ports.Message) (ports.Published, error) {
	var done ports.Published
	stream, err := p.verify(ctx)
	if err != nil {
		return done, err
	}
	largest := int(p.conn.MaxPayload())
	if stream.maxBytes > 0 {
		largest = min(largest, stream.maxBytes)
	}
	if largest <= 0 {
		return done, unavailable("the broker was not reached yet", nil)
	}
	out := make([]*client.Msg, 0, len(messages))
	var tooLarge error
	for i := range messages {
		m := p.message(&messages[i])
		if size(m) > largest {
			tooLarge = p.tooLarge(largest)
			break
		}
		out = append(out, m)
	}
	for len(out) > 0 {
		n := 1
		var stored ports.Published
		if stream.atomic {
			n = min(len(out), p.config.Batch)
		}
		if n > 1 {
			stored, err = p.batch(ctx, out[:n])
		} else {
			stored, err = p.single(ctx, out[0])
		}
		done.Stored += stored.Stored
		done.Duplicates += stored.Duplicates
		if err != nil {
			return done, err
		}
		out = out[n:]
	}
	return done, tooLarge
}

func (p *Publisher) tooLarge(largest int) error {
	return fault.New(fault.TooLarge, "publisher.too_large", "the broker accepts messages of at most %d bytes; raise max_payload and the stream's limit, or let the data be read over the API", largest)
}

// single publishes a message and waits until it is stored.
func (p *Publisher) single(ctx context.Context, m *client.Msg) (ports.Published, error) {
	bounded, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	ack, err := p.js.PublishMsg(bounded, m, jetstream.WithRetryAttempts(0))
	if err != nil {
		return ports.Published{}, p.translate(ctx, err)
	}
	done := ports.Published{Stored: 1}
	if ack.Duplicate {
		done.Duplicates = 1
	}
	return done, nil
}

// Headers of an atomic batch.
const (
	batchID       = "Nats-Batch-Id"
	batchSequence = "Nats-Batch-Sequence"
	batchCommit   = "Nats-Batch-Commit"
)

// batch publishes messages of which the broker stores all or none. If the broker has stored
// one of them before, its answer was lost; they are then published one by one.
func (p *Publisher) batch(ctx context.Context, messages []*client.Msg) (ports.Published, error) {
	bounded, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	id := rand.Text()
	last := len(messages) - 1
	for i, m := range messages {
		m.Header[batchID] = []string{id}
		m.Header[batchSequence] = []string{strconv.Itoa(i + 1)}
		if i < last {
			if err := p.conn.PublishMsg(m); err != nil {
				return ports.Published{}, p.translate(ctx, err)
			}
		}
	}
	messages[last].Header[batchCommit] = []string{"1"}
	answer, err := p.conn.RequestMsgWithContext(bounded, messages[last])
	if err != nil {
		return ports.Published{}, p.translate(ctx, err)
	}
	var ack struct {
		Error *jetstream.APIError `json:"error"`
		Batch string              `json:"batch"`
		Count int                 `json:"count"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return ports.Published{}, p.translate(ctx, err)
	}
	switch {
	case ack.Error != nil && ack.Error.ErrorCode == codeDuplicateInBatch:
		return p.oneByOne(ctx, messages)
	case ack.Error != nil:
		return ports.Published{}, p.translate(ctx, ack.Error)
	case ack.Batch != id || ack.Count != len(messages):
		return ports.Published{}, unavailable("the broker acknowledged another batch", nil)
	}
	return ports.Published{Stored: len(messages)}, nil
}

func (p *Publisher) oneByOne(ctx context.Context, messages []*client.Msg) (done ports.Published, err error) {
	for _, m := range messages {
		for _, header := range []string{batchID, batchSequence, batchCommit} {
			delete(m.Header, header)
		}
		one, err := p.single(ctx, m)
		done.Stored += one.Stored
		done.Duplicates += one.Duplicates
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

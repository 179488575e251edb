package nats

import (
	"context"
	"errors"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Error codes of the server that are handled specially.
const (
	codeMessageTooLarge   = 10054
	codeDuplicateInBatch  = 10201
	codeDuplicateInFlight = 10158
	codeBatchIncomplete   = 10176
	codeStreamNotFound    = 10059
	codeStreamOffline     = 10118
)

// connectionErrorLife is how long an error of the connection explains a request that got no
// answer.
const connectionErrorLife = 10 * time.Second

func unavailable(what string, cause error) *fault.Error {
	return fault.New(fault.Unavailable, "publisher.unavailable", "%s; it will be tried again", what).WithRetryAfter(time.Second).WithCause(cause)
}

func refused(what string, cause error) *fault.Error {
	return fault.New(fault.FailedPrecondition, "publisher.refused", "%s; correct the stream, its limits or the rights of this client", what).WithCause(cause)
}

// translate converts an error of the client or the server to a fault. The error of the
// caller's own context is returned unchanged.
func (p *Publisher) translate(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if f, ok := fault.As(err); ok {
		return f
	}
	if errors.Is(err, client.ErrMaxPayload) {
		return p.tooLarge(int(p.conn.MaxPayload()))
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		switch {
		case api.ErrorCode == codeMessageTooLarge:
			p.forgetStream() // its limit was lowered
			return p.tooLarge(int(p.conn.MaxPayload()))
		case api.ErrorCode == codeStreamNotFound:
			p.forgetStream()
			return unavailable("the stream is gone", err)
		case api.Code == 503, api.Code == 429, api.Code == 504, api.ErrorCode == codeDuplicateInFlight, api.ErrorCode == codeBatchIncomplete, api.ErrorCode == codeStreamOffline:
			return unavailable("the broker cannot take messages now", err)
		default:
			p.forgetStream() // an operator may correct it
			return refused("the broker refuses messages: "+api.Description, err)
		}
	}
	if c := p.lastRefusal.Load(); c != nil && time.Since(c.at) < connectionErrorLife {
		return refused("the broker does not permit this to the client", errors.New(c.text))
	}
	return unavailable("the broker does not answer", err)
}

package witness

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// maxAnswer bounds an answer: some lines of signatures.
const maxAnswer = 16 << 10

// Client asks a witness to sign checkpoints.
type Client struct {
	url  string
	key  string
	http *http.Client
}

var _ ports.Witness = (*Client)(nil)

// NewClient makes a client of the witness with a verifier key, at the URL before "/add-checkpoint". A request takes
// as long as timeout at most.
func NewClient(url, key string, timeout time.Duration) *Client {
	return &Client{strings.TrimSuffix(url, "/"), key, &http.Client{
		Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// VerifierKey implements ports.Witness.
func (c *Client) VerifierKey() string { return c.key }

// AddCheckpoint implements ports.Witness.
func (c *Client) AddCheckpoint(ctx context.Context, x globallog.Extension) (lines []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/add-checkpoint", bytes.NewReader(x.Encode()))
	if err != nil {
		return nil, unreachable(err)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, unreachable(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, unreachable(err)
	}
	switch answer.StatusCode {
	case http.StatusOK:
		return text, nil
	case http.StatusConflict:
		if size, err := strconv.ParseUint(strings.TrimSuffix(string(text), "\n"), 10, 63); err == nil {
			return nil, fault.New(fault.Conflict, "witness.size_differs", "the newest checkpoint that the witness signed has %d events", size).WithNumbers(x.From, size)
		}
	case http.StatusUnprocessableEntity:
		return nil, fault.New(fault.FailedPrecondition, "witness.inconsistent", "the witness has signed another log; keep the database as it is, and ask it for its checkpoint")
	}
	return nil, unreachable(nil).With("status", answer.StatusCode)
}

func unreachable(err error) *fault.Error {
	return fault.New(fault.Unavailable, "witness.unavailable", "the witness does not answer, or refuses; check its address, and that it knows the key of the log").WithCause(err)
}

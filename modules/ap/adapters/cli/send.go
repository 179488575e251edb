package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/fault"
)

// retryWaits are the pauses before the retries of a request, unless the server sends a
// Retry-After.
var retryWaits = []time.Duration{200 * time.Millisecond, 800 * time.Millisecond, 3200 * time.Millisecond}

// maxRetryWait bounds the pause that a server may ask for.
const maxRetryWait = 30 * time.Second

// runningTries bounds further retries while the server still processes a request with the
// same key, for example that of another import. The server ends every request after a
// minute and asks for pauses of a second.
const runningTries = 90

// errNotSent is the error of a request that was never started.
var errNotSent = errors.New("the import has ended")

// answerClass says what an answer means for the request.
type answerClass int

const (
	decided  answerClass = iota // the server decided about this request
	busy                        // the server did nothing and may accept the request later
	running                     // the server is already processing this request
	unknown                     // the request may or may not have taken effect
	rejected                    // the server will refuse every request of this import
)

func classify(err error) answerClass {
	f, ok := fault.As(err)
	if !ok {
		return unknown
	}
	switch f.Code {
	case "intent.forbidden", "auth.forbidden", "legal_entity.not_found":
		return rejected
	case "idempotency.in_progress":
		return running
	case concurrency.CodeWrongExpectedVersion, concurrency.CodeConditionFailed, concurrency.CodeConditionTooOld:
		return busy
	}
	switch f.Kind {
	case fault.Unauthenticated:
		return rejected
	case fault.Unavailable, fault.TooMany:
		return busy
	case fault.Timeout, fault.Internal:
		return unknown
	default:
		return decided
	}
}

// submission is an intent with its idempotency key: printable ASCII, at most 255
// bytes.
type submission struct {
	client.IntentRequest
	key string
	// content stands for the payload in a further key, "": the payload itself.
	content string
}

// outcome is the server's answer to a submission.
type outcome struct {
	client.IntentOutcome
	replayed bool // the server knew the key and gave its first answer again
}

// send submits an intent and retries while the server is busy or does not answer, which
// the idempotency key makes safe. If the server knows the key with other content, for
// example because this run has a posting date, send uses a key that includes a digest of
// the content; the server then finds duplicates by the document's number.
func (r *run) send(s submission) (outcome, error) {
	out, err := r.sendWithRetries(s)
	if code := fault.CodeOf(err); code == "intent.idempotency_mismatch" || code == concurrency.CodeIdempotencyMismatch {
		s.key = idempotencyKey(s.key, digest(s.EffectiveDate, cmp.Or(s.content, string(s.Payload))))
		out, err = r.sendWithRetries(s)
	}
	return out, err
}

func (r *run) sendWithRetries(s submission) (outcome, error) {
	return withRetries(r, func(outcomeUnknown bool) (out outcome, err error) {
		out.IntentOutcome, err = r.api.SubmitIntent(r.requests, client.SubmitIntentParams{IdempotencyKey: s.key}, s.IntentRequest, client.Replayed(&out.replayed))
		// The replay of a request of this call whose answer was lost counts as the first
		// answer, not as a duplicate.
		out.replayed = out.replayed && !outcomeUnknown
		return out, err
	})
}

// withRetries sends a request until the server decides about it. outcomeUnknown is true once an
// earlier request of this call may have taken effect.
func withRetries[T any](r *run, send func(outcomeUnknown bool) (T, error)) (none T, _ error) {
	outcomeUnknown := false
	retries, runningLeft := retryWaits, runningTries
	for {
		if r.ctx.Err() != nil && !outcomeUnknown {
			return none, errNotSent
		}
		out, err := send(outcomeUnknown)
		class := classify(err)
		if err == nil {
			class = decided
		}
		r.recordAnswer(class, err)
		outcomeUnknown = outcomeUnknown || class == unknown
		if class == decided || class == rejected {
			return out, err
		}
		pause := retryWaits[len(retryWaits)-1]
		switch {
		case len(retries) > 0:
			pause, retries = retries[0], retries[1:]
		case class == running && runningLeft > 0:
			runningLeft--
		default:
			return out, err
		}
		if f, ok := fault.As(err); ok && f.RetryAfter > 0 {
			pause = min(f.RetryAfter, maxRetryWait)
		}
		if r.Wait(r.ctx, pause) != nil {
			return none, err
		}
	}
}

// recordAnswer stops the import when the server rejects a request or many requests in a
// row have no usable answer. The limit is above the retries of a single file, so one file
// that the server cannot handle does not stop the import.
func (r *run) recordAnswer(m answerClass, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m {
	case decided, running:
		r.unanswered = 0
	case rejected:
		r.stop(err)
	default:
		if r.unanswered++; r.unanswered > max(2, r.Parallel)*(len(retryWaits)+1) {
			r.stop(err)
		}
	}
}

// maxKey is the longest key without the digest that send may add; a key has at most 255
// bytes.
const maxKey = 255 - 1 - 2*sha256.Size

// idempotencyKey joins the parts. A key that is too long or that a header cannot carry is
// replaced by its digest.
func idempotencyKey(parts ...string) string {
	key := strings.Join(parts, "|")
	unfit := func(c rune) bool { return c <= ' ' || c > '~' }
	if len(key) > maxKey || strings.ContainsFunc(key, unfit) {
		return digest(parts...)
	}
	return key
}

// digest is the SHA-256 of the parts, in lower case hexadecimal.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x1f")))
	return hex.EncodeToString(sum[:])
}

// reason describes an error for the terminal.
func reason(err error) string {
	if f, ok := fault.As(err); ok {
		return f.Detail + " (" + f.Code + ")"
	}
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return err.Error()
}

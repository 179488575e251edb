package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// retryWaits are the pauses before a request is sent again, unless the server
// names another.
var retryWaits = []time.Duration{200 * time.Millisecond, 800 * time.Millisecond, 3200 * time.Millisecond}

// maxRetryWait bounds the pause that a server may ask for.
const maxRetryWait = 30 * time.Second

// runningTries is how many more times a request is sent that the server is still
// processing, such as another import's: the server ends every request after a minute, and
// asks for pauses of a second.
const runningTries = 90

// errNotSent is the error of a request that was never started.
var errNotSent = errors.New("the import has ended")

// answerClass is what an answer means for the request.
type answerClass int

const (
	decided  answerClass = iota // the server decided about this request
	busy                        // it did nothing, and may do so later
	running                     // it is processing this request already
	unknown                     // whether it did something is unknown
	rejected                    // it will refuse all requests like this one
)

// classify classifies an error of the API.
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
}

// outcome is the server's answer to a submission.
type outcome struct {
	client.IntentOutcome
	replayed bool // the server knew the key and gave its first answer again
}

// send submits an intent, again while the server is busy or does not answer: the
// idempotency key makes that safe. A server that knows the key with another
// content, say because a posting date was given this time, gets the request under a key
// for exactly this content, and then judges by the document itself. The key of a
// vendor is made of the file's hash instead: a registration may be about a person,
// and a name can be found from its hash by hashing names.
func (r *run) send(s submission) (outcome, error) {
	out, err := r.sendWithRetries(s)
	if code := fault.CodeOf(err); code == "intent.idempotency_mismatch" || code == concurrency.CodeIdempotencyMismatch {
		content := string(s.Payload)
		if s.Type == contract.IntentRegisterVendor {
			content = s.Source.Reference
		}
		s.key = idempotencyKey(s.key, digest(s.EffectiveDate, content))
		out, err = r.sendWithRetries(s)
	}
	return out, err
}

func (r *run) sendWithRetries(s submission) (outcome, error) {
	outcomeUnknown := false // an earlier request of this call may have done it
	retries, runningLeft := retryWaits, runningTries
	for {
		if r.ctx.Err() != nil && !outcomeUnknown {
			return outcome{}, errNotSent
		}
		var out outcome
		var err error
		out.IntentOutcome, err = r.api.SubmitIntent(r.requests, client.SubmitIntentParams{IdempotencyKey: s.key}, s.IntentRequest, client.Replayed(&out.replayed))
		meant := classify(err)
		if err == nil {
			meant = decided
			// A replay of a request of this call whose answer was lost is reported as
			// the first answer.
			out.replayed = out.replayed && !outcomeUnknown
		}
		r.recordAnswer(meant, err)
		outcomeUnknown = outcomeUnknown || meant == unknown
		if meant == decided || meant == rejected {
			return out, err
		}
		pause := retryWaits[len(retryWaits)-1]
		switch {
		case len(retries) > 0:
			pause, retries = retries[0], retries[1:]
		case meant == running && runningLeft > 0:
			runningLeft--
		default:
			return out, err
		}
		if f, ok := fault.As(err); ok && f.RetryAfter > 0 {
			pause = min(f.RetryAfter, maxRetryWait)
		}
		if r.Wait(r.ctx, pause) != nil {
			return outcome{}, err
		}
	}
}

// recordAnswer stops the import when the server rejects a request, or leaves many in a row
// unanswered. One file that it cannot handle stops nothing.
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

// maxKey leaves room for the digest that send may add to a key, within the 255
// bytes that a key has at most.
const maxKey = 255 - 1 - 2*sha256.Size

// idempotencyKey joins parts to a key. What a header cannot carry, or is too long,
// is replaced by its digest.
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

// reason words an error for the terminal.
func reason(err error) string {
	if f, ok := fault.As(err); ok {
		return f.Detail + " (" + f.Code + ")"
	}
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return err.Error()
}

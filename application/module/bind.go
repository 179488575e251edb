package module

import (
	"encoding/hex"
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// BindRequest binds the row of a request's idempotency key to its last event. It is called with
// the request as it is appended.
func BindRequest(r *ports.AppendRequest) error {
	if r.Idempotency == nil || len(r.Events) == 0 {
		return nil
	}
	var intentID event.ID
	if r.Intent != nil {
		intentID = r.Intent.Intent.ID
	}
	stored, expires := r.Idempotency.StoredHash(), event.Micros(r.Idempotency.ExpiresAt)
	digest := concurrency.RequestDigest(r.Idempotency.Key, stored[:], intentID, len(r.Events), expires)
	binding, err := json.Marshal(concurrency.RequestBinding{Digest: hex.EncodeToString(digest[:]), ExpiresAt: expires.UTC()})
	if err != nil {
		return err
	}
	last := &r.Events[len(r.Events)-1]
	payload := make([]byte, 0, len(last.Payload)+len(binding)+len(`,"request":`))
	payload = append(payload, last.Payload[:len(last.Payload)-1]...) // ends with the brace of an object that has members
	payload = append(append(append(payload, `,"request":`...), binding...), '}')
	last.Payload = payload
	if last.PayloadHashDone {
		last.PayloadHash = event.HashPayload(last.Salt, payload)
	}
	return nil
}

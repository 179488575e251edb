package concurrency

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// requestDomain separates these hashes from the other formats.
const requestDomain = "backbone/request/v1"

// RequestBinding ties the row of an idempotency key to the last event of its request, whose
// payload holds it as the member request. The chain covers the payload, so an edit of the row, by
// which a repeated request would get another answer or run again, contradicts the chain.
type RequestBinding struct {
	Digest    string    `json:"digest"` // RequestDigest in hex
	ExpiresAt time.Time `json:"expires_at"`
}

// RequestDigest hashes the row of an idempotency key: SHA-256(L(domain) ‖ L(key) ‖ L(stored
// hash) ‖ L(intent's id) ‖ u64 number of events ‖ i64 expiry in microseconds), L(x) the length of
// x in 4 bytes followed by x. It leaves out the sequences of the events, which follow from the
// event that holds the digest.
func RequestDigest(key string, stored []byte, intentID event.ID, events int, expiresAt time.Time) event.Hash {
	var preimage []byte
	for _, field := range [][]byte{[]byte(requestDomain), []byte(key), stored, intentID[:]} {
		preimage = append(binary.BigEndian.AppendUint32(preimage, uint32(len(field))), field...)
	}
	preimage = binary.BigEndian.AppendUint64(preimage, uint64(events))
	preimage = binary.BigEndian.AppendUint64(preimage, uint64(expiresAt.UnixMicro()))
	return sha256.Sum256(preimage)
}

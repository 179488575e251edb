package testkit

import (
	"context"
	"crypto/sha256"

	"github.com/erpbackbone/backbone/domain/event"
)

// Secrets authenticates texts as a vault does, under a secret that is the same everywhere.
type Secrets struct {
	Err error // of every call; nil: none
}

// Authenticate returns a digest of the tenant, purpose and text.
func (s *Secrets) Authenticate(_ context.Context, tenantID, purpose string, text []byte) (event.Hash, error) {
	if s.Err != nil {
		return event.Hash{}, s.Err
	}
	return sha256.Sum256(append([]byte("secret\x00"+tenantID+"\x00"+purpose+"\x00"), text...)), nil
}

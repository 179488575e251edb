package domain

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/shredding"
)

// SealedOnly returns a sealed value or the mark "[REDACTED]", and nil for everything else:
// states never hold personal data in clear, which events from before key management may have.
func SealedOnly(value json.RawMessage) json.RawMessage {
	if string(value) == shredding.Redacted {
		return value
	}
	found, err := shredding.FindSealed(value)
	if err != nil || len(found) != 1 || found[0].Pointer != "" {
		return nil
	}
	return value
}

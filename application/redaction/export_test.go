package redaction

import (
	"context"

	"github.com/erpbackbone/backbone/ports"
)

// RequireApproval lets tests read the detail of its fault, of which a request keeps only the code.
func (c Config) RequireApproval(ctx context.Context, r ports.RedactionRequest) error {
	return c.requireApproval(ctx, r)
}

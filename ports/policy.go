package ports

import "context"

// PolicyModule is one Rego file.
type PolicyModule struct {
	Path   string // "modules/ap/policy/ap.rego"
	Source string
}

// PolicyEngine decides. A failure to decide is never a permission, and reported as an
// error.
type PolicyEngine interface {
	// Decide evaluates a query such as "data.backbone.authz.decision" on the input and
	// decodes the resulting object into out, a pointer to a zero value. Callers that ask the
	// same may share what out refers to, so they must not change slices and maps of it. Fault policy.undecided on any failure:
	// Unavailable when the evaluation ran out of time, which says nothing about the
	// question, Forbidden when the policy fails, says nothing or something else.
	Decide(ctx context.Context, query string, input any, out any) error
	// Digest identifies the loaded policies; it is part of every plan hash.
	Digest() string
}

package ports

import (
	"context"

	"github.com/erpbackbone/backbone/domain/projection"
)

// ProjectionRegister stores the versions of all projections.
type ProjectionRegister interface {
	// AddProjection registers a version with revision 1 and returns it, or the version that is
	// registered under this number already. A projection has at most one active version and, for
	// each scope, at most one that is building, retained or saving, see projection.Role. It needs
	// an active version before one is built or saved. Faults: projection.not_found when these
	// rules do not allow the version, so that there is none of this number afterwards, as for the
	// loser when two callers start a rebuild at once; projection.wrong_expected_version
	// when a version other than ExpectedActive is active; those of projection.CheckLimits for
	// custom projections.
	AddProjection(ctx context.Context, p projection.Projection) (projection.Projection, error)
	// ListProjections lists the versions of all projections, by name and version. It lists a
	// dropped version only if it is the latest of its projection.
	ListProjections(ctx context.Context) ([]projection.Projection, error)
	// NamedProjections lists all versions of one projection, by version. The list is empty for
	// an unknown name.
	NamedProjections(ctx context.Context, name string) ([]projection.Projection, error)
	// ChangeProjection writes status, settings and ChangedBy, and raises the revision. Faults:
	// projection.not_found, projection.changed (Conflict) if its revision is not p's: read it
	// again.
	ChangeProjection(ctx context.Context, p projection.Projection) (projection.Projection, error)
}

package ports

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
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

// ProjectionRecord is what the administrative log has of a projection.
type ProjectionRecord struct {
	Name       string        // in its tenant, or of a projection of a module
	Version    event.Version // of its stream; 0: nothing was recorded
	Definition []byte        // the newest; nil for a projection of a module
	Removed    bool
	// Versions are those of a custom projection; none for one of a module, which all tenants share.
	Versions projection.DecidedVersions
	Latest   ProjectionDecision // the newest, without By and Versions
}

// Exists reports whether the projection was defined and not removed. The record of a module's
// projection has decisions about it alone: its program defines it.
func (r ProjectionRecord) Exists() bool { return len(r.Definition) > 0 && !r.Removed }

// ProjectionAction says what was decided about a version of a projection.
type ProjectionAction string

// The actions.
const (
	ProjectionRebuildStarted ProjectionAction = "rebuild_started"
	ProjectionActivated      ProjectionAction = "activated" // readers see it, in one partition or in all
	ProjectionVersionDropped ProjectionAction = "version_dropped"
	ProjectionOperated       ProjectionAction = "operated"
	ProjectionConfigured     ProjectionAction = "configured"
)

// ProjectionDecision is a decision about a version of a projection.
type ProjectionDecision struct {
	Action    ProjectionAction
	Version   int
	Partition event.PartitionID // 0: all that the version reads, or Partitions
	Operation projection.Action // of ProjectionOperated
	// Partitions are those that a fix or reset of all legal entities covers: the ones that the person
	// may see.
	Partitions []event.PartitionID
	Sequence   event.Sequence // that is skipped
	Settings   *projection.Settings
	Force      bool                       // activated although it lacked events
	Reason     string                     // no personal data
	By         string                     // person id; "": this server
	Versions   projection.DecidedVersions // of a custom projection, as they are from now on
}

// ProjectionDecisions records decisions about projections in the administrative log, before the
// register has them. by is a person id. Fault of all decisions: projection.changed if another one
// came after before.
type ProjectionDecisions interface {
	// Projection returns the newest record of a name.
	Projection(ctx context.Context, tenantID, name string) (ProjectionRecord, error)
	// Projections returns the newest record of every name, also of removed ones.
	Projections(ctx context.Context, tenantID string) ([]ProjectionRecord, error)
	// Define records a custom projection's version with its definition and settings.
	Define(ctx context.Context, tenantID string, before ProjectionRecord, p projection.Projection, by string) error
	// Decide records a decision about a version.
	Decide(ctx context.Context, tenantID string, before ProjectionRecord, d ProjectionDecision) error
	// Remove records that a projection is deleted.
	Remove(ctx context.Context, tenantID string, before ProjectionRecord, by string) error
}

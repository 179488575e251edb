package projections

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Decider is who decides about a projection.
type Decider struct {
	By     string // person id
	Tenant string // of the person; "": this server
}

// decide records a decision about a version. A decision about a projection of a tenant enters the
// log of that tenant, one about a projection of a module the log of the person's tenant; what a
// node decides by itself about the latter is not recorded. change says what it changes in the
// recorded versions of the former. Fault projection.changed if another decision came in between.
func decide(ctx context.Context, decisions ports.ProjectionDecisions, who Decider, fullName string, d ports.ProjectionDecision, change func(projection.DecidedVersions) projection.DecidedVersions) error {
	if decisions == nil {
		return nil
	}
	tenant, name, isCustom := projection.SplitName(fullName)
	if who.Tenant != "" {
		d.By = who.By
	}
	if !isCustom {
		if tenant = who.Tenant; tenant == "" {
			return nil
		}
	}
	before, err := decisions.Projection(ctx, tenant, name)
	if err != nil {
		return err
	}
	if isCustom {
		if !before.Exists() {
			return fault.New(fault.FailedPrecondition, "projection.unrecorded", "no event created this projection; have `backbone verify` run, delete it, and create it again")
		}
		if _, taken := before.Versions.Find(d.Version); taken && d.Action == ports.ProjectionRebuildStarted { // another caller was faster
			return projection.Rebuilding(fullName)
		}
		d.Versions = change(before.Versions)
	}
	return decisions.Decide(ctx, tenant, before, d)
}

// numberAfter numbers a new version of a custom projection after those that were recorded: a crash may
// have left one without a row, and another caller may be about to add it.
func numberAfter(ctx context.Context, decisions ports.ProjectionDecisions, p *projection.Projection) error {
	tenant, name, isCustom := projection.SplitName(p.Name)
	if decisions == nil || !isCustom {
		return nil
	}
	record, err := decisions.Projection(ctx, tenant, name)
	if err == nil {
		p.Version = max(p.Version, record.Versions.Next())
		p.Code = p.Version
	}
	return err
}

// decided is the recorded version of p, or what p is if nothing was decided about it yet.
func decided(versions projection.DecidedVersions, p projection.Projection) projection.DecidedVersion {
	if v, known := versions.Find(p.Version); known {
		return v
	}
	return p.Decided()
}

// Recover carries out the newest decision about each custom projection of a tenant where a crash
// left it without effect, and restores what was recorded of the status and the settings of versions.
// A version that was never recorded stays: verification reports it.
func (r *Rebuilds) Recover(ctx context.Context, tenantID string) error {
	if r.config.Decisions == nil {
		return nil
	}
	records, err := r.config.Decisions.Projections(ctx, tenantID)
	if err != nil {
		return err
	}
	for _, record := range records {
		name := projection.CustomName(tenantID, record.Name)
		if !record.Exists() || len(record.Versions) == 0 {
			continue
		}
		all, err := r.config.Register.NamedProjections(ctx, name)
		if err != nil {
			return err
		}
		for _, p := range all {
			// A record that is read after the rows is as new as they are; a row that another node
			// changes from here on has another revision.
			if record, err = r.config.Decisions.Projection(ctx, tenantID, record.Name); err != nil {
				return err
			}
			if !record.Exists() {
				break
			}
			if err := r.recoverVersion(ctx, record, p, all); err != nil && fault.KindOf(err) != fault.Conflict && fault.KindOf(err) != fault.FailedPrecondition {
				return err // else another node was faster, or the version lacks events: verification says so
			}
		}
	}
	return nil
}

func (r *Rebuilds) recoverVersion(ctx context.Context, record ports.ProjectionRecord, p projection.Projection, all []projection.Projection) error {
	hidden := p.Role == projection.Building || p.Role == projection.Retained
	latest := record.Latest
	switch {
	case hidden && latest.Action == ports.ProjectionActivated && latest.Version == p.Version && latest.Partition == p.Scope:
		active := slices.IndexFunc(all, isActive(p.Name))
		if active < 0 {
			return nil
		}
		code, err := r.builderOf(ctx, p)
		if err != nil {
			return err
		}
		return r.activate(ctx, Order{Name: p.Name, Partition: p.Scope}, ports.ProjectionSwitch{
			Projection: p.Name, From: all[active].Version, To: p.Version, MaxBehind: uint64(r.config.MaxBehind), Force: latest.Force,
			Types: code.EventTypes, Handler: code.handler, Partitions: code.readPartitions, By: recoveryActor,
			Record: func(ctx context.Context) error { // under the locks of the switch
				tenant, name, _ := projection.SplitName(p.Name)
				now, err := r.config.Decisions.Projection(ctx, tenant, name)
				if err == nil && now.Version != record.Version {
					err = projection.Changed()
				}
				return err
			},
		})
	case hidden && latest.Action == ports.ProjectionVersionDropped && latest.Version == p.Version:
		return r.config.Versions.DropProjection(ctx, p.Name, p.Version, recoveryActor)
	}
	v, known := record.Versions.Find(p.Version)
	if !known || !p.Role.IsLive() || p.Settings == v.Settings && p.Status.Decided() == v.Status {
		return nil
	}
	p.Settings, p.ChangedBy = v.Settings, recoveryActor
	if p.Status.Decided() != v.Status && p.Status != projection.Faulted {
		p.Status = v.Status
	}
	_, err := r.config.Register.ChangeProjection(ctx, p)
	return err
}

// recoveryActor is who changed a version when a node that starts carries out a decision.
const recoveryActor = "recovery"

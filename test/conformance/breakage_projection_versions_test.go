package conformance_test

import (
	"context"

	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// switchBroken switches to a version that lacks events.
type switchBroken struct{ *wrapper }

func ignoreLag(w *wrapper) conformance.Store { return switchBroken{w} }

func (s switchBroken) SwitchProjection(ctx context.Context, w ports.ProjectionSwitch) error {
	w.Force = true
	return s.wrapper.SwitchProjection(ctx, w)
}

// roleBroken gives readers the version that is being built.
type roleBroken struct{ *wrapper }

func ignoreRole(w *wrapper) conformance.Store { return roleBroken{w} }

func (s roleBroken) ActiveProjection(ctx context.Context, name string) (int, error) {
	version, err := s.wrapper.ActiveProjection(ctx, name)
	all, listErr := s.ListProjections(ctx)
	for _, p := range all {
		if p.Name == name {
			version = p.Version
		}
	}
	if err == nil {
		err = listErr
	}
	return version, err
}

// dropBroken lets workers continue with a dropped version.
type dropBroken struct{ *wrapper }

func advanceDropped(w *wrapper) conformance.Store { return dropBroken{w} }

func (s dropBroken) Advance(ctx context.Context, a ports.ProjectionAdvance, h ports.ProjectionHandler) (ports.Checkpoint, int, error) {
	all, err := s.ListProjections(ctx)
	for _, p := range all {
		if p.Name == a.Projection && p.Version == a.Version && (p.Role == projection.Dropping || p.Role == projection.Dropped) {
			a.Projection += " " // an unregistered one
		}
	}
	if err != nil {
		return ports.Checkpoint{}, 0, err
	}
	return s.wrapper.Advance(ctx, a, h)
}

// scopeBroken waits for legal entities that a version does not read.
type scopeBroken struct{ *wrapper }

func waitForAll(w *wrapper) conformance.Store { return scopeBroken{w} }

func (s scopeBroken) SwitchProjection(ctx context.Context, w ports.ProjectionSwitch) error {
	w.Partitions = nil
	return s.wrapper.SwitchProjection(ctx, w)
}

// typesBroken gives every version events of all types.
type typesBroken struct{ *wrapper }

func ignoreTypesOfVersion(w *wrapper) conformance.Store { return typesBroken{w} }

func (s typesBroken) CompareProjection(ctx context.Context, c ports.ProjectionComparison) (ports.ProjectionDifference, error) {
	c.Types = nil
	return s.wrapper.CompareProjection(ctx, c)
}

// beginBroken reports a version as added that the store has refused.
type beginBroken struct{ *wrapper }

func hideRefusedVersion(w *wrapper) conformance.Store { return beginBroken{w} }

func (s beginBroken) AddProjection(ctx context.Context, p projection.Projection) (projection.Projection, error) {
	added, err := s.wrapper.AddProjection(ctx, p)
	if err != nil && p.Role == projection.Building {
		return p, nil
	}
	return added, err
}

// limitBroken counts no version for the limits of a tenant.
type limitBroken struct{ *wrapper }

func ignoreTenantLimits(w *wrapper) conformance.Store { return limitBroken{w} }

func (s limitBroken) AddProjection(ctx context.Context, p projection.Projection) (projection.Projection, error) {
	if tenant, name, isCustom := projection.SplitName(p.Name); isCustom {
		p.Name = projection.CustomName(tenant+"/"+name, name) // counts as another tenant
	}
	return s.wrapper.AddProjection(ctx, p)
}

// followBroken does not check which version is active.
type followBroken struct{ *wrapper }

func ignoreExpectedActive(w *wrapper) conformance.Store { return followBroken{w} }

func (s followBroken) AddProjection(ctx context.Context, p projection.Projection) (projection.Projection, error) {
	p.ExpectedActive = 0
	return s.wrapper.AddProjection(ctx, p)
}

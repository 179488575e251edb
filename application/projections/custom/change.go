package custom

import (
	"bytes"
	"context"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
)

// ChangeResult is what a change of a definition comes to.
type ChangeResult struct {
	Version int  // that has the definition
	Shown   int  // that readers are shown for now
	Same    bool // that version had the definition before; nothing was begun
	Trial   Trial
}

// Change checks and tries a new definition for a projection and begins a version with
// it beside the one that readers are shown, who are switched to it once it has caught up
// if switching says so, and by an operator otherwise. A definition that the projection
// has already begins nothing. Faults: those of Create but projection.exists and
// projection.too_many, projection.not_found, projection.being_changed,
// projection.too_many_building. A definition is not changed that others have changed since
// (projection.wrong_expected_version).
func (s *Service) Change(ctx context.Context, c Creation, switching bool) (ChangeResult, error) {
	all, err := s.config.Register.ListProjections(ctx)
	if err != nil {
		return ChangeResult{}, err
	}
	now, err := shown(all, c.Definition.TenantID, c.Name)
	if err != nil {
		return ChangeResult{}, err
	}
	out := ChangeResult{Version: now.Version, Shown: now.Version}
	checked, err := s.check(ctx, c.Definition)
	if err != nil {
		return out, err
	}
	wanted, err := c.Definition.Encode()
	if err != nil {
		return out, err
	}
	latest := now
	for _, p := range all {
		if p.Name == now.Name && p.Role == projection.Building && p.Scope == 0 {
			latest = p
		}
	}
	next := latest
	switch {
	case same(latest.Definition, wanted):
		out.Version, out.Same = latest.Version, true
	case !c.expects(now.Version):
		return out, projection.WrongVersion(now.Name, *c.Expected, now.Version)
	case latest.Role == projection.Building:
		return out, projection.BeingChanged(now.Name)
	default:
		if next, err = projection.NextVersion(all, now.Name, 0); err != nil {
			return out, err
		}
		out.Version = next.Version
	}
	if out.Trial, err = s.tryAndWarn(ctx, c, checked); err != nil || c.DryRun || out.Same {
		return out, err
	}
	next.Definition, next.SelfSwitching, next.ChangedBy = wanted, switching, c.By
	if c.Expected != nil {
		next.ExpectedActive = *c.Expected
	}
	added, err := s.config.Register.AddProjection(ctx, next)
	switch {
	case fault.KindOf(err) == fault.NotFound && err != nil:
		return out, s.changeConflict(ctx, c)
	case err != nil:
		return out, err
	case added.Role != projection.Building || !bytes.Equal(added.Definition, wanted):
		return out, projection.BeingChanged(now.Name)
	}
	s.config.Wake()
	return out, nil
}

// same compares a definition with what is stored, whatever release wrote that.
func same(stored, wanted []byte) bool {
	d, err := projection.ParseDefinition(stored)
	if err != nil {
		return false
	}
	again, err := d.Encode()
	return err == nil && bytes.Equal(again, wanted)
}

// changeConflict says why a change lost a race: against another one, or against a deletion.
func (s *Service) changeConflict(ctx context.Context, c Creation) error {
	if _, _, err := s.Find(ctx, c.Definition.TenantID, c.Name); fault.KindOf(err) == fault.NotFound && err != nil {
		return err
	}
	return projection.BeingChanged(c.Name)
}

package custom

import (
	"bytes"
	"context"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
)

// ChangeResult is the result of a change of a definition.
type ChangeResult struct {
	Version int  // the version with the definition
	Shown   int  // the active version, which readers see now
	Same    bool // the version had the definition before; none was added
	Trial   Trial
}

// Change checks and tries a new definition and adds a building version with it. With switching
// the version becomes active once it has caught up, otherwise an operator switches to it. A
// definition that the projection already has adds nothing. Faults: those of Create but
// projection.exists and projection.too_many; projection.not_found, projection.being_changed,
// projection.too_many_building, and projection.wrong_expected_version when another caller has
// changed the definition since.
func (s *Service) Change(ctx context.Context, c Creation, switching bool) (ChangeResult, error) {
	all, err := s.config.Register.ListProjections(ctx)
	if err != nil {
		return ChangeResult{}, err
	}
	now, err := findActive(all, c.Definition.TenantID, c.Name)
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
	case isSameDefinition(latest.Definition, wanted):
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
	record, err := s.config.Decisions.Projection(ctx, c.Definition.TenantID, c.Name)
	if err != nil {
		return out, err
	}
	// A crash may have left a recorded version without a row, and another caller may be about to add it.
	next.Version = max(next.Version, record.Versions.Next())
	next.Code, out.Version = next.Version, next.Version
	if err := s.config.Decisions.Define(ctx, c.Definition.TenantID, record, next, c.By); err != nil {
		if fault.CodeOf(err) == projection.CodeChanged {
			err = projection.BeingChanged(c.Name)
		}
		return out, err
	}
	added, err := s.config.Register.AddProjection(ctx, next)
	switch {
	case fault.KindOf(err) == fault.NotFound && err != nil: // another change or a deletion was faster
		if _, _, err := s.Find(ctx, c.Definition.TenantID, c.Name); fault.KindOf(err) == fault.NotFound && err != nil {
			return out, err
		}
		return out, projection.BeingChanged(c.Name)
	case err != nil:
		return out, err
	case added.Role != projection.Building || !bytes.Equal(added.Definition, wanted):
		return out, projection.BeingChanged(now.Name)
	}
	s.config.Wake()
	return out, nil
}

// isSameDefinition compares a definition with a stored one, which any release may have written.
func isSameDefinition(stored, wanted []byte) bool {
	d, err := projection.ParseDefinition(stored)
	if err != nil {
		return false
	}
	again, err := d.Encode()
	return err == nil && bytes.Equal(again, wanted)
}

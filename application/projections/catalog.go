package projections

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// CustomProjections prepares the projections that tenants create: those of the register that
// have a definition.
type CustomProjections interface {
	// Declare describes the events that a version reads.
	Declare(p projection.Projection) (module.Projection, error)
	// Prepare builds the handler of a version.
	Prepare(p projection.Projection) (module.Projection, ports.ProjectionHandler, ports.ProjectionResetter, error)
	// Partitions lists the partitions that a version reads.
	Partitions(ctx context.Context, p projection.Projection) ([]event.PartitionID, error)
}

// catalog finds the code of projections: the handlers of modules, and the definitions of
// custom projections.
type catalog struct {
	modules  []module.Projection
	handlers map[string]ports.ProjectionHandler
	custom   CustomProjections
}

// declared is a projection of a module; nil: no module declares it.
func (c *catalog) declared(name string) *module.Projection {
	if i := slices.IndexFunc(c.modules, func(d module.Projection) bool { return d.Name == name }); i >= 0 {
		return &c.modules[i]
	}
	return nil
}

// declaration describes a version; nil: this release does not know the projection. It names no
// event types for a definition that cannot be read.
func (c *catalog) declaration(p projection.Projection) (*module.Projection, error) {
	if len(p.Definition) == 0 {
		return c.declared(p.Name), nil
	}
	d, err := c.custom.Declare(p)
	return &module.Projection{Name: p.Name, Version: p.Code, EventTypes: d.EventTypes}, err
}

// partitions are those that a version reads; nil: all.
func (c *catalog) partitions(ctx context.Context, p projection.Projection) ([]event.PartitionID, error) {
	if len(p.Definition) == 0 && p.Scope == 0 {
		return nil, nil
	}
	if len(p.Definition) == 0 {
		return []event.PartitionID{p.Scope}, nil
	}
	read, err := c.custom.Partitions(ctx, p)
	return slices.DeleteFunc(append([]event.PartitionID{}, read...), func(id event.PartitionID) bool { return !p.Reads(id) }), err
}

package projections

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// OperationsConfig is what Operations need.
type OperationsConfig struct {
	Store    ports.Projections
	Register ports.ProjectionRegister
	Letters  ports.DeadLetters
	Leases   ports.Leases
	Clock    ports.Clock
	Declared []module.Projection
	Custom   CustomProjections                  // nil: there are only those that are declared
	Handlers map[string]ports.ProjectionHandler // as the modules made them
	Wake     func()                             // lets this node's runner look; nil: it looks by itself
}

// Operations are what operators see of projections and do to them, on any node: nodes
// learn of it by the projection's revision, within the runner's Refresh.
type Operations struct{ config OperationsConfig }

// NewOperations makes Operations.
func NewOperations(c OperationsConfig) *Operations {
	if c.Wake == nil {
		c.Wake = func() {}
	}
	return &Operations{c}
}

// View is a projection with how it fares.
type View struct {
	projection.Projection
	EventTypes []string
	Current    bool // the version that readers are shown
	Partitions []PartitionView
}

// PartitionView is how a projection fares in one partition.
type PartitionView struct {
	ports.Checkpoint
	Head       event.Sequence
	LagEvents  uint64
	LagSeconds float64 // age of the oldest event that it has not read; 0: it has read all
	Holder     string  // the node that works it; "" nobody at the moment
}

// List shows all projections in the partitions that the caller may see.
func (o *Operations) List(ctx context.Context, visible []event.PartitionID) ([]View, error) {
	known, err := o.config.Register.ListProjections(ctx)
	if err != nil {
		return nil, err
	}
	heads, err := o.config.Store.PartitionHeads(ctx)
	if err != nil {
		return nil, err
	}
	leases, err := o.config.Leases.List(ctx, "")
	if err != nil {
		return nil, err
	}
	out := make([]View, 0, len(known))
	for _, p := range known {
		if !p.Role.IsLive() {
			continue
		}
		v := View{Projection: p, Current: p.Role == projection.Active}
		if d := o.declaration(p); d != nil {
			v.EventTypes = d.EventTypes
		}
		read, err := o.readPartitions(ctx, p, visible)
		if err != nil {
			return nil, err
		}
		if len(read) == 0 && (len(p.Definition) > 0 || p.Scope != 0) {
			continue // another tenant's, or in no legal entity of the caller
		}
		if v.Partitions, err = o.partitions(ctx, p, read, heads, leases); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, o.measure(ctx, out, heads)
}

// measure fills in how far the views are behind.
func (o *Operations) measure(ctx context.Context, views []View, heads map[event.PartitionID]ports.Head) error {
	var unread []ports.EventPosition
	for _, v := range views {
		for _, p := range v.Partitions {
			if p.Sequence < p.Head {
				unread = append(unread, nextPosition(p.Partition, p.Sequence))
			}
		}
	}
	if len(unread) == 0 {
		return nil
	}
	recorded, err := o.config.Store.RecordedAt(ctx, unread)
	if err != nil {
		return err
	}
	now := o.config.Clock.Now()
	for _, v := range views {
		for i := range v.Partitions {
			p := &v.Partitions[i]
			head := heads[p.Partition]
			oldest, known := recorded[nextPosition(p.Partition, p.Sequence)]
			if !known {
				oldest = head.RecordedAt
			}
			l := computeLag(p.Sequence, head, oldest, now)
			p.LagEvents, p.LagSeconds = l.events, l.seconds
		}
	}
	return nil
}

func (o *Operations) partitions(ctx context.Context, p projection.Projection, visible []event.PartitionID, heads map[event.PartitionID]ports.Head, leases []ports.Lease) ([]PartitionView, error) {
	checkpoints, err := o.config.Store.Checkpoints(ctx, p.Name, p.Version)
	if err != nil {
		return nil, err
	}
	at := make(map[event.PartitionID]ports.Checkpoint, len(checkpoints))
	for _, c := range checkpoints {
		at[c.Partition] = c
	}
	out, now := make([]PartitionView, 0, len(visible)), o.config.Clock.Now()
	for _, id := range slices.Sorted(slices.Values(visible)) {
		c, begun := at[id]
		if !begun {
			c = ports.Checkpoint{Projection: p.Name, Version: p.Version, Partition: id, Status: projection.Reading}
		}
		v := PartitionView{Checkpoint: c, Head: heads[id].Sequence}
		for _, l := range leases {
			if l.Name == LeaseName(p.Name, p.Version) && (l.Partition == id || l.Partition == 0) && l.ExpiresAt.After(now) {
				v.Holder = l.Holder
			}
		}
		out = append(out, v)
	}
	return out, nil
}

func (o *Operations) declared(name string) *module.Projection {
	for i := range o.config.Declared {
		if o.config.Declared[i].Name == name {
			return &o.config.Declared[i]
		}
	}
	return nil
}

// Show gives the version of a projection that readers are shown. Fault
// projection.not_found.
func (o *Operations) Show(ctx context.Context, name string, visible []event.PartitionID) (View, error) {
	all, err := o.List(ctx, visible)
	if err != nil {
		return View{}, err
	}
	for _, v := range all {
		if v.Name == name && v.Current {
			return v, nil
		}
	}
	return View{}, projection.NotFound(name)
}

// Command is what an operator wants to be done.
type Command struct {
	Name    string
	Version int // 0: the one that readers are shown
	Action  projection.Action
	// Partition is the one it is about; 0: all of Partitions. Only fix, skip and reset are
	// about partitions, and skip always about one.
	Partition  event.PartitionID
	Partitions []event.PartitionID
	By         string
	Reason     string
}

// Do does it. Faults: projection.not_found, those of projection.Status.After,
// projection.not_halted, projection.partition_missing, projection.partition_unwanted,
// projection.reset_unsupported, projection.changed.
func (o *Operations) Do(ctx context.Context, c Command) error {
	if !slices.Contains(projection.Actions(), c.Action) {
		c.Action = "" // those that are not an operator's are unknown to one
	}
	p, err := o.find(ctx, c.Name, c.Version)
	if err != nil {
		return err
	}
	next, err := p.Status.After(c.Action)
	if err != nil {
		return err
	}
	partitions := c.Partitions
	if c.Partition != 0 {
		partitions = []event.PartitionID{c.Partition}
	}
	switch c.Action {
	case projection.Fix, projection.Skip, projection.Reset:
		if c.Action == projection.Skip && c.Partition == 0 {
			return fault.New(fault.Invalid, "projection.partition_missing", "an event is skipped in one legal entity; name it").WithField("/legal_entity")
		}
		if err := o.onPartitions(ctx, c, p, partitions); err != nil {
			return err
		}
	default:
		if c.Partition != 0 {
			return fault.New(fault.Invalid, "projection.partition_unwanted", "a projection is treated with %s in all legal entities; leave the legal entity out", c.Action).WithField("/legal_entity")
		}
	}
	return o.setStatus(ctx, p.Name, p.Version, next, c)
}

// setStatus writes the new status, which what was done to partitions may have outrun.
func (o *Operations) setStatus(ctx context.Context, name string, version int, next projection.Status, c Command) error {
	defer o.config.Wake()
	for range changeTries {
		p, err := o.find(ctx, name, version)
		if err != nil {
			return err
		}
		if p.Status == next {
			return nil
		}
		if _, err := p.Status.After(c.Action); err != nil {
			return err
		}
		p.Status, p.ChangedBy = next, c.By
		_, err = o.config.Register.ChangeProjection(ctx, p)
		if fault.KindOf(err) != fault.Conflict || err == nil {
			return err
		}
	}
	return projection.Changed()
}

const changeTries = 5

// find gives a living version, 0: the one that readers are shown.
func (o *Operations) find(ctx context.Context, name string, version int) (projection.Projection, error) {
	all, err := o.config.Register.ListProjections(ctx)
	if err != nil {
		return projection.Projection{}, err
	}
	for _, p := range all {
		if p.Name == name && p.Role.IsLive() && (p.Version == version || version == 0 && p.Role == projection.Active) {
			return p, nil
		}
	}
	d := o.declared(name)
	if version != 0 || d == nil {
		return projection.Projection{}, projection.NotFound(name)
	}
	return o.config.Register.AddProjection(ctx, builtIn(*d))
}

// onPartitions fixes, skips or resets. Without a partition of its own, fix leaves those
// alone that are not halted.
func (o *Operations) onPartitions(ctx context.Context, c Command, p projection.Projection, partitions []event.PartitionID) error {
	resetter, can := o.resetter(p)
	if c.Action == projection.Reset && !can {
		return fault.New(fault.FailedPrecondition, "projection.reset_unsupported", "projection %s cannot forget what it wrote; rebuild it instead", p.Name)
	}
	if d := o.declaration(p); c.Action == projection.Reset && (d == nil || p.Code != d.Version) {
		return fault.New(fault.FailedPrecondition, "projection.other_code", "version %d of projection %s was built by another release, and this one cannot build it again; rebuild it instead", p.Version, p.Name)
	}
	partitions, err := o.readPartitions(ctx, p, partitions)
	if err != nil {
		return err
	}
	for _, id := range partitions {
		operation := ports.ProjectionOperation{
			ProjectionWork: ports.ProjectionWork{Projection: p.Name, Version: p.Version, Partition: id}, By: c.By, Reason: c.Reason,
		}
		var err error
		switch c.Action {
		case projection.Fix:
			_, err = o.config.Store.Fix(ctx, operation)
			if c.Partition == 0 && fault.CodeOf(err) == projection.CodeNotHalted {
				err = nil
			}
		case projection.Skip:
			_, err = o.config.Store.Skip(ctx, operation)
		default:
			_, err = o.config.Store.Reset(ctx, operation, resetter)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Configure replaces the settings. Fault projection.settings_invalid.
func (o *Operations) Configure(ctx context.Context, name string, s projection.Settings, by string) error {
	s, err := s.Complete()
	if err != nil {
		return err
	}
	p, err := o.find(ctx, name, 0)
	if err != nil {
		return err
	}
	p.Settings, p.ChangedBy = s, by
	_, err = o.config.Register.ChangeProjection(ctx, p)
	o.config.Wake()
	return err
}

// DeadLetters lists dead letters of all partitions.
func (o *Operations) DeadLetters(ctx context.Context, q ports.DeadLetterQuery) ([]ports.DeadLetter, error) {
	return o.config.Letters.ListDeadLetters(ctx, q)
}

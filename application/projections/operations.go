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

// OperationsConfig configures Operations.
type OperationsConfig struct {
	Store     ports.Projections
	Log       ports.LogPositions
	Register  ports.ProjectionRegister
	Decisions ports.ProjectionDecisions // nil: nothing is recorded
	Letters   ports.DeadLetters
	Leases    ports.Leases
	Clock     ports.Clock
	Declared  []module.Projection
	Custom    CustomProjections
	Handlers  map[string]ports.ProjectionHandler // of modules
	Wake      func()                             // wakes this node's runner; nil: it waits for its next refresh
}

// Operations lists projections and executes the operators' actions, on any node. Nodes notice
// an action by the projection's revision, within the runner's Refresh.
type Operations struct {
	config OperationsConfig
	catalog
}

// NewOperations makes Operations.
func NewOperations(c OperationsConfig) *Operations {
	if c.Wake == nil {
		c.Wake = func() {}
	}
	return &Operations{c, catalog{c.Declared, c.Handlers, c.Custom}}
}

// View is a version with its status in each partition.
type View struct {
	projection.Projection
	EventTypes []string
	Current    bool // readers see it
	Partitions []PartitionView
}

// PartitionView is the status of a version in one partition.
type PartitionView struct {
	ports.Checkpoint
	Head       event.Sequence
	LagEvents  uint64
	LagSeconds float64 // age of the oldest unread event; 0: none
	Holder     string  // the node that works it; "": none
}

// List returns all live versions, in the partitions that the caller may see.
func (o *Operations) List(ctx context.Context, visible []event.PartitionID) ([]View, error) {
	known, err := o.config.Register.ListProjections(ctx)
	if err != nil {
		return nil, err
	}
	heads, err := o.config.Log.PartitionHeads(ctx)
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
		if d, _ := o.declaration(p); d != nil {
			v.EventTypes = d.EventTypes
		}
		read, err := o.readPartitions(ctx, p, visible)
		if err != nil {
			return nil, err
		}
		if len(read) == 0 && (len(p.Definition) > 0 || p.Scope != 0) {
			continue // another tenant's, or in no legal entity of the caller
		}
		if v.Partitions, err = o.partitionViews(ctx, p, read, heads, leases); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, o.measure(ctx, out, heads)
}

// measure fills in the lags of the views.
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
	recorded, err := o.config.Log.RecordedAt(ctx, unread)
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

func (o *Operations) partitionViews(ctx context.Context, p projection.Projection, visible []event.PartitionID, heads map[event.PartitionID]ports.Head, leases []ports.Lease) ([]PartitionView, error) {
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

// Show returns the active version of a projection. Fault projection.not_found.
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

// Command is an action of an operator.
type Command struct {
	Name    string
	Version int // 0: the active one
	Action  projection.Action
	// Partition limits fix and reset to one partition; 0: all of Partitions. Skip needs it.
	Partition  event.PartitionID
	Partitions []event.PartitionID
	Decider
	Reason string
}

// Do executes a command. Faults: projection.not_found, those of projection.Status.After,
// projection.not_halted, projection.partition_missing, projection.partition_unwanted,
// projection.reset_unsupported, projection.changed.
func (o *Operations) Do(ctx context.Context, c Command) error {
	if !slices.Contains(projection.Actions(), c.Action) {
		c.Action = "" // operators may not take the actions of the runner
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
			return fault.New(fault.Invalid, "projection.partition_unwanted", "%s acts on all legal entities; leave the legal entity out", c.Action).WithField("/legal_entity")
		}
		if err := o.decideOperation(ctx, c, p, nil, 0); err != nil {
			return err
		}
	}
	return o.setStatus(ctx, p.Name, p.Version, next, c)
}

// decideOperation records an action on a version, in partitions if it is not on the whole version;
// skipped is the event that a skip is about.
func (o *Operations) decideOperation(ctx context.Context, c Command, p projection.Projection, partitions []event.PartitionID, skipped event.Sequence) error {
	d := ports.ProjectionDecision{Action: ports.ProjectionOperated, Version: p.Version, Partition: c.Partition, Operation: c.Action, Sequence: skipped, Reason: c.Reason}
	if c.Partition == 0 {
		d.Partitions = partitions
	}
	return decide(ctx, o.config.Decisions, c.Decider, p.Name, d, func(all projection.DecidedVersions) projection.DecidedVersions {
		v := decided(all, p)
		if next, err := p.Status.After(c.Action); err == nil {
			v.Status = next.Decided()
		}
		return all.With(v)
	})
}

// setStatus writes the new status. It tries again when the revision has changed, as actions on
// partitions raise it too.
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

// find returns a live version; 0: the active one.
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

// onPartitions fixes, skips or resets partitions. A fix of all partitions leaves those alone
// that are not halted.
func (o *Operations) onPartitions(ctx context.Context, c Command, p projection.Projection, partitions []event.PartitionID) error {
	resetter, can := o.resetter(p)
	if c.Action == projection.Reset && !can {
		return fault.New(fault.FailedPrecondition, "projection.reset_unsupported", "projection %s cannot remove its rows; rebuild it instead", p.Name)
	}
	if d, _ := o.declaration(p); c.Action == projection.Reset && (d == nil || p.Code != d.Version) {
		return fault.New(fault.FailedPrecondition, "projection.other_code", "version %d of projection %s was built by another release, and this one cannot build it again; rebuild it instead", p.Version, p.Name)
	}
	partitions, err := o.readPartitions(ctx, p, partitions)
	if err != nil {
		return err
	}
	var skipped event.Sequence
	if c.Action != projection.Reset && c.Partition != 0 {
		halted, err := o.haltedAt(ctx, p, c.Partition)
		if err != nil {
			return err
		}
		if c.Action == projection.Skip {
			skipped = halted
		}
	}
	if err := o.decideOperation(ctx, c, p, partitions, skipped); err != nil {
		return err
	}
	for _, id := range partitions {
		operation := ports.ProjectionOperation{
			ProjectionWork: ports.ProjectionWork{Projection: p.Name, Version: p.Version, Partition: id}, By: c.By, Reason: c.Reason, Sequence: skipped,
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

// haltedAt returns the event that a version is halted at in a partition. Fault
// projection.not_halted.
func (o *Operations) haltedAt(ctx context.Context, p projection.Projection, id event.PartitionID) (event.Sequence, error) {
	all, err := o.config.Store.Checkpoints(ctx, p.Name, p.Version)
	if err != nil {
		return 0, err
	}
	var c ports.Checkpoint
	if i := slices.IndexFunc(all, func(c ports.Checkpoint) bool { return c.Partition == id }); i >= 0 {
		c = all[i]
	}
	return c.Sequence + 1, c.RequireHalted()
}

// Configure replaces the settings. Fault projection.settings_invalid.
func (o *Operations) Configure(ctx context.Context, name string, s projection.Settings, by Decider) error {
	s, err := s.Complete()
	if err != nil {
		return err
	}
	p, err := o.find(ctx, name, 0)
	if err != nil {
		return err
	}
	err = decide(ctx, o.config.Decisions, by, p.Name, ports.ProjectionDecision{Action: ports.ProjectionConfigured, Version: p.Version, Settings: &s}, func(all projection.DecidedVersions) projection.DecidedVersions {
		v := decided(all, p)
		v.Settings = s
		return all.With(v)
	})
	if err != nil {
		return err
	}
	defer o.config.Wake()
	for range changeTries { // a node may change the version
		if p, err = o.find(ctx, name, p.Version); err != nil {
			return err
		}
		p.Settings, p.ChangedBy = s, by.By
		if _, err = o.config.Register.ChangeProjection(ctx, p); err == nil || fault.KindOf(err) != fault.Conflict {
			return err
		}
	}
	return err
}

// DeadLetters lists dead letters of all partitions.
func (o *Operations) DeadLetters(ctx context.Context, q ports.DeadLetterQuery) ([]ports.DeadLetter, error) {
	return o.config.Letters.ListDeadLetters(ctx, q)
}

// readPartitions keeps the partitions that a version reads.
func (o *Operations) readPartitions(ctx context.Context, p projection.Projection, partitions []event.PartitionID) ([]event.PartitionID, error) {
	read, err := o.partitions(ctx, p)
	if err != nil || read == nil {
		return partitions, err
	}
	return slices.DeleteFunc(slices.Clone(partitions), func(id event.PartitionID) bool { return !slices.Contains(read, id) }), nil
}

// resetter removes the rows of a version.
func (o *Operations) resetter(p projection.Projection) (ports.ProjectionResetter, bool) {
	if len(p.Definition) == 0 {
		r, can := o.handlers[p.Name].(ports.ProjectionResetter)
		return r, can
	}
	_, _, r, err := o.custom.Prepare(p)
	return r, err == nil && r != nil
}

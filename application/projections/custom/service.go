package custom

import (
	"bytes"
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Config is what a Service needs.
type Config struct {
	Compiler ports.TransformCompiler
	Rows     ports.ProjectionRows
	Register ports.ProjectionRegister
	Entities ports.LegalEntities
	// Events are read in the version in which their type is read, to try programs on.
	Events ports.EventSearcher
	// Upcast lets a handler have its events in the version in which their type is read.
	Upcast func(ports.ProjectionHandler) ports.ProjectionHandler
	// Await waits until a version has got to a sequence and tells how far it is.
	Await func(ctx context.Context, projection string, version int, p event.PartitionID, need event.Sequence) (event.Sequence, error)
	Wake  func() // lets this node's runner look
	// Unregistered gives those of some event types that nobody has registered; nil: it is
	// not looked.
	Unregistered func(ctx context.Context, types []string) ([]string, error)

	// Recompute is what folding single rows anew needs.
	Recompute RecomputeConfig

	Trial int // events that a definition is tried on at most; 0 is 100
}

// Service creates projections, runs and shows them.
type Service struct{ config Config }

// New makes a Service.
func New(c Config) *Service {
	if c.Trial <= 0 {
		c.Trial = 100
	}
	if c.Recompute.MaxEvents <= 0 {
		c.Recompute.MaxEvents = 10_000
	}
	if c.Recompute.MaxRead <= 0 {
		c.Recompute.MaxRead = 200_000
	}
	if c.Wake == nil {
		c.Wake = func() {}
	}
	if c.Upcast == nil {
		c.Upcast = func(h ports.ProjectionHandler) ports.ProjectionHandler { return h }
	}
	return &Service{c}
}

// pageBytes bounds the payloads of events that are read at once, unless the first alone
// has more.
const pageBytes = 8 << 20

// batchSize bounds how long a transaction is that runs programs.
const batchSize = 100

// Declare tells what a projection reads. Fault projection.definition_unreadable.
func (s *Service) Declare(p projection.Projection) (module.Projection, error) {
	d, err := projection.ParseDefinition(p.Definition)
	return module.Projection{Name: p.Name, Version: p.Version, EventTypes: d.Filter.Types}, err
}

// Prepare builds what is needed to run a projection. Faults:
// projection.definition_unreadable, transform.invalid.
func (s *Service) Prepare(p projection.Projection) (module.Projection, ports.ProjectionHandler, ports.ProjectionResetter, error) {
	d, err := projection.ParseDefinition(p.Definition)
	if err != nil {
		return module.Projection{}, nil, nil, err
	}
	compiled, err := compile(s.config.Compiler, d)
	if err != nil {
		return module.Projection{}, nil, nil, err
	}
	h := &handler{program: compiled, tenant: d.TenantID, rows: s.config.Rows}
	return module.Projection{Name: p.Name, Version: p.Version, EventTypes: d.Filter.Types}, s.config.Upcast(h), h, nil
}

// Partitions are those of the tenant's legal entities that a version reads, or all of
// them if its definition cannot be read: nobody works it, and its operators see it.
func (s *Service) Partitions(ctx context.Context, p projection.Projection) ([]event.PartitionID, error) {
	d, err := projection.ParseDefinition(p.Definition)
	if fault.CodeOf(err) == projection.CodeUnreadable {
		d.TenantID, _, _ = projection.SplitName(p.Name)
	} else if err != nil {
		return nil, err
	}
	read, err := s.read(ctx, d)
	if err != nil {
		return nil, err
	}
	out := make([]event.PartitionID, len(read))
	for i, le := range read {
		out[i] = le.Partition
	}
	return out, nil
}

// read are the legal entities that a definition reads.
func (s *Service) read(ctx context.Context, d projection.Definition) ([]ports.LegalEntity, error) {
	if d.TenantID == "" {
		return nil, fault.New(fault.Internal, projection.CodeUnreadable, "a projection belongs to no tenant; delete it and create it again")
	}
	all, err := s.config.Entities.LegalEntities(ctx, d.TenantID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(le ports.LegalEntity) bool { return le.TenantID != d.TenantID || !d.Filter.Reads(le.Code) }), nil
}

// Creation is a projection that somebody wants.
type Creation struct {
	Name       string
	Definition projection.Definition
	By         string
	DryRun     bool // only try it
	SkipTrial  bool // create it without a trial
	// Expected is the version that readers were shown when somebody decided on this; 0: there
	// was no projection of the name, nil: whatever there is.
	Expected *int
}

// expects says whether a creation was decided on while readers were shown a version, 0: none.
func (c Creation) expects(shown int) bool { return c.Expected == nil || *c.Expected == shown }

// Create checks a definition, tries it, and makes it a projection that runs. Faults:
// projection.definition_invalid, transform.invalid, projection.trial_failed,
// projection.exists, projection.too_many, projection.wrong_expected_version.
func (s *Service) Create(ctx context.Context, c Creation) (projection.Projection, Trial, error) {
	none := projection.Projection{}
	if err := projection.CheckName(c.Name); err != nil {
		return none, Trial{}, err
	}
	checked, err := s.check(ctx, c.Definition)
	if err != nil {
		return none, Trial{}, err
	}
	p, err := s.newVersion(ctx, c)
	if err != nil {
		return none, Trial{}, err
	}
	if !c.expects(0) {
		return none, Trial{}, projection.WrongVersion(p.Name, *c.Expected, 0)
	}
	trial, err := s.tryAndWarn(ctx, c, checked)
	if err != nil || c.DryRun {
		return p, trial, err
	}
	added, err := s.config.Register.AddProjection(ctx, p)
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			err = s.createConflict(ctx, c)
		}
		return none, trial, err
	}
	if !bytes.Equal(added.Definition, p.Definition) || !added.Role.IsLive() {
		return none, trial, s.createConflict(ctx, c)
	}
	s.config.Wake()
	return added, trial, nil
}

// checked is a definition that may be tried.
type checked struct {
	program *program
	read    []ports.LegalEntity
}

// check compiles a definition and finds the legal entities that it reads.
func (s *Service) check(ctx context.Context, d projection.Definition) (c checked, err error) {
	if err := d.Check(); err != nil {
		return c, err
	}
	if c.program, err = compile(s.config.Compiler, d); err != nil {
		return c, err
	}
	if c.read, err = s.read(ctx, d); err != nil {
		return c, err
	}
	for _, code := range d.Filter.LegalEntities {
		if !slices.ContainsFunc(c.read, func(le ports.LegalEntity) bool { return le.Code == code }) {
			return c, fault.New(fault.Invalid, projection.CodeInvalid, "there is no legal entity of this code that you may see; list them").WithField("/filter/legal_entities")
		}
	}
	return c, nil
}

// newVersion finds a version for a new projection. A number that was given is not given
// again: rows of a projection that was deleted may still be there.
func (s *Service) newVersion(ctx context.Context, c Creation) (p projection.Projection, err error) {
	all, err := s.config.Register.ListProjections(ctx)
	if err != nil {
		return p, err
	}
	settings := projection.DefaultSettings()
	settings.BatchSize = batchSize
	p = projection.Projection{
		Name: projection.CustomName(c.Definition.TenantID, c.Name), Version: 1, Role: projection.Active, Status: projection.Running, Settings: settings, ChangedBy: c.By,
	}
	for _, known := range all {
		if known.Name != p.Name {
			continue
		}
		if known.Role.IsLive() {
			return p, nameTaken(all, c)
		}
		p.Version = max(p.Version, known.Version+1)
	}
	if err := projection.CheckLimits(all, p); err != nil {
		return p, err
	}
	p.Code = p.Version
	p.Definition, err = c.Definition.Encode()
	return p, err
}

// nameTaken refuses a creation because there is a projection of its name: whoever said which
// version they had seen is told that it is another one.
func nameTaken(all []projection.Projection, c Creation) error {
	if now, err := shown(all, c.Definition.TenantID, c.Name); err == nil && !c.expects(now.Version) {
		return projection.WrongVersion(now.Name, *c.Expected, now.Version)
	}
	return projection.Exists(c.Name)
}

// createConflict refuses a creation because somebody was faster.
func (s *Service) createConflict(ctx context.Context, c Creation) error {
	all, err := s.config.Register.NamedProjections(ctx, projection.CustomName(c.Definition.TenantID, c.Name))
	if err != nil {
		return err
	}
	return nameTaken(all, c)
}

// Delete ends a tenant's projection; its rows are removed little by little. Fault
// projection.not_found.
func (s *Service) Delete(ctx context.Context, tenantID, name, by string) error {
	err := s.config.Rows.EndProjection(ctx, projection.CustomName(tenantID, name), by)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return projection.NotFound(name)
	}
	s.config.Wake()
	return err
}

// Find gives the version of a tenant's projection that readers are shown, with its
// definition. Faults: projection.not_found, projection.definition_unreadable.
func (s *Service) Find(ctx context.Context, tenantID, name string) (p projection.Projection, d projection.Definition, err error) {
	all, err := s.config.Register.NamedProjections(ctx, projection.CustomName(tenantID, name))
	if err != nil {
		return p, d, err
	}
	if p, err = shown(all, tenantID, name); err != nil {
		return p, d, err
	}
	d, err = projection.ParseDefinition(p.Definition)
	return p, d, err
}

// shown is the version of a tenant's projection that readers are shown. Fault
// projection.not_found.
func shown(all []projection.Projection, tenantID, name string) (projection.Projection, error) {
	for _, p := range all {
		if projection.IsValidName(name) && p.Name == projection.CustomName(tenantID, name) && p.Role == projection.Active {
			return p, nil
		}
	}
	return projection.Projection{}, projection.NotFound(name)
}

// Versions gives the definitions of those versions of a tenant's projection that follow
// the log, by number. Faults: projection.not_found, projection.definition_unreadable.
func (s *Service) Versions(ctx context.Context, tenantID, name string) (map[int]projection.Definition, error) {
	all, err := s.config.Register.NamedProjections(ctx, projection.CustomName(tenantID, name))
	if err != nil {
		return nil, err
	}
	if _, err := shown(all, tenantID, name); err != nil {
		return nil, err
	}
	out := map[int]projection.Definition{}
	for _, p := range all {
		if p.Name != projection.CustomName(tenantID, name) || !p.Role.IsLive() {
			continue
		}
		if out[p.Version], err = projection.ParseDefinition(p.Definition); err != nil {
			return nil, err
		}
	}
	return out, nil
}

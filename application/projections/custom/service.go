package custom

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Config configures a Service.
type Config struct {
	Compiler ports.TransformCompiler
	Rows     ports.ProjectionRows
	Register ports.ProjectionRegister
	// Decisions records definitions before the register has them.
	Decisions ports.ProjectionDecisions
	Entities  interface {
		// LegalEntities lists those of a tenant.
		LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
	}
	// Events gives trials stored events, upcast to the newest version of their type.
	Events ports.EventSearcher
	// Upcast makes a handler receive events in the newest version of their type.
	Upcast func(ports.ProjectionHandler) ports.ProjectionHandler
	// Await waits until a version has reached a sequence and returns its position.
	Await func(ctx context.Context, projection string, version int, p event.PartitionID, need event.Sequence) (event.Sequence, error)
	Wake  func() // wakes this node's runner
	// Unregistered returns those of the event types that are not registered; nil: no warning.
	Unregistered func(ctx context.Context, tenantID string, types []string) ([]string, error)

	Recompute RecomputeConfig
}

// trialEvents are the events that a definition is tried on at most, since the caller waits for
// the result.
const trialEvents = 100

// Service creates, changes, runs and reads custom projections.
type Service struct {
	config      Config
	trialEvents int
}

// New makes a Service. It refuses limits that are not positive.
func New(c Config) (*Service, error) {
	if err := fault.RequirePositive("custom.RecomputeConfig", c.Recompute.RecomputeLimits); err != nil {
		return nil, err
	}
	if c.Wake == nil {
		c.Wake = func() {}
	}
	if c.Upcast == nil {
		c.Upcast = func(h ports.ProjectionHandler) ports.ProjectionHandler { return h }
	}
	return &Service{config: c, trialEvents: trialEvents}, nil
}

// pageBytes bounds the payloads of a page of events, unless the first event has more.
const pageBytes = 8 << 20

// batchSize bounds the events of a transaction, and with them the time for their programs.
const batchSize = 100

// Declare describes the events that a version reads. Fault projection.definition_unreadable.
func (s *Service) Declare(p projection.Projection) (module.Projection, error) {
	d, err := projection.ParseDefinition(p.Definition)
	return module.Projection{Name: p.Name, Version: p.Version, EventTypes: d.Filter.Types}, err
}

// Prepare builds the handler of a version. Faults:
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

// Partitions are those of the tenant's legal entities that a version reads. For a definition
// that cannot be read they are all: no node works it, but its operators must see it.
func (s *Service) Partitions(ctx context.Context, p projection.Projection) ([]event.PartitionID, error) {
	d, err := projection.ParseDefinition(p.Definition)
	if fault.CodeOf(err) == projection.CodeUnreadable {
		d.TenantID, _, _ = projection.SplitName(p.Name)
	} else if err != nil {
		return nil, err
	}
	read, err := s.legalEntities(ctx, d)
	if err != nil {
		return nil, err
	}
	out := make([]event.PartitionID, len(read))
	for i, le := range read {
		out[i] = le.Partition
	}
	return out, nil
}

// legalEntities are those that a definition reads.
func (s *Service) legalEntities(ctx context.Context, d projection.Definition) ([]ports.LegalEntity, error) {
	if d.TenantID == "" {
		return nil, fault.New(fault.Internal, projection.CodeUnreadable, "a projection belongs to no tenant; delete it and create it again")
	}
	all, err := s.config.Entities.LegalEntities(ctx, d.TenantID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(le ports.LegalEntity) bool { return le.TenantID != d.TenantID || !d.Filter.Reads(le.Code) }), nil
}

// Creation is the request for a new or changed projection.
type Creation struct {
	Name       string
	Definition projection.Definition
	By         string
	DryRun     bool // only try it
	SkipTrial  bool // create it without a trial
	// Expected is the version that was active when the caller decided; 0: no projection of the
	// name, nil: any.
	Expected *int
}

// expects reports whether the caller expects this active version; 0: none.
func (c Creation) expects(active int) bool { return c.Expected == nil || *c.Expected == active }

// Create checks and tries a definition and adds a running projection with it. Faults:
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
	record, err := s.config.Decisions.Projection(ctx, c.Definition.TenantID, c.Name) // before the rows are read, so that the later of two callers fails
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
	record.Versions = nil // of a creation that was cut off
	if err := s.config.Decisions.Define(ctx, c.Definition.TenantID, record, p, c.By); err != nil {
		if fault.CodeOf(err) == projection.CodeChanged {
			err = s.createConflict(ctx, c)
		}
		return none, trial, err
	}
	added, err := s.config.Register.AddProjection(ctx, p)
	if err != nil {
		if fault.CodeOf(err) == projection.CodeTooMany { // others were faster; the record must not promise it
			record.Version++
			return none, trial, errors.Join(err, s.config.Decisions.Remove(ctx, c.Definition.TenantID, record, c.By))
		}
		if fault.KindOf(err) == fault.NotFound {
			err = s.createConflict(ctx, c)
		}
		return none, trial, err
	}
	if !bytes.Equal(added.Definition, p.Definition) || !added.Role.IsLive() {
		return none, trial, s.createConflict(ctx, c)
	}
	s.config.Wake()
	return added, trial, s.requireRecorded(ctx, c, added)
}

// requireRecorded records a creation again if another caller has recorded one in between, whose row is
// refused because this one is there.
func (s *Service) requireRecorded(ctx context.Context, c Creation, added projection.Projection) error {
	record, err := s.config.Decisions.Projection(ctx, c.Definition.TenantID, c.Name)
	if active := record.Versions.Active(); err != nil || !record.Exists() || active.Version != added.Version || active.Digest == added.Decided().Digest {
		return err
	}
	record.Versions = nil
	return s.config.Decisions.Define(ctx, c.Definition.TenantID, record, added, c.By)
}

// checked is a valid definition with its program and legal entities.
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
	if c.read, err = s.legalEntities(ctx, d); err != nil {
		return c, err
	}
	for _, code := range d.Filter.LegalEntities {
		if !slices.ContainsFunc(c.read, func(le ports.LegalEntity) bool { return le.Code == code }) {
			return c, fault.New(fault.Invalid, projection.CodeInvalid, "no legal entity of this code is visible to you; list them").WithField("/filter/legal_entities")
		}
	}
	return c, nil
}

// newVersion numbers a new projection. It does not assign a number again, because rows of a
// deleted projection may still exist.
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

// nameTaken is the fault of a creation whose name exists: projection.wrong_expected_version if
// the caller expected another version, else projection.exists.
func nameTaken(all []projection.Projection, c Creation) error {
	if now, err := findActive(all, c.Definition.TenantID, c.Name); err == nil && !c.expects(now.Version) {
		return projection.WrongVersion(now.Name, *c.Expected, now.Version)
	}
	return projection.Exists(c.Name)
}

// createConflict refuses a creation because another caller was faster.
func (s *Service) createConflict(ctx context.Context, c Creation) error {
	all, err := s.config.Register.NamedProjections(ctx, projection.CustomName(c.Definition.TenantID, c.Name))
	if err != nil {
		return err
	}
	return nameTaken(all, c)
}

// Delete ends a tenant's projection; its rows are removed in steps. Faults:
// projection.not_found, projection.changed.
func (s *Service) Delete(ctx context.Context, tenantID, name, by string) error {
	if _, _, err := s.Find(ctx, tenantID, name); fault.KindOf(err) == fault.NotFound && err != nil {
		return err
	}
	record, err := s.config.Decisions.Projection(ctx, tenantID, name)
	if err != nil {
		return err
	}
	if record.Exists() {
		if err := s.config.Decisions.Remove(ctx, tenantID, record, by); err != nil {
			return err
		}
	}
	return s.end(ctx, tenantID, name, by)
}

// Recover ends or creates the projections of a tenant whose register lacks a decision, after a
// crash between the two. It leaves alone what no decision supports: verification reports it.
func (s *Service) Recover(ctx context.Context, tenantID string) error {
	records, err := s.config.Decisions.Projections(ctx, tenantID)
	if err != nil {
		return err
	}
	all, err := s.config.Register.ListProjections(ctx)
	if err != nil {
		return err
	}
	for _, r := range records {
		_, err := findActive(all, tenantID, r.Name)
		if missing := err != nil; missing && r.Exists() || !missing && r.Removed {
			// A node of the release that wrote a definition creates its projection; verification names it till then.
			if err := s.settle(ctx, tenantID, r.Name); err != nil && fault.CodeOf(err) != projection.CodeUnreadable {
				return err
			}
		}
	}
	return nil
}

// settleTries is how often a node looks whether the register agrees with a record while other
// nodes change both.
const settleTries = 5

// settle creates or ends a projection as its newest record says. It looks again afterwards, because
// another node may have recorded the opposite in between and found nothing to do.
func (s *Service) settle(ctx context.Context, tenantID, name string) error {
	for try := 1; ; try++ {
		r, err := s.config.Decisions.Projection(ctx, tenantID, name)
		if err != nil {
			return err
		}
		_, _, err = s.Find(ctx, tenantID, name)
		missing := fault.KindOf(err) == fault.NotFound && err != nil
		switch {
		case err != nil && !missing && fault.CodeOf(err) != projection.CodeUnreadable:
			return err
		case r.Exists() && missing:
			err = s.restore(ctx, tenantID, r)
		case r.Removed && !missing:
			err = s.end(ctx, tenantID, name, "recovery")
		default:
			return nil
		}
		if try == settleTries {
			return err
		}
	}
}

// restore adds the projection whose creation was cut off.
func (s *Service) restore(ctx context.Context, tenantID string, r ports.ProjectionRecord) error {
	d, err := projection.ParseDefinition(r.Definition)
	if err != nil {
		return err
	}
	d.TenantID = tenantID
	p, err := s.newVersion(ctx, Creation{Name: r.Name, Definition: d, By: "recovery"})
	if err != nil {
		return err
	}
	active := r.Versions.Active()
	if active.Version > 0 {
		p.Status, p.Settings = active.Status, active.Settings
	}
	if p.Decided() != active { // all its versions are gone
		r.Versions = nil
		if err := s.config.Decisions.Define(ctx, tenantID, r, p, ""); err != nil {
			return err
		}
	}
	_, err = s.config.Register.AddProjection(ctx, p)
	return err
}

func (s *Service) end(ctx context.Context, tenantID, name, by string) error {
	err := s.config.Rows.EndProjection(ctx, projection.CustomName(tenantID, name), by)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return projection.NotFound(name)
	}
	s.config.Wake()
	return err
}

// Find returns the active version of a tenant's projection and its definition. Faults:
// projection.not_found, projection.definition_unreadable.
func (s *Service) Find(ctx context.Context, tenantID, name string) (p projection.Projection, d projection.Definition, err error) {
	all, err := s.config.Register.NamedProjections(ctx, projection.CustomName(tenantID, name))
	if err != nil {
		return p, d, err
	}
	if p, err = findActive(all, tenantID, name); err != nil {
		return p, d, err
	}
	d, err = projection.ParseDefinition(p.Definition)
	return p, d, err
}

// findActive is the active version of a tenant's projection. Fault projection.not_found.
func findActive(all []projection.Projection, tenantID, name string) (projection.Projection, error) {
	for _, p := range all {
		if projection.IsValidName(name) && p.Name == projection.CustomName(tenantID, name) && p.Role == projection.Active {
			return p, nil
		}
	}
	return projection.Projection{}, projection.NotFound(name)
}

// Versions returns the definitions of the live versions of a tenant's projection by number.
// Faults: projection.not_found, projection.definition_unreadable.
func (s *Service) Versions(ctx context.Context, tenantID, name string) (map[int]projection.Definition, error) {
	all, err := s.config.Register.NamedProjections(ctx, projection.CustomName(tenantID, name))
	if err != nil {
		return nil, err
	}
	if _, err := findActive(all, tenantID, name); err != nil {
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

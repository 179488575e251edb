package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

var customProjectionHandlers = handlers{
	"createProjection":  withBody((*Server).createProjection),
	"replaceProjection": withBody((*Server).replaceProjection),
	"deleteProjection":  (*Server).deleteProjection,
	"getProjectionRows": (*Server).getProjectionRows,
}

// fullProjectionName returns the name of a projection that is unique among all tenants. Another
// tenant's projection is not found, like one that does not exist.
func (s *Server) fullProjectionName(ctx context.Context, name string) (string, error) {
	if projection.IsValidName(name) {
		return projection.CustomName(callOf(ctx).principal.TenantID, name), nil
	}
	if strings.Contains(name, "/") {
		return "", projection.NotFound(name)
	}
	return name, nil
}

// tenantProjectionName returns the name of a projection within its tenant; inTenant is
// false for another tenant's.
func tenantProjectionName(ctx context.Context, full string) (name string, inTenant bool) {
	tenant, name, owned := projection.SplitName(full)
	return name, !owned || tenant == callOf(ctx).principal.TenantID
}

// checkMayChange requires the right to operate a projection in all legal entities that its
// versions read, because readers may be switched between the versions.
func (s *Server) checkMayChange(ctx context.Context, name string) error {
	p := callOf(ctx).principal
	if !projection.IsValidName(name) || s.config.CustomProjections == nil {
		return s.checkDecidesForAll(ctx)
	}
	if len(p.LegalEntities) == 0 {
		return nil
	}
	versions, err := s.config.CustomProjections.Versions(ctx, p.TenantID, name)
	if err != nil {
		return err
	}
	for _, d := range versions {
		if err := checkFilterVisible(p, d.Filter); err != nil {
			return err
		}
	}
	return nil
}

// checkMaySee answers not found to a caller who may see no legal entity that the
// projection reads.
func (s *Server) checkMaySee(ctx context.Context, name string) error {
	p := callOf(ctx).principal
	if !projection.IsValidName(name) || s.config.CustomProjections == nil || len(p.LegalEntities) == 0 {
		return nil
	}
	versions, err := s.config.CustomProjections.Versions(ctx, p.TenantID, name)
	if err != nil {
		return err
	}
	for _, d := range versions {
		if slices.ContainsFunc(p.LegalEntities, d.Filter.Reads) {
			return nil
		}
	}
	return projection.NotFound(name)
}

// checkFilterVisible refuses a filter with legal entities that the caller may not see.
func checkFilterVisible(p ports.Principal, f projection.Filter) error {
	beyond := func(code string) bool { return !slices.Contains(p.LegalEntities, code) }
	if len(p.LegalEntities) > 0 && (len(f.LegalEntities) == 0 || slices.ContainsFunc(f.LegalEntities, beyond)) {
		return fault.New(fault.Forbidden, "projection.affects_others",
			"this projection reads legal entities that are not yours; name only yours in filter.legal_entities, or ask a person who sees all of them").WithField("/filter/legal_entities")
	}
	return nil
}

// parseDefinition reads the definition of a projection and how to try it. Fault:
// projection.affects_others.
func parseDefinition(ctx context.Context, r *request, b *api.NewProjection) (custom.Creation, error) {
	p := callOf(ctx).principal
	c := custom.Creation{Name: b.Name, By: p.PersonID, Expected: b.ExpectedVersion, Definition: projection.Definition{
		TenantID: p.TenantID, Description: b.Description, Key: b.Key, Fold: b.Fold,
		Filter: projection.Filter{Types: b.Filter.Types, Tags: b.Filter.Tags, LegalEntities: b.Filter.LegalEntities},
	}}
	for _, e := range b.Filter.Entities {
		c.Definition.Filter.Entities = append(c.Definition.Filter.Entities, projection.FilterEntity{Type: e.EntityType, ID: e.EntityID})
	}
	if err := shredding.CheckText("/description", b.Description); err != nil {
		return c, err
	}
	if err := checkFilterVisible(p, c.Definition.Filter); err != nil {
		return c, err
	}
	c.DryRun, c.SkipTrial = r.flag("dry_run"), r.flag("untried")
	return c, r.err
}

// createProjection answers POST /api/admin/projections.
func (s *Server) createProjection(ctx context.Context, r *request, body *api.NewProjection) (any, error) {
	c, err := parseDefinition(ctx, r, body)
	if err != nil {
		return nil, err
	}
	made, trial, err := s.config.CustomProjections.Create(ctx, c)
	if err != nil {
		return nil, err
	}
	out, err := s.describeDefinition(ctx, c, made.Version, trial)
	if err != nil || c.DryRun {
		return out, err
	}
	s.log.InfoContext(ctx, "a projection was created", "projection", made.Name, "version", made.Version, "by", c.By)
	return reply(http.StatusCreated, out)
}

func (s *Server) describeDefinition(ctx context.Context, c custom.Creation, version int, t custom.Trial) (api.ProjectionCreated, error) {
	out := api.ProjectionCreated{
		Name: c.Name, Version: version, DryRun: c.DryRun, LookedAt: t.Considered, Events: t.Events, Trial: make([]api.ProjectionTrial, len(t.Entities)),
		Warnings: convert(t.Warnings, func(w custom.Warning) api.ProjectionWarning { return api.ProjectionWarning(w) }),
	}
	for i, e := range t.Entities {
		var err error
		if out.Trial[i], err = s.trialAnswer(ctx, e); err != nil {
			return out, err
		}
	}
	return out, nil
}

// trialAnswer is the result of a trial in one legal entity. Only callers who may read
// its events get its rows.
func (s *Server) trialAnswer(ctx context.Context, t custom.TrialEntity) (api.ProjectionTrial, error) {
	out := api.ProjectionTrial{LegalEntity: t.Entity.Code, Events: t.Events, RowCount: len(t.Rows)}
	err := s.config.Access.Authorize(ctx, callOf(ctx).principal, tenancy.Action{Name: actionReadEvents, LegalEntity: t.Entity.Code})
	switch {
	case fault.KindOf(err) == fault.Forbidden && err != nil:
		return out, nil //nolint:nilerr // callers without the right see the counts only
	case err != nil:
		return out, err
	}
	rows, err := encode(convert(t.Rows, projectionRowAnswer))
	if err != nil {
		return out, err
	}
	out.Rows, err = s.openSealedValues(ctx, t.Entity.Partition, rows)
	return out, err
}

func projectionRowAnswer(r ports.ProjectionRow) api.ProjectionRow {
	return api.ProjectionRow{Key: r.Key, State: r.State, Sequence: numberText(r.Sequence)}
}

// replaceProjection answers PUT /api/admin/projections/{name}.
func (s *Server) replaceProjection(ctx context.Context, r *request, body *api.NewProjection) (any, error) {
	if err := refuseBuiltIn(r.path("name"), "changed; a release with a newer handler builds its version by itself, and you may rebuild it"); err != nil {
		return nil, err
	}
	c, err := parseDefinition(ctx, r, body)
	if err != nil {
		return nil, err
	}
	if c.Name != r.path("name") {
		return nil, fault.New(fault.Invalid, "projection.name_fixed", "the name in the body is not that of the projection; correct it, or create another projection").WithField("/name")
	}
	switching := r.flag("switch")
	if r.err != nil {
		return nil, r.err
	}
	if err := s.checkMayChange(ctx, r.path("name")); err != nil {
		return nil, err
	}
	changed, err := s.config.CustomProjections.Change(ctx, c, switching)
	if err != nil {
		return nil, err
	}
	out, err := s.describeDefinition(ctx, c, changed.Version, changed.Trial)
	out.Shown, out.Unchanged = changed.Shown, changed.Same
	if err != nil || c.DryRun || changed.Same {
		return out, err
	}
	s.log.InfoContext(ctx, "the definition of a projection is changed", "projection", c.Name, "tenant", c.Definition.TenantID, "version", changed.Version, "by", c.By)
	return reply(http.StatusCreated, out)
}

// definitionAnswer returns a definition as it was sent.
func definitionAnswer(d projection.Definition) api.ProjectionDefinition {
	out := api.ProjectionDefinition{Description: d.Description, Key: d.Key, Fold: d.Fold, Filter: api.ProjectionFilter{
		Types: d.Filter.Types, Tags: d.Filter.Tags, LegalEntities: d.Filter.LegalEntities,
	}}
	for _, e := range d.Filter.Entities {
		out.Filter.Entities = append(out.Filter.Entities, api.ProjectionFilterEntity{EntityType: e.Type, EntityID: e.ID})
	}
	return out
}

// refuseBuiltIn refuses the projections of modules.
func refuseBuiltIn(name, what string) error {
	switch {
	case projection.IsValidName(name):
		return nil
	case strings.Contains(name, "/"):
		return projection.NotFound(name)
	}
	return fault.New(fault.FailedPrecondition, "projection.built_in", "projections of modules cannot be %s", what)
}

// deleteProjection answers DELETE /api/admin/projections/{name}.
func (s *Server) deleteProjection(ctx context.Context, r *request) (any, error) {
	p := callOf(ctx).principal
	if err := refuseBuiltIn(r.path("name"), "deleted; stop it instead"); err != nil {
		return nil, err
	}
	if err := s.checkMayChange(ctx, r.path("name")); err != nil {
		return nil, err
	}
	if err := s.config.CustomProjections.Delete(ctx, p.TenantID, r.path("name"), p.PersonID); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "a projection was deleted", "projection", r.path("name"), "tenant", p.TenantID, "by", p.PersonID)
	return answer{status: http.StatusNoContent}, nil
}

// requireSeenProjection hides from a service a projection of events that it does not see.
func (s *Server) requireSeenProjection(ctx context.Context, name string) error {
	sight, err := module.SightOf(ctx)
	if err != nil || sight.IsFull() {
		return err
	}
	_, d, err := s.config.CustomProjections.Find(ctx, callOf(ctx).principal.TenantID, name)
	if err == nil && (len(d.Filter.Types) == 0 || slices.ContainsFunc(d.Filter.Types, func(t string) bool { return !sight.Sees(t) })) {
		err = projection.NotFound(name)
	}
	return err
}

// getProjectionRows answers GET /api/projections/{name}.
func (s *Server) getProjectionRows(ctx context.Context, r *request) (any, error) {
	q := custom.RowsQuery{
		Name: r.path("name"), Key: r.query("key"), Prefix: r.query("prefix"), MinSequence: r.query("min_sequence"), Cursor: r.query("cursor"), Limit: r.pageLimit("limit"),
	}
	var err error
	if q.Entity, err = s.authorizeIn(ctx, actionReadEvents, r.query("legal_entity")); err == nil {
		err = r.err
	}
	if err != nil {
		return nil, err
	}
	if err := s.requireSeenProjection(ctx, q.Name); err != nil {
		return nil, err
	}
	page, err := s.config.CustomProjections.Rows(ctx, q)
	if err != nil {
		return nil, err
	}
	body, err := encode(api.ProjectionRows{
		Projection: q.Name, Version: page.Version, LegalEntity: q.Entity.Code, Sequence: numberText(page.Sequence),
		Rows: convert(page.Rows, projectionRowAnswer), HasMore: page.NextCursor != "", NextCursor: page.NextCursor,
	})
	if err != nil {
		return nil, err
	}
	body, err = s.openSealedValues(ctx, q.Entity.Partition, body)
	return answer{status: http.StatusOK, body: body}, err
}

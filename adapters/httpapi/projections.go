package httpapi

import (
	"context"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

var projectionHandlers = handlers{
	"listProjections":     (*Server).listProjections,
	"getProjection":       (*Server).getProjection,
	"operateProjection":   withBody((*Server).operateProjection),
	"configureProjection": withBody((*Server).configureProjection),
}

// The actions of operators.
const (
	actionReadProjections    = "projections.read"
	actionOperateProjections = "projections.operate"
)

// Projections shows and operates projections: projections.Operations.
type Projections interface {
	List(ctx context.Context, visible []event.PartitionID) ([]projections.View, error)
	Show(ctx context.Context, name string, visible []event.PartitionID) (projections.View, error)
	Do(ctx context.Context, c projections.Command) error
	Configure(ctx context.Context, name string, s projection.Settings, by projections.Decider) error
	DeadLetters(ctx context.Context, q ports.DeadLetterQuery) ([]ports.DeadLetter, error)
}

// visiblePartitions returns the partitions that the caller may see, with the codes of
// their legal entities.
func (s *Server) visiblePartitions(ctx context.Context) ([]event.PartitionID, map[event.PartitionID]string, error) {
	visible, err := s.visibleLegalEntities(ctx)
	if err != nil {
		return nil, nil, err
	}
	ids, codes := make([]event.PartitionID, len(visible)), make(map[event.PartitionID]string, len(visible))
	for i, le := range visible {
		ids[i], codes[le.Partition] = le.Partition, le.Code
	}
	return ids, codes, nil
}

// listProjections answers GET /api/admin/projections.
func (s *Server) listProjections(ctx context.Context, _ *request) (any, error) {
	ids, codes, err := s.visiblePartitions(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.config.Projections.List(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := api.ProjectionList{Projections: make([]api.Projection, 0, len(all))}
	for _, v := range all {
		name, inTenant := tenantProjectionName(ctx, v.Name)
		if _, visible := codes[v.Scope]; !inTenant || v.Scope != 0 && !visible {
			continue
		}
		answer := projectionAnswer(v, codes)
		answer.Name, answer.LegalEntities = name, nil
		out.Projections = append(out.Projections, answer)
	}
	return out, nil
}

// getProjection answers GET /api/admin/projections/{name}.
func (s *Server) getProjection(ctx context.Context, r *request) (any, error) {
	name := r.path("name")
	ids, codes, err := s.visiblePartitions(ctx)
	if err != nil {
		return nil, err
	}
	full, err := s.fullProjectionName(ctx, name)
	if err != nil {
		return nil, err
	}
	v, err := s.config.Projections.Show(ctx, full, ids)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		err = projection.NotFound(name)
	}
	answer := projectionAnswer(v, codes)
	answer.Name = name
	return answer, err
}

// operateProjection answers POST /api/admin/projections/{name}/{action}.
func (s *Server) operateProjection(ctx context.Context, r *request, body *api.ProjectionCommand) (any, error) {
	c := projections.Command{
		Action: projection.Action(r.path("action")), Decider: decider(ctx), Reason: body.Reason, Version: body.Version,
	}
	var err error
	if c.Name, err = s.fullProjectionName(ctx, r.path("name")); err != nil {
		return nil, err
	}
	if c.Partition, err = s.operatedPartition(ctx, body.LegalEntity); err != nil {
		return nil, err
	}
	if c.Partition == 0 && !slices.Contains(perLegalEntityActions, c.Action) {
		if err := s.checkMayChange(ctx, r.path("name")); err != nil {
			return nil, err
		}
	}
	if len(c.Reason) > maxReasonBytes {
		return nil, fault.New(fault.Invalid, "request.member_too_long", "a reason has at most 1000 bytes; shorten it").WithField("/reason")
	}
	if err := shredding.CheckText("/reason", c.Reason); err != nil {
		return nil, err
	}
	if c.Partitions, _, err = s.visiblePartitions(ctx); err != nil {
		return nil, err
	}
	if err := s.config.Projections.Do(ctx, c); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "a projection was operated", "projection", c.Name, "action", string(c.Action), "partition", uint32(c.Partition), "by", c.By)
	return s.getProjection(ctx, r)
}

// decider is the caller.
func decider(ctx context.Context) projections.Decider {
	p := callOf(ctx).principal
	return projections.Decider{By: p.PersonID, Tenant: p.TenantID}
}

// operatedPartition checks that the caller may operate projections in the legal entity that a
// body names, and finds its partition; 0 if the body names none.
func (s *Server) operatedPartition(ctx context.Context, code string) (event.PartitionID, error) {
	if code == "" {
		return 0, nil
	}
	le, err := s.authorizeIn(ctx, actionOperateProjections, code)
	return le.Partition, err
}

// perLegalEntityActions act on single legal entities, so they need no right to all. If the
// request names none, they apply to each that the caller may see.
var perLegalEntityActions = []projection.Action{projection.Fix, projection.Skip, projection.Reset}

// checkDecidesForAll refuses a change for all legal entities to callers who may see only
// some. Projections belong to the installation: where tenants share it, only operators of
// Config.OperatorTenant decide for all.
func (s *Server) checkDecidesForAll(ctx context.Context) error {
	p := callOf(ctx).principal
	affectsOthers := fault.New(fault.Forbidden, "projection.affects_others",
		"this is about all legal entities, also those that are not yours; ask an operator of all of them, who is of the tenant in projector.operator_tenant where there are several tenants")
	if len(p.LegalEntities) > 0 {
		return affectsOthers
	}
	if s.config.OperatorTenant == p.TenantID {
		return nil
	}
	all, err := s.config.Access.LegalEntities(ctx, "")
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(le ports.LegalEntity) bool { return le.TenantID != p.TenantID }) {
		return affectsOthers
	}
	return nil
}

// maxReasonBytes bounds the reason that an operator gives.
const maxReasonBytes = 1000

// configureProjection answers PUT /api/admin/projections/{name}/settings.
func (s *Server) configureProjection(ctx context.Context, r *request, body *api.ProjectionSettings) (any, error) {
	full, err := s.fullProjectionName(ctx, r.path("name"))
	if err != nil {
		return nil, err
	}
	if err := s.checkMayChange(ctx, r.path("name")); err != nil {
		return nil, err
	}
	b := body
	settings := projection.Settings{
		BatchSize: b.BatchSize, MaxAttempts: b.MaxAttempts, RetryMS: b.RetryMs, RetryMaxMS: b.RetryMaxMs, OnPoison: b.OnPoison, SingleInstance: b.SingleInstance,
		Checkpoint: projection.Checkpointing{Mode: b.Checkpoint.Mode, Events: b.Checkpoint.Events, WaitMS: b.Checkpoint.WaitMs},
	}
	if err := s.config.Projections.Configure(ctx, full, settings, decider(ctx)); err != nil {
		if f, ok := fault.As(err); ok {
			return nil, f.WithField(strings.TrimPrefix(f.Field, "/settings"))
		}
		return nil, err
	}
	return s.getProjection(ctx, r)
}

func projectionAnswer(v projections.View, codes map[event.PartitionID]string) api.Projection {
	set := v.Settings
	out := api.Projection{
		Name: v.Name, Version: v.Version, LegalEntity: codes[v.Scope], Current: v.Current, Role: string(v.Role), Status: string(v.Status), EventTypes: slices.Clone(v.EventTypes),
		CreatedAt: timeText(v.CreatedAt), ChangedAt: timeText(v.ChangedAt), ChangedBy: v.ChangedBy,
		Settings: api.ProjectionSettings{
			BatchSize: set.BatchSize, MaxAttempts: set.MaxAttempts, RetryMs: set.RetryMS, RetryMaxMs: set.RetryMaxMS, OnPoison: set.OnPoison, SingleInstance: set.SingleInstance,
			Checkpoint: api.ProjectionCheckpointing{Mode: set.Checkpoint.Mode, Events: set.Checkpoint.Events, WaitMs: set.Checkpoint.WaitMS},
		},
	}
	if out.EventTypes == nil {
		out.EventTypes = []string{}
	}
	if d, err := projection.ParseDefinition(v.Definition); err == nil { // an error: it is built in, or another release wrote it
		out.Definition = definitionAnswer(d)
	}
	lag, processed, skipped, failed := uint64(0), uint64(0), uint64(0), uint64(0)
	for _, p := range v.Partitions {
		lag, processed, skipped, failed = lag+p.LagEvents, processed+p.Processed, skipped+p.Skipped, failed+p.Failed
		out.LagSeconds = max(out.LagSeconds, p.LagSeconds)
		switch p.Status {
		case projection.Halted:
			out.Faulted++
		case projection.Retrying:
			out.Retrying++
		}
		out.LegalEntities = append(out.LegalEntities, api.ProjectionInLegalEntity{
			LegalEntity: codes[p.Partition], Status: p.Status, Sequence: numberText(p.Sequence), Head: numberText(p.Head),
			LagEvents: numberText(p.LagEvents), LagSeconds: p.LagSeconds, Code: p.Error, Attempts: p.Attempts,
			NextAttemptAt: optionalTime(p.NextAttemptAt), LastFailedAt: optionalTime(p.LastFailedAt), LastEventAt: optionalTime(p.LastEventAt),
			UpdatedAt: optionalTime(p.UpdatedAt), Node: p.Holder, Processed: numberText(p.Processed), Skipped: numberText(p.Skipped), Failed: numberText(p.Failed),
		})
	}
	out.LagEvents, out.Processed, out.Skipped, out.Failed = numberText(lag), numberText(processed), numberText(skipped), numberText(failed)
	return out
}

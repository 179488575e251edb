package httpapi

import (
	"context"
	"net/http"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// TargetRebuilds fold parts of read models anew: projector.Targets.
type TargetRebuilds interface {
	Rebuild(ctx context.Context, o projections.TargetOrder) (projections.TargetReport, error)
}

// RebuildProjectionRows answers POST /api/admin/projections/{name}/rebuild-rows.
func (s *Server) RebuildProjectionRows(ctx context.Context, r api.RebuildProjectionRowsRequestObject) (api.RebuildProjectionRowsResponseObject, error) {
	if s.config.Targets == nil {
		return nil, projectionsNotServed()
	}
	o := projections.TargetOrder{
		Version: r.Body.Version, Entity: event.StreamID{Type: r.Body.Entity.Type, ID: r.Body.Entity.ID}, DryRun: r.Body.DryRun, By: callOf(ctx).principal.PersonID,
	}
	var err error
	if o.Name, err = s.named(ctx, r.Name); err != nil {
		return nil, err
	}
	if err := chosen(r.Body, &o); err != nil {
		return nil, err
	}
	ids, codes, err := s.seen(ctx)
	if err != nil {
		return nil, err
	}
	if o.Partitions = ids; r.Body.LegalEntity != "" {
		le, err := s.enter(ctx, actionOperateProjections, r.Body.LegalEntity)
		if err != nil {
			return nil, err
		}
		o.Partitions = []event.PartitionID{le.Partition}
	}
	report, err := s.config.Targets.Rebuild(ctx, o)
	if err != nil {
		return nil, err
	}
	out := api.ProjectionRowsRebuilt{
		Name: r.Name, DryRun: report.DryRun, Rows: count(report.Rows()), Rebuilt: make([]api.ProjectionRowsResult, len(report.Rebuilt)), LeftOut: append([]int{}, report.Foreign...),
	}
	for i, one := range report.Rebuilt {
		out.Rebuilt[i] = api.ProjectionRowsResult{
			Version: one.Version, LegalEntity: codes[one.Partition], Entities: count(uint64(one.Entities)), Sequence: number(one.Sequence),
			Events: count(uint64(one.Events)), PassedOver: count(uint64(one.PassedOver)), Tables: make([]api.ProjectionTableDifference, len(one.Tables)),
		}
		for j, t := range one.Tables {
			out.Rebuilt[i].Tables[j] = tableDifferenceAnswer(t)
		}
	}
	return reply(http.StatusOK, out)
}

// chosen reads which rows are meant: an entity's in one legal entity, or a person's.
func chosen(b *api.RebuildProjectionRowsJSONRequestBody, o *projections.TargetOrder) error {
	entity := o.Entity != event.StreamID{}
	switch {
	case b.Version < 0:
		return fault.New(fault.Invalid, "projection.target_invalid", "a version is a number from 1, or 0 for all; correct it").WithField("/version")
	case entity == (b.Subject != ""):
		return fault.New(fault.Invalid, "projection.target_invalid", "name an entity or a subject, and not both").WithField("/entity")
	case !entity:
		subject, err := shredding.ParseSubject(b.Subject)
		if f, ok := fault.As(err); ok {
			err = f.WithField("/subject")
		}
		o.Subject = subject
		return err
	case o.Entity.Type == "" || o.Entity.ID == "":
		return fault.New(fault.Invalid, "projection.target_invalid", "an entity has a type and an id, which are those of its stream; name both").WithField("/entity")
	case b.LegalEntity == "":
		return fault.New(fault.Invalid, "projection.partition_missing", "an entity is one of a legal entity; name it").WithField("/legal_entity")
	}
	return nil
}

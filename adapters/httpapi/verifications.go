package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/requests"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/application/verify/jobs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Verifications verifies logs as jobs: jobs.Service.
type Verifications interface {
	Start(ctx context.Context, tenantID string, by event.Actor, r jobs.Request) (jobs.Run, error)
	Get(ctx context.Context, tenantID string, id event.ID) (jobs.Run, error)
	List(ctx context.Context, tenantID string, limit int) ([]jobs.Run, error)
	Cancel(ctx context.Context, tenantID string, id event.ID, by event.Actor) (jobs.Run, error)
	Heads(tenantID string, r jobs.Run) verify.Heads
}

var verificationHandlers = handlers{
	"startVerification":  withBody((*Server).startVerification),
	"listVerifications":  (*Server).listVerifications,
	"getVerification":    (*Server).getVerification,
	"cancelVerification": (*Server).cancelVerification,
}

const (
	actionVerify             = "verifications.run"
	codeVerificationNotFound = "verification.not_found"
)

// startVerification answers POST /api/verifications.
func (s *Server) startVerification(ctx context.Context, _ *request, body *api.VerificationRequest) (any, error) {
	p := callOf(ctx).principal
	order := jobs.Request{OpenKeys: body.OpenKeys}
	for i, code := range body.LegalEntities {
		le, err := s.authorizeIn(ctx, actionVerify, code)
		if err != nil {
			return nil, pointAtMember(err, "/legal_entities/"+strconv.Itoa(i))
		}
		if !slices.ContainsFunc(order.Logs, func(known ports.LegalEntity) bool { return known.Partition == le.Partition }) {
			order.Logs = append(order.Logs, le)
		}
	}
	if len(body.LegalEntities) == 0 {
		var err error
		if order.Logs, err = s.visibleLegalEntities(ctx); err != nil {
			return nil, err
		}
		if order.WholeTenant = len(p.LegalEntities) == 0; order.WholeTenant {
			log, err := s.config.Access.LegalEntity(ctx, p.TenantID, ports.AdministrativeCode)
			if err != nil {
				return nil, err
			}
			order.Logs = append(slices.Clip(order.Logs), log)
		}
	}
	if heads := bytes.TrimSpace(body.Heads); len(heads) > 0 && !bytes.Equal(heads, []byte("null")) {
		parsed, err := verify.ParseHeads(heads)
		if err != nil {
			return nil, pointAtMember(err, "/heads")
		}
		order.Heads = &parsed
	}
	started, err := s.config.Verifications.Start(ctx, p.TenantID, p.Actor(), order)
	if err != nil {
		return nil, err
	}
	answered, err := s.verificationAnswer(ctx, started)
	if err != nil {
		return nil, err
	}
	return reply(http.StatusAccepted, answered)
}

// findVerification finds the run in the path, if the caller may see all its legal entities.
func (s *Server) findVerification(ctx context.Context, r *request) (jobs.Run, error) {
	id, err := parseID(r.path("id"), codeVerificationNotFound)
	if err != nil {
		return jobs.Run{}, err
	}
	p := callOf(ctx).principal
	found, err := s.config.Verifications.Get(ctx, p.TenantID, id)
	if err == nil && !seesVerification(p, found) {
		err = fault.New(fault.NotFound, codeVerificationNotFound, "there is no verification with this id that you may see; GET /api/verifications lists them")
	}
	return found, err
}

func seesVerification(p ports.Principal, r jobs.Run) bool {
	return len(p.LegalEntities) == 0 ||
		!slices.ContainsFunc(r.Started.LegalEntities, func(code string) bool { return !slices.Contains(p.LegalEntities, code) })
}

// getVerification answers GET /api/verifications/{id}.
func (s *Server) getVerification(ctx context.Context, r *request) (any, error) {
	found, err := s.findVerification(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.verificationAnswer(ctx, found)
}

// listVerifications answers GET /api/verifications.
func (s *Server) listVerifications(ctx context.Context, r *request) (any, error) {
	limit := r.pageLimit("limit")
	if r.err != nil {
		return nil, r.err
	}
	p := callOf(ctx).principal
	limit, read := requests.Limits(p, limit)
	all, err := s.config.Verifications.List(ctx, p.TenantID, read)
	if err != nil {
		return nil, err
	}
	seen := slices.DeleteFunc(all, func(v jobs.Run) bool { return !seesVerification(p, v) })
	return api.VerificationList{Verifications: convert(seen[:min(limit, len(seen))], verificationSummary)}, nil
}

// cancelVerification answers POST /api/verifications/{id}/cancel.
func (s *Server) cancelVerification(ctx context.Context, r *request) (any, error) {
	found, err := s.findVerification(ctx, r)
	if err != nil {
		return nil, err
	}
	p := callOf(ctx).principal
	cancelled, err := s.config.Verifications.Cancel(ctx, p.TenantID, found.ID, p.Actor())
	if err != nil {
		return nil, err
	}
	return s.verificationAnswer(ctx, cancelled)
}

func (s *Server) verificationAnswer(ctx context.Context, r jobs.Run) (api.Verification, error) {
	out := verificationSummary(r)
	out.Results = convert(r.Checked, func(c jobs.CheckedData) api.VerificationResult {
		result := api.VerificationResult{
			LegalEntity: c.LegalEntity, PartitionID: int64(c.Partition), Events: numberText(c.Events), HeadSequence: numberText(c.Head), HeadChecksum: c.Checksum,
			Redactions: c.Redactions, Erasures: c.Erasures, UnboundIntents: numberText(c.UnboundIntents),
			UnboundNumbers: numberText(c.UnboundNumbers), UnboundRequests: numberText(c.UnboundRequests), Findings: convert(c.Findings, verificationFinding), SuppressedFindings: c.Suppressed,
		}
		if c.ReferenceSequence != nil {
			result.ReferenceSequence = numberText(*c.ReferenceSequence)
		}
		if c.Policy != nil {
			result.Policy = api.VerificationPolicy{Sha256: c.Policy.SHA256, Release: c.Policy.Release, InForce: c.Policy.InForce}
		}
		return result
	})
	if r.Erasures != nil {
		out.Erasures = api.VerificationErasures{Sound: r.Erasures.Finding == "", Finding: r.Erasures.Finding}
	}
	out.EventTypes = convert(r.EventTypes, func(e jobs.RegistryData) api.VerificationEventTypes {
		return api.VerificationEventTypes{
			Shared: e.Tenant == "", Changes: e.Changes, HeadChange: e.Head, HeadChecksum: e.Checksum, Findings: convert(e.Findings, verificationFinding), SuppressedFindings: e.Suppressed,
		}
	})
	if r.State != jobs.Sound {
		return out, nil
	}
	heads, err := json.Marshal(s.config.Verifications.Heads(callOf(ctx).principal.TenantID, r))
	out.Heads = heads
	return out, err
}

func verificationFinding(f jobs.Finding) api.VerificationFinding {
	return api.VerificationFinding{Kind: f.Kind, Sequence: numberText(f.Sequence), EventID: f.EventID, Detail: f.Detail}
}

// verificationSummary is a run without the results for each log.
func verificationSummary(r jobs.Run) api.Verification {
	return api.Verification{
		ID: r.ID.String(), Status: string(r.State), LegalEntities: nonNil(r.Started.LegalEntities), WholeTenant: r.Started.WholeTenant, OpenKeys: r.Started.OpenKeys,
		StartedBy: r.StartedBy, StartedAt: timeText(r.StartedAt), EndedBy: r.EndedBy, EndedAt: optionalTime(r.EndedAt),
		EventsDone: numberText(r.Done), EventsTotal: numberText(max(r.Started.Events, r.Done)), Checking: r.Current, Findings: r.Findings, Error: r.Code,
	}
}

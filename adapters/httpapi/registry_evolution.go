package httpapi

import (
	"context"
	"encoding/hex"
	"net/http"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

// CheckEventType answers POST /api/event-types/check.
func (s *Server) CheckEventType(ctx context.Context, r api.CheckEventTypeRequestObject) (api.CheckEventTypeResponseObject, error) {
	proof, err := s.proof(ctx, r.Body.Proof)
	if err != nil {
		return nil, err
	}
	found, err := s.config.Types.Check(ctx, registrationOf(r.Body), proof)
	if err != nil {
		return nil, ofProof(err)
	}
	out := api.EventTypeCheck{
		Type: r.Body.Type, SchemaVersion: int(r.Body.SchemaVersion), Verdict: string(found.Verdict),
		Findings: make([]api.Violation, len(found.Findings)), Differences: []api.EventTypeDifference{},
	}
	for i, v := range found.Findings {
		out.Findings[i] = violationAnswer(v)
	}
	if c := found.Comparison; c != nil {
		out.ComparedWith, out.Compatible, out.Truncated = int(c.Older), &c.Compatible, c.Truncated
		for _, d := range c.Differences {
			out.Differences = append(out.Differences, api.EventTypeDifference{
				Kind: string(d.Kind), Pointer: d.Pointer, Demands: string(d.Demand), Met: d.Met, Guess: d.Guess, Detail: d.Detail,
			})
		}
	}
	if p := found.Proof; p != nil {
		out.Proof = api.UpcastProof{
			Examples: p.Examples, EventsScanned: p.Events, Partitions: p.Partitions, PartitionsDone: p.Done, Failures: make([]api.UpcastFailure, len(p.Failures)),
			FailuresElsewhere: p.Elsewhere, Failed: p.Failed, Complete: p.Complete, NextCursor: p.Cursor, Proof: p.Proof,
		}
		for i, f := range p.Failures {
			out.Proof.Failures[i] = api.UpcastFailure{
				EventID: f.EventID, LegalEntity: f.LegalEntity, Sequence: f.Sequence, Example: f.Example, SchemaVersion: int(f.SchemaVersion), Code: f.Code, Pointer: f.Pointer,
			}
		}
	}
	return reply(http.StatusOK, out)
}

// proof is what a caller brings along to have upcasters proven, with the legal entities
// whose events may be named to them.
func (s *Server) proof(ctx context.Context, token string) (registry.Proof, error) {
	visible, err := s.visible(ctx)
	if err != nil {
		return registry.Proof{}, err
	}
	p := registry.Proof{Token: token, Visible: make(map[event.PartitionID]string, len(visible))}
	for _, le := range visible {
		p.Visible[le.Partition] = le.Code
	}
	return p, nil
}

// ofProof makes a fault of a token point to where it was sent.
func ofProof(err error) error {
	if f, ok := fault.As(err); ok && f.Field == "cursor" {
		return f.WithField("/proof")
	}
	return err
}

// violationAnswer is a finding as it is written.
func violationAnswer(v fault.Violation) api.Violation {
	return api.Violation{
		Field: v.Field, Code: v.Code, Rule: v.Rule, Severity: v.Severity, Detail: v.Detail, Expected: v.Expected, Got: v.Got,
		Difference: v.Difference, Currency: v.Currency, Bt: v.BT, Element: v.Element, Line: v.Line,
	}
}

// DeprecateEventType answers POST /api/event-types/{type}/deprecate.
func (s *Server) DeprecateEventType(ctx context.Context, r api.DeprecateEventTypeRequestObject) (api.DeprecateEventTypeResponseObject, error) {
	return s.changeEventType(ctx, r.Type, r.Body, s.config.Types.Deprecate)
}

// ReactivateEventType answers POST /api/event-types/{type}/reactivate.
func (s *Server) ReactivateEventType(ctx context.Context, r api.ReactivateEventTypeRequestObject) (api.ReactivateEventTypeResponseObject, error) {
	return s.changeEventType(ctx, r.Type, r.Body, s.config.Types.Reactivate)
}

func (s *Server) changeEventType(
	ctx context.Context, name string, body *api.EventTypeChangeRequest,
	change func(ctx context.Context, name string, version uint32, by, reason string) ([]eventtype.Registration, error),
) (answer, error) {
	var asked api.EventTypeChangeRequest
	if body != nil {
		asked = *body
	}
	version, err := schemaVersion(asked.SchemaVersion, "event_type.schema_version_invalid")
	if err != nil {
		return answer{}, err
	}
	versions, err := change(ctx, name, version, callOf(ctx).principal.PersonID, asked.Reason)
	if err != nil {
		return answer{}, err
	}
	return reply(http.StatusOK, api.EventTypeVersions{Type: name, Versions: eventTypeAnswers(versions)})
}

// GetEventTypeHistory answers GET /api/event-types/{type}/history.
func (s *Server) GetEventTypeHistory(ctx context.Context, r api.GetEventTypeHistoryRequestObject) (api.GetEventTypeHistoryResponseObject, error) {
	changes, err := s.config.Types.History(ctx, r.Type)
	if err != nil {
		return nil, err
	}
	return typeChanges(r.Type, changes)
}

// ListEventTypeChanges answers GET /api/event-types/history.
func (s *Server) ListEventTypeChanges(ctx context.Context, _ api.ListEventTypeChangesRequestObject) (api.ListEventTypeChangesResponseObject, error) {
	changes, err := s.config.Types.Changes(ctx)
	if err != nil {
		return nil, err
	}
	return typeChanges("", changes)
}

func typeChanges(name string, changes []eventtype.Change) (answer, error) {
	out := api.EventTypeHistory{Type: name, Changes: make([]api.EventTypeChange, len(changes))}
	for i, c := range changes {
		out.Changes[i] = api.EventTypeChange{
			Number: strconv.FormatInt(c.Number, 10), Type: c.Type, Event: string(c.Action), SchemaVersion: int(c.SchemaVersion),
			DocumentSha256: hex.EncodeToString(c.Digest[:]), Actor: c.Actor, Reason: c.Reason, At: timeText(c.At),
			Checksum: hex.EncodeToString(c.Checksum[:]),
		}
	}
	return reply(http.StatusOK, out)
}

package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// PersonalReports finds what is stored about a person: disclosure.Reports.
type PersonalReports interface {
	// Overview records the report. On an error there must be none.
	Overview(ctx context.Context, p ports.Principal, why disclosure.Purpose, entities []ports.LegalEntity) (disclosure.Overview, error)
	// Events reads the next page of events, with values of others masked.
	Events(ctx context.Context, le ports.LegalEntity, subject shredding.Subject, after event.Sequence) ([]event.Recorded, error)
	Intents(ctx context.Context, le ports.LegalEntity, subject shredding.Subject, after event.ID) ([]event.ID, error)
}

var personalReportHandlers = handlers{
	"reportPersonalData": (*Server).reportPersonalData,
}

const actionPersonalReport = "personal_data.report"

// readWholeTenant is granted to those who answer for all legal entities.
var readWholeTenant = actionAnywhere("access_log.read")

// personalReport streams all that is stored about a person as JSON Lines, a page at a time.
type personalReport struct {
	server   *Server
	ctx      context.Context // of the request
	subject  shredding.Subject
	entities []ports.LegalEntity
	whole    bool // of the tenant: the caller is entitled to all of it and named no legal entity
	overview disclosure.Overview

	w                         http.ResponseWriter
	events, intents, accesses int
}

// reportPersonalData answers GET /api/personal-data/report.
func (s *Server) reportPersonalData(ctx context.Context, r *request) (any, error) {
	subject, err := shredding.ParseSubject(r.query("subject"))
	if err != nil {
		return nil, err
	}
	current := callOf(ctx)
	if err := requireReason(ctx); err != nil {
		return nil, err
	}
	current.subject = subject
	x := &personalReport{server: s, ctx: ctx, subject: subject}
	if x.entities, x.whole, err = s.logsWithPersons(ctx, actionPersonalReport, r.query("legal_entity")); err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, s.limits.Request)
	defer cancel()
	x.overview, err = s.config.PersonalReports.Overview(within, current.principal, purposeOf(ctx), x.entities)
	return x, err
}

// requireReason refuses a call about persons that does not say why.
func requireReason(ctx context.Context) error {
	if callOf(ctx).reason == "" {
		return fault.New(fault.Invalid, "access.reason_missing", "reports about persons and searches for them need a reason; send the header Access-Reason").WithField(headerAccessReason)
	}
	return nil
}

// logsWithPersons returns the logs that an officer asks about: that of a legal entity, or with code "" all
// that the officer may see. For an officer of the whole tenant these are all logs, with the
// administrative one, which has the names of persons who were enrolled.
func (s *Server) logsWithPersons(ctx context.Context, action, code string) (logs []ports.LegalEntity, whole bool, err error) {
	if code != "" {
		le, err := s.authorizeIn(ctx, action, code)
		return []ports.LegalEntity{le}, false, err
	}
	p := callOf(ctx).principal
	if logs, err = s.visibleLegalEntities(ctx); err != nil || len(p.LegalEntities) > 0 {
		return logs, false, err
	}
	administrative, err := s.config.Access.LegalEntity(ctx, p.TenantID, ports.AdministrativeCode)
	if err == nil {
		return append(slices.Clip(logs), administrative), true, nil
	}
	if fault.KindOf(err) == fault.NotFound { // nothing was recorded
		err = nil
	}
	return logs, true, err
}

// write sends the report. An error ends it with a line that carries the problem and with an
// aborted connection, so that it cannot be taken for complete.
func (x *personalReport) write(w http.ResponseWriter) error {
	w.Header().Set(echo.HeaderContentType, "application/jsonl")
	w.WriteHeader(http.StatusOK)
	x.w = w
	if err := x.writeAll(); err != nil {
		problem, _ := x.server.problemOf(x.ctx, err)
		if body, failed := problem.encode(nil); failed == nil {
			_, _ = w.Write(append(append([]byte(`{"error":`), body...), "}\n"...)) // the connection is aborted in any case
			_ = http.NewResponseController(w).Flush()
		}
		callOf(x.ctx).isAborted = true
	}
	return nil
}

func (x *personalReport) writeAll() error {
	call := callOf(x.ctx)
	codes := convert(x.entities, func(le ports.LegalEntity) string { return le.Code })
	if err := x.line("report", map[string]any{
		"subject": x.subject.String(), "generated_at": timeText(time.Now()), "legal_entities": codes, "requested_by": call.principal.PersonID, "reason": call.reason,
	}); err != nil {
		return err
	}
	if err := lines(x, "erasure", x.overview.Erasures); err != nil {
		return err
	}
	if err := lines(x, "hold", x.overview.Holds); err != nil {
		return err
	}
	if err := lines(x, "records", x.overview.Records); err != nil {
		return err
	}
	if err := lines(x, "copies", x.overview.Copies); err != nil {
		return err
	}
	for _, le := range x.entities {
		if err := x.writeEvents(le); err != nil {
			return err
		}
		if err := x.writeIntents(le); err != nil {
			return err
		}
	}
	if x.whole {
		if err := x.writeAccesses(); err != nil {
			return err
		}
	}
	return x.line("end", map[string]int{"events": x.events, "intents": x.intents, "accesses": x.accesses})
}

// page runs a step with the deadline of a request, after a look at the rights of the caller,
// which the report may outlive: the caller must still be allowed reports, and the action.
func (x *personalReport) page(action tenancy.Action, step func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(x.ctx, x.server.limits.Request)
	defer cancel()
	connection := http.NewResponseController(x.w)
	// Only the ResponseRecorder of a test does not support deadlines.
	_ = connection.SetWriteDeadline(time.Now().Add(x.server.limits.Request + 30*time.Second))
	call := callOf(x.ctx)
	p, err := x.server.config.Access.Authenticate(ctx, call.token)
	for _, needed := range []tenancy.Action{actionAnywhere(actionPersonalReport), action} {
		if err == nil {
			call.principal = p
			err = x.server.config.Access.Authorize(ctx, p, needed)
		}
	}
	if err == nil {
		err = step(ctx)
	}
	if err == nil {
		err = connection.Flush()
	}
	return err
}

// actionIn is what a caller must be allowed for the records of a legal entity, or of the
// administrative log.
func actionIn(le ports.LegalEntity) tenancy.Action {
	if le.IsAdministrative() {
		return readWholeTenant
	}
	return tenancy.Action{Name: actionPersonalReport, LegalEntity: le.Code}
}

func (x *personalReport) writeEvents(le ports.LegalEntity) error {
	for after, more := event.Sequence(0), true; more; {
		if err := x.page(actionIn(le), func(ctx context.Context) error {
			found, err := x.server.config.PersonalReports.Events(ctx, le, x.subject, after)
			if more = len(found) > 0; err != nil || !more {
				return err
			}
			after = found[len(found)-1].Sequence
			w, err := x.server.render(ctx, found)
			if err != nil {
				return err
			}
			for i := range w.prepared {
				w.raw(`{"kind":"event","event":`)
				w.line(&w.prepared[i])
				w.raw("}\n")
				x.events++
			}
			if w.err != nil {
				return w.err
			}
			_, err = x.w.Write(w.b)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func (x *personalReport) writeIntents(le ports.LegalEntity) error {
	for after, more := (event.ID{}), true; more; {
		if err := x.page(actionIn(le), func(ctx context.Context) error {
			ids, err := x.server.config.PersonalReports.Intents(ctx, le, x.subject, after)
			if more = len(ids) > 0; err != nil || !more {
				return err
			}
			after = ids[len(ids)-1]
			intents, outcomes := make([]intent.Intent, len(ids)), make([]pipeline.Outcome, len(ids))
			for i, id := range ids {
				if intents[i], outcomes[i], err = x.server.config.Intents.Get(ctx, le, id); err != nil {
					return err
				}
				if intents[i].Payload, err = disclosure.MaskOthers(intents[i].Payload, x.subject); err != nil {
					return err
				}
			}
			answers, err := x.server.intentAnswers(ctx, intents, outcomes)
			if err != nil {
				return err
			}
			x.intents += len(answers)
			for i := range answers {
				if err := x.line("intent", map[string]any{"intent": answers[i]}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// writeAccesses writes who read the person's data, in whichever legal entity.
func (x *personalReport) writeAccesses() error {
	for cursor, more := "", true; more; {
		if err := x.page(readWholeTenant, func(ctx context.Context) error {
			page, next, err := x.server.config.Disclosures.Search(ctx, callOf(ctx).principal, ports.AccessQuery{Subject: x.subject, Limit: defaultPage}, cursor)
			cursor, more = next, next != ""
			for _, a := range page {
				x.accesses++
				if err := x.line("access", map[string]any{"access": accessAnswer(a)}); err != nil {
					return err
				}
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// lines writes one line for each item.
func lines[T any](x *personalReport, kind string, items []T) error {
	for _, item := range items {
		if err := x.line(kind, map[string]any{kind: item}); err != nil {
			return err
		}
	}
	return nil
}

// line writes a line: the members, and kind.
func (x *personalReport) line(kind string, members any) error {
	body, err := encode(members)
	if err != nil {
		return err
	}
	_, err = x.w.Write(append(append([]byte(`{"kind":"`+kind+`",`), body[1:]...), '\n'))
	return err
}

package httpapi

import (
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/module"
	access "github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Disclosures records reads that matter, and answers from their record: disclosure.Service.
type Disclosures interface {
	// Reader returns the principal as a reader whose accesses are recorded before they leave.
	Reader(ctx context.Context, p ports.Principal, why disclosure.Purpose) (module.Reader, error)
	// Record records accesses. On an error the request must not be answered.
	Record(ctx context.Context, p ports.Principal, why disclosure.Purpose, accesses ...access.Access) error
	Grant(ctx context.Context, by ports.Principal, n disclosure.NewGrant) (g access.Grant, replayed bool, err error)
	End(ctx context.Context, by ports.Principal, id event.ID, reason string) (access.Grant, error)
	ListGrants(ctx context.Context, p ports.Principal) ([]access.Grant, error)
	Search(ctx context.Context, p ports.Principal, q ports.AccessQuery, cursor string) (page []access.Access, next string, err error)
}

var disclosureHandlers = handlers{
	"listAccesses":    (*Server).listAccesses,
	"grantDisclosure": withBody((*Server).grantDisclosure),
	"listDisclosures": (*Server).listDisclosures,
	"endDisclosure":   withBody((*Server).endDisclosure),
}

// headerAccessReason is why a caller reads personal data, for its record.
const headerAccessReason = "Access-Reason"

// purposeOf says for what the caller reads.
func purposeOf(ctx context.Context) disclosure.Purpose {
	c := callOf(ctx)
	return disclosure.Purpose{Operation: c.operation, Reason: c.reason, RequestID: c.requestID, Subject: c.subject}
}

// listAccesses answers GET /api/access-log.
func (s *Server) listAccesses(ctx context.Context, r *request) (any, error) {
	q := ports.AccessQuery{
		PersonID: r.query("person"), Subject: shredding.Subject(r.query("subject")), Class: shredding.Class(r.query("class")), Kind: access.Kind(r.query("kind")),
		From: r.moment("from", false), To: r.moment("to", true), Limit: r.pageLimit("limit"),
	}
	if q.Class != "" && !q.Class.Valid() {
		r.fail(invalidParameter("class", "a class of personal data such as contact"))
	}
	if q.Kind != "" && !q.Kind.Valid() {
		r.fail(invalidParameter("kind", "a kind of access such as personal_data"))
	}
	if r.err != nil {
		return nil, r.err
	}
	page, next, err := s.config.Disclosures.Search(ctx, callOf(ctx).principal, q, r.query("cursor"))
	return api.AccessList{Accesses: convert(page, accessAnswer), HasMore: next != "", NextCursor: next}, err
}

func accessAnswer(a access.Access) api.Access {
	return api.Access{
		ID: a.ID.String(), At: timeText(a.At), PersonID: a.PersonID, PrincipalID: a.PrincipalID, Kind: string(a.Kind), Operation: a.Operation,
		LegalEntity: a.LegalEntity, Subject: a.Subject.String(), Class: string(a.Class), Values: a.Values, Reason: a.Reason, RequestID: a.RequestID, GrantID: idText(a.GrantID),
	}
}

// grantDisclosure answers POST /api/disclosures.
func (s *Server) grantDisclosure(ctx context.Context, r *request, body *api.NewDisclosure) (any, error) {
	switch {
	case body.PersonID == "":
		return nil, missingMember("/person_id")
	case body.Until == "":
		return nil, missingMember("/until")
	case body.Reason == "":
		return nil, missingMember("/reason")
	}
	until, err := time.Parse(time.RFC3339Nano, body.Until)
	if err != nil {
		return nil, fault.New(fault.Invalid, "disclosure.until_invalid", "this is no RFC 3339 time such as 2026-04-30T00:00:00Z; correct it").WithField("/until")
	}
	made, replayed, err := s.config.Disclosures.Grant(ctx, callOf(ctx).principal, disclosure.NewGrant{
		PersonID: body.PersonID, Classes: convert(body.Classes, func(c string) shredding.Class { return shredding.Class(c) }), Until: until, Reason: body.Reason, IdempotencyKey: r.idempotencyKey(),
	})
	if err != nil {
		return nil, err
	}
	return replyReplayed(createdStatus(!replayed), grantAnswer(made), replayed)
}

// listDisclosures answers GET /api/disclosures.
func (s *Server) listDisclosures(ctx context.Context, r *request) (any, error) {
	all, err := s.config.Disclosures.ListGrants(ctx, callOf(ctx).principal)
	if err != nil {
		return nil, err
	}
	page, next, err := listPage(r, all, func(g access.Grant) string { return g.ID.String() }, func(id string) int {
		at := slices.IndexFunc(all, func(g access.Grant) bool { return g.ID.String() == id })
		if at >= 0 {
			at++
		}
		return at
	})
	return api.DisclosureList{Disclosures: convert(page, grantAnswer), HasMore: next != "", NextCursor: next}, err
}

// endDisclosure answers POST /api/disclosures/{id}/end.
func (s *Server) endDisclosure(ctx context.Context, r *request, body *api.RejectRequest) (any, error) {
	id, err := event.ParseID(r.path("id"))
	if err != nil {
		return nil, disclosure.NoSuchGrant()
	}
	if body.Reason == "" {
		return nil, missingMember("/reason")
	}
	ended, err := s.config.Disclosures.End(ctx, callOf(ctx).principal, id, body.Reason)
	return grantAnswer(ended), err
}

func grantAnswer(g access.Grant) api.Disclosure {
	return api.Disclosure{
		ID: g.ID.String(), PersonID: g.PersonID, Classes: convert(g.Classes, func(c shredding.Class) string { return string(c) }), Until: timeText(g.Until), Reason: g.Reason,
		GrantedBy: g.GrantedBy, GrantedAt: timeText(g.GrantedAt), Active: g.Active(time.Now()), EndedBy: g.EndedBy, EndReason: g.EndReason, EndedAt: optionalTime(g.EndedAt),
	}
}

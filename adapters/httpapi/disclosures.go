package httpapi

import (
	"context"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/module"
	access "github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Disclosures records reads that matter, and answers from their record: disclosure.Service.
type Disclosures interface {
	// Reader returns the principal as a reader whose accesses are recorded before they leave.
	Reader(ctx context.Context, p ports.Principal, why disclosure.Purpose) (module.Reader, error)
	// Record records accesses. On an error the request must not be answered.
	Record(ctx context.Context, p ports.Principal, why disclosure.Purpose, accesses ...access.Access) error
	Search(ctx context.Context, p ports.Principal, q ports.AccessQuery, cursor string) (page []access.Access, next string, err error)
}

var disclosureHandlers = handlers{
	"listAccesses": (*Server).listAccesses,
}

// headerAccessReason is why a caller reads personal data, for its record.
const headerAccessReason = "Access-Reason"

// purposeOf says for what the caller reads.
func purposeOf(ctx context.Context) disclosure.Purpose {
	c := callOf(ctx)
	return disclosure.Purpose{Operation: c.operation, Reason: c.reason, RequestID: c.requestID}
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
		LegalEntity: a.LegalEntity, Subject: a.Subject.String(), Class: string(a.Class), Values: a.Values, Reason: a.Reason, RequestID: a.RequestID,
	}
}

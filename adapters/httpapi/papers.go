package httpapi

import (
	"context"
	"mime"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/papers"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/paper"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Papers keeps and shows papers: papers.Service.
type Papers interface {
	Keep(ctx context.Context, k papers.Keep) (found papers.Found, created bool, err error)
	Find(ctx context.Context, le ports.LegalEntity, id string) (papers.Found, error)
	Open(ctx context.Context, le ports.LegalEntity, f *papers.Found, r module.Reader) ([]byte, error)
}

var paperHandlers = handlers{
	"keepPaper": (*Server).keepPaper,
	"getPaper":  (*Server).getPaper,
}

const (
	actionKeepPaper = "papers.keep"
	actionReadPaper = "papers.read"
)

// keepPaper answers POST /api/papers.
func (s *Server) keepPaper(ctx context.Context, r *request) (any, error) {
	le, err := s.authorizeIn(ctx, actionKeepPaper, r.query("legal_entity"))
	if err != nil {
		return nil, err
	}
	if r.header(echo.HeaderContentEncoding) != "" {
		return nil, echo.ErrUnsupportedMediaType
	}
	k := papers.Keep{LegalEntity: le, Actor: callOf(ctx).principal.Actor(), MediaType: mediaType(r.header(echo.HeaderContentType)), Bytes: callOf(ctx).body}
	switch retention := eventtype.RetentionClass(r.query("retention")); retention {
	case eventtype.Regulatory, eventtype.PIISubject:
		k.Retained = retention == eventtype.Regulatory
	default:
		return nil, invalidParameter("retention", "regulatory or pii_subject")
	}
	if k.Subject, err = shredding.ParseSubject(r.query("subject")); err != nil {
		return nil, pointAtMember(err, "subject")
	}
	if err := shredding.CheckIdentifier("subject", string(k.Subject)); err != nil {
		return nil, err
	}
	found, created, err := s.config.Papers.Keep(ctx, k)
	if err != nil {
		return nil, convertToUnavailable(err)
	}
	retention := eventtype.PIISubject
	if found.Event.Type == paper.Retained {
		retention = eventtype.Regulatory
	}
	return reply(createdStatus(created), api.Paper{
		ID: found.ID, LegalEntity: le.Code, Subject: found.Subject.String(), Retention: string(retention), MediaType: found.MediaType, SizeBytes: found.SizeBytes,
		FileName: found.FileName(), EventID: found.Event.ID.String(), Sequence: numberText(found.Event.Sequence), KeptAt: timeText(found.Event.RecordedAt),
	})
}

// mediaType is a Content-Type without its parameters, under the one name that papers have for it.
func mediaType(header string) string {
	media, _, err := mime.ParseMediaType(header)
	switch {
	case err != nil:
		return ""
	case media == "text/xml":
		return echo.MIMEApplicationXML
	default:
		return media
	}
}

// getPaper answers GET /api/papers/{id}. It is admitted by the size of the paper before the bytes are read.
func (s *Server) getPaper(ctx context.Context, r *request) (any, error) {
	var found papers.Found
	var of ports.LegalEntity
	err := s.findByID(ctx, r, actionReadPaper, paper.NotFound().Code, func(le ports.LegalEntity, id event.ID) (err error) {
		of = le
		found, err = s.config.Papers.Find(ctx, le, id.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	p := callOf(ctx).principal
	ticket, err := s.papers.enter(admitted{p.TenantID, p.PrincipalID}, found.SizeBytes)
	if err != nil {
		return nil, err
	}
	reader, err := s.config.Disclosures.Reader(ctx, p, purposeOf(ctx))
	if err != nil {
		ticket.leave()
		return nil, err
	}
	file, err := s.config.Papers.Open(ctx, of, &found, reader)
	if err != nil {
		ticket.leave()
		return nil, convertToUnavailable(err)
	}
	return download{file, found.MediaType, found.FileName(), ticket}, nil
}

// download is the bytes of a paper. A browser saves them and shows nothing: what a supplier sent must not
// run as a page of this server.
type download struct {
	bytes     []byte
	mediaType string
	name      string
	ticket    *ticket
}

func (d download) write(w http.ResponseWriter) error {
	defer d.ticket.leave()
	defer clear(d.bytes)
	h := w.Header()
	h.Set(echo.HeaderContentType, d.mediaType)
	h.Set(echo.HeaderContentDisposition, `attachment; filename="`+d.name+`"`)
	h.Set(echo.HeaderContentSecurityPolicy, "default-src 'none'; sandbox")
	h.Set(echo.HeaderContentLength, strconv.Itoa(len(d.bytes)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(d.bytes) // an error means that the caller has left
	return nil
}

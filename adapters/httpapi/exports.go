package httpapi

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/application/query"
	access "github.com/erpbackbone/backbone/domain/disclosure"
)

var exportHandlers = handlers{
	"exportEvents": (*Server).exportEvents,
}

// An export holds one page at a time. Its size in events is halved above
// maxExportPageBytes and doubled below minExportPageBytes.
const (
	firstExportPage    = 100
	maxExportPageBytes = 8 << 20
	minExportPageBytes = 2 << 20
)

const actionExport = "events.export"

// export streams JSON Lines, a page at a time.
type export struct {
	server      *Server
	ctx         context.Context
	sel         query.Selection
	remaining   int  // events that may still be written; -1: all
	checkpoints bool // a line with a cursor after every page
	page        query.Page
	lines       []byte
}

// exportEvents answers GET /api/events/export.
func (s *Server) exportEvents(ctx context.Context, r *request) (any, error) {
	sel, err := s.readSelection(ctx, actionExport, r)
	if err != nil {
		return nil, err
	}
	e := &export{
		server: s, ctx: ctx, sel: sel, checkpoints: r.flag("checkpoints"),
		remaining: r.integer("limit", 1, math.MaxInt, -1, "a number from 1; without it everything is exported"),
	}
	if r.err != nil {
		return nil, r.err
	}
	e.sel.Limit = firstExportPage
	a := access.Access{Kind: access.Export, LegalEntity: sel.LegalEntity}
	if err := s.config.Disclosures.Record(ctx, callOf(ctx).principal, purposeOf(ctx), a); err != nil {
		return nil, err
	}
	return e, e.readPage()
}

// reauthorize checks the token and the rights again before each page, because an
// export may outlive them.
func (e *export) reauthorize(ctx context.Context) error {
	call := callOf(ctx)
	p, err := e.server.config.Access.Authenticate(ctx, call.token)
	if err != nil {
		return err
	}
	call.principal, e.sel.Readable = p, p.LegalEntities
	a := actionAnywhere(actionExport)
	if a.LegalEntity = e.sel.LegalEntity; e.sel.Kind == query.ByScope && a.LegalEntity == "" {
		a.LegalEntity = e.sel.StreamID
	}
	if e.sel.Administrative {
		if e.sel.Administrative, err = e.server.canReadAdministrativeLog(ctx, actionExport); err != nil {
			return err
		}
	}
	return e.server.config.Access.Authorize(ctx, p, a)
}

// readPage fetches and renders the next page.
func (e *export) readPage() error {
	ctx, cancel := context.WithTimeout(e.ctx, e.server.limits.Request)
	defer cancel()
	if e.lines != nil {
		if err := e.reauthorize(ctx); err != nil {
			return err
		}
	}
	if e.remaining >= 0 {
		e.sel.Limit = min(e.sel.Limit, e.remaining)
	}
	page, err := e.server.config.Events.Events(ctx, e.sel)
	if err != nil {
		return err
	}
	w, err := e.server.render(ctx, page.Events)
	if err != nil {
		return err
	}
	w.withoutData = e.sel.Filter.WithoutData
	for i := range w.prepared {
		w.line(&w.prepared[i])
		w.raw("\n")
	}
	if w.err != nil {
		return w.err
	}
	if e.remaining >= 0 {
		e.remaining -= len(w.prepared)
	}
	e.page, e.lines, e.sel.Cursor = page, w.b, page.NextCursor
	switch {
	case len(w.b) > maxExportPageBytes:
		e.sel.Limit = max(e.sel.Limit/2, 1)
	case len(w.b) < minExportPageBytes:
		e.sel.Limit = min(e.sel.Limit*2, maxPage)
	}
	return nil
}

// write sends the pages as they are read. An error ends the export with a line that
// carries the problem and with an aborted connection, so that the caller cannot take
// the export for complete.
func (e *export) write(w http.ResponseWriter) error {
	h := w.Header()
	h.Set(echo.HeaderContentType, "application/jsonl")
	w.WriteHeader(http.StatusOK)
	connection := http.NewResponseController(w)
	for {
		more := e.page.HasMore && e.remaining != 0
		if e.checkpoints && more {
			e.lines = append(append(append(e.lines, `{"next_cursor":"`...), e.sel.Cursor...), "\"}\n"...)
		}
		// Only the ResponseRecorder of a test does not support deadlines.
		_ = connection.SetWriteDeadline(time.Now().Add(e.server.limits.Request + 30*time.Second))
		if _, err := w.Write(e.lines); err != nil {
			return e.abort()
		}
		if !more {
			return nil
		}
		if err := connection.Flush(); err != nil {
			return e.abort()
		}
		if err := e.readPage(); err != nil {
			line, _ := e.server.problemOf(e.ctx, err)
			body, failed := line.encode(nil)
			if failed != nil {
				return e.abort()
			}
			last := append([]byte(`{"error":`), body...)
			if e.sel.Cursor != "" {
				last = append(append(append(last, `,"next_cursor":"`...), e.sel.Cursor...), '"')
			}
			if _, err := w.Write(append(last, "}\n"...)); err == nil {
				_ = connection.Flush() // the connection is aborted in any case
			}
			return e.abort()
		}
	}
}

// abort makes observe abort the connection after it has logged the request.
func (e *export) abort() error {
	callOf(e.ctx).isAborted = true
	return nil
}

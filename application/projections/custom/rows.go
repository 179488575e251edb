package custom

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strconv"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// RowsQuery selects rows of a projection in a legal entity.
type RowsQuery struct {
	Name        string
	Entity      ports.LegalEntity // of the caller's tenant
	Key         string            // "": all
	Prefix      string
	MinSequence string // wait until the projection has reached it
	Cursor      string
	Limit       int
}

// Page is a page of rows. Sealed values in states are copies.
type Page struct {
	Version    int
	Sequence   event.Sequence // of the checkpoint of the rows
	Rows       []ports.ProjectionRow
	NextCursor string // "": the last page
}

// cursor is the end of a page and the query that it belongs to.
type cursor struct {
	Name      string `json:"n"`
	Version   int    `json:"v"`
	Partition uint32 `json:"p"`
	Key       string `json:"k,omitempty"`
	Prefix    string `json:"x,omitempty"`
	After     string `json:"a"`
}

// Rows lists rows by key, of the version that is active when it starts. Faults:
// projection.not_found, projection.not_read, projection.definition_unreadable,
// cursor.foreign, read.not_caught_up.
func (s *Service) Rows(ctx context.Context, q RowsQuery) (page Page, err error) {
	for range readTries {
		var gone bool
		if page, gone, err = s.page(ctx, q); !gone || err != nil {
			return page, err
		}
	}
	return Page{}, projection.Changed()
}

// readTries is how often a read starts again because its version was removed.
const readTries = 3

// page reads once. gone means that the version was removed while it was read.
func (s *Service) page(ctx context.Context, q RowsQuery) (out Page, gone bool, err error) {
	p, d, err := s.Find(ctx, q.Entity.TenantID, q.Name)
	if err != nil {
		return Page{}, false, err
	}
	if !d.Filter.Reads(q.Entity.Code) {
		return Page{}, false, projection.NotRead(q.Name)
	}
	at := cursor{Name: q.Name, Version: p.Version, Partition: uint32(q.Entity.Partition), Key: q.Key, Prefix: q.Prefix}
	if q.Cursor != "" {
		var given cursor
		raw, err := base64.RawURLEncoding.DecodeString(q.Cursor)
		if err != nil || json.Unmarshal(raw, &given) != nil {
			return Page{}, false, fault.New(fault.Invalid, "cursor.malformed", "this is no cursor; pass next_cursor of the previous page unchanged").WithField("cursor")
		}
		if at.After = given.After; at != given {
			return Page{}, false, fault.New(fault.Invalid, "cursor.foreign", "this cursor belongs to another query, or to a version that is no longer active; start that query again without a cursor").WithField("cursor")
		}
	}
	if q.MinSequence != "" {
		need, err := strconv.ParseUint(q.MinSequence, 10, 63)
		if err != nil {
			return Page{}, false, fault.New(fault.Invalid, "report.min_sequence_invalid", "min_sequence is a sequence such as 42").WithField("min_sequence")
		}
		if _, err := s.config.Await(ctx, p.Name, p.Version, q.Entity.Partition, event.Sequence(need)); err != nil {
			return Page{}, false, err
		}
	}
	rows, sequence, err := s.config.Rows.ListProjectionRows(ctx, ports.ProjectionRowQuery{
		Projection: p.Name, Version: p.Version, Partition: q.Entity.Partition, Key: q.Key, Prefix: q.Prefix, After: at.After, Limit: q.Limit + 1,
	})
	if err != nil {
		return Page{}, false, err
	}
	if sequence == 0 { // not started, or removed: some of its rows may be gone already
		now, _, err := s.Find(ctx, q.Entity.TenantID, q.Name)
		if err != nil || now.Version != p.Version {
			return Page{}, true, err
		}
	}
	out = Page{Version: p.Version, Sequence: sequence, Rows: rows}
	if len(rows) > q.Limit {
		out.Rows = rows[:q.Limit]
		at.After = out.Rows[q.Limit-1].Key
		raw, err := json.Marshal(at)
		if err != nil {
			return Page{}, false, err
		}
		out.NextCursor = base64.RawURLEncoding.EncodeToString(raw)
	}
	return out, false, nil
}

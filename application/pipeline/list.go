package pipeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// Cursors seals the position of a page: query.CursorSealer.
type Cursors interface {
	SealText(tenantID string, digest []byte, text string) string
	OpenText(cursor, tenantID string, digest []byte) (string, error)
}

// ListRequest asks for a page of intents, by the time of their submission. Zero values do not
// filter.
type ListRequest struct {
	TenantID      string
	LegalEntities []ports.LegalEntity `json:"-"` // to search; the caller may see them
	LegalEntity   string              // of the request, "" for all that the caller may see
	Filter        ListFilter
	MinAge        time.Duration // submitted at least so long ago
	Approver      *Caller       `json:"-"` // only intents that wait for a decision which this caller may make
	Direction     ports.Direction
	Cursor        string `json:"-"`
	Limit         int    `json:"-"`
}

// ListFilter selects intents by their rows.
type ListFilter struct {
	Status   intent.Status
	Types    []string
	Actor    string // the actor, the person behind it, or whom it acted for
	Role     string // that an intent waits for
	Document string // a stream that the intent's plan writes: its id, or type/id
	From     time.Time
	To       time.Time // exclusive
}

// List is a page of intents, without their payloads and rule traces. Needs are those that no
// approval meets yet.
type List struct {
	Intents    []intent.Intent
	NextCursor string // "" at the end; a page may be short or empty before the end
}

const (
	listPage = 500   // rows that one query of a list reads at most
	listScan = 5_000 // rows that one page looks at, over all legal entities; with more of these, one row of each
)

// List reads a page of the intents that the caller of ctx sees. It looks at a bounded number
// of rows, so that a page with a rare match may be short; its cursor goes on. Rows are read as
// they are now: an intent that is decided between two pages may be missing or come with its
// new status. Faults: cursor.malformed, cursor.foreign.
func (s *Service) List(ctx context.Context, r ListRequest) (List, error) {
	digest, err := r.digest()
	if err != nil {
		return List{}, err
	}
	sight, err := module.SightOf(ctx)
	if err != nil {
		return List{}, err
	}
	q := r.bounds(s.Clock.Now())
	if r.Cursor != "" {
		text, err := s.Cursors.OpenText(r.Cursor, r.TenantID, digest)
		if err != nil {
			return List{}, err
		}
		id, err := event.ParseID(text)
		if err != nil {
			return List{}, err
		}
		q.goOnFrom(id)
	}
	w := listWalk{service: s, request: r, sight: sight}
	left := listScan
	for i, le := range r.LegalEntities {
		q.Partition = le.Partition
		scanned, err := w.read(ctx, q, max(1, left/(len(r.LegalEntities)-i)))
		if err != nil {
			return List{}, err
		}
		left -= scanned
		w.trim()
	}
	out := List{Intents: w.found}
	if w.end != (event.ID{}) {
		out.NextCursor = s.Cursors.SealText(r.TenantID, digest, w.end.String())
	}
	for i := range out.Intents {
		in := &out.Intents[i]
		if in.Status == intent.PendingApproval {
			in.Needs = unmetNeeds(in.Needs, in.Approvals)
		} else {
			in.Needs = nil
		}
	}
	return out, nil
}

// digest identifies a request for its cursor.
func (r *ListRequest) digest() ([]byte, error) {
	person := ""
	if r.Approver != nil {
		person = r.Approver.Principal.PersonID
	}
	b, err := json.Marshal(struct {
		Kind   string
		Person string
		*ListRequest
	}{"intents", person, r})
	sum := sha256.Sum256(b)
	return sum[:], err
}

// bounds are the ids between which the times of submission lie: an id begins with the
// millisecond of its intent's submission.
func (r *ListRequest) bounds(now time.Time) listQuery {
	q := listQuery{ports.IntentQuery{Direction: r.Direction, Status: r.Filter.Status}}
	if q.Status == intent.Executed {
		q.Status = "" // these are most of the rows, and the filter leaves the others out
	}
	if r.Approver != nil || r.Filter.Role != "" {
		q.Status = intent.PendingApproval
	}
	if r.MinAge > 0 {
		if oldest := now.Add(-r.MinAge); r.Filter.To.IsZero() || oldest.Before(r.Filter.To) {
			r.Filter.To = oldest
		}
	}
	if !r.Filter.From.IsZero() {
		q.After = lastIDBefore(r.Filter.From)
	}
	if !r.Filter.To.IsZero() {
		q.Before = lastIDBefore(r.Filter.To.Add(time.Millisecond))
	}
	return q
}

// lastIDBefore is after all ids of milliseconds before that of t, and before all others.
func lastIDBefore(t time.Time) event.ID {
	var id event.ID
	if ms := t.UnixMilli(); ms > 0 {
		for i := range id {
			id[i] = 0xff
		}
		_ = id.SetTime(uint64(ms - 1)) // times of this era fit
	}
	return id
}

type listQuery struct{ ports.IntentQuery }

// goOnFrom leaves out what a page that ended with the id has looked at.
func (q *listQuery) goOnFrom(id event.ID) {
	switch {
	case q.Direction == ports.Forward && id.Compare(q.After) > 0:
		q.After = id
	case q.Direction == ports.Backward && (q.Before == event.ID{} || id.Compare(q.Before) < 0):
		q.Before = id
	}
}

// endBefore leaves out what follows the id in the order of the list, and the id itself.
func (q *listQuery) endBefore(id event.ID) {
	switch {
	case q.Direction == ports.Backward && id.Compare(q.After) > 0:
		q.After = id
	case q.Direction == ports.Forward && (q.Before == event.ID{} || id.Compare(q.Before) < 0):
		q.Before = id
	}
}

// listWalk reads the legal entities of one page, one after another.
type listWalk struct {
	service *Service
	request ListRequest
	sight   module.Sight
	found   []intent.Intent // in the order of the list after trim
	end     event.ID        // rows after it may not have been looked at; zero: all have been
}

// read looks at rows of one legal entity, as many as share at most.
func (w *listWalk) read(ctx context.Context, q listQuery, share int) (scanned int, err error) {
	if w.end != (event.ID{}) {
		q.endBefore(w.end)
	}
	q.Limit = min(share, listPage, w.request.Limit+1)
	for found := 0; ; {
		rows, err := w.service.Intents.ListIntents(ctx, q.IntentQuery)
		if err != nil {
			return scanned, err
		}
		scanned += len(rows)
		for i := range rows {
			if !w.matches(&rows[i]) {
				continue
			}
			w.found = append(w.found, rows[i])
			if found++; found > w.request.Limit {
				w.stopAt(rows[i].ID)
				return scanned, nil
			}
		}
		if len(rows) < q.Limit {
			return scanned, nil
		}
		last := rows[len(rows)-1].ID
		if scanned == share {
			w.stopAt(last)
			return scanned, nil
		}
		q.goOnFrom(last)
		q.Limit = min(share-scanned, listPage)
	}
}

// stopAt notes that a legal entity was read up to the id only.
func (w *listWalk) stopAt(id event.ID) {
	if w.end == (event.ID{}) || w.compare(id, w.end) < 0 {
		w.end = id
	}
}

func (w *listWalk) compare(a, b event.ID) int {
	if w.request.Direction == ports.Backward {
		a, b = b, a
	}
	return a.Compare(b)
}

// trim sorts what was found, and keeps what belongs to the page as far as it is read.
func (w *listWalk) trim() {
	slices.SortFunc(w.found, func(a, b intent.Intent) int {
		return cmp.Or(w.compare(a.ID, b.ID), cmp.Compare(a.Partition, b.Partition))
	})
	if w.end != (event.ID{}) {
		w.found = slices.DeleteFunc(w.found, func(in intent.Intent) bool { return w.compare(in.ID, w.end) > 0 })
	}
	if n := w.request.Limit; len(w.found) > n {
		w.found, w.end = w.found[:n], w.found[n-1].ID
	}
}

func (w *listWalk) matches(in *intent.Intent) bool {
	f := &w.request.Filter
	switch {
	case !w.sight.Owns(in.Type),
		f.Status != "" && in.Status != f.Status,
		len(f.Types) > 0 && !slices.Contains(f.Types, in.Type),
		f.Actor != "" && !actedIn(in, f.Actor),
		f.Document != "" && !slices.ContainsFunc(in.Documents, func(name string) bool { return name == f.Document || strings.HasSuffix(name, "/"+f.Document) }),
		!f.From.IsZero() && in.CreatedAt.Before(f.From), !f.To.IsZero() && !in.CreatedAt.Before(f.To),
		f.Role != "" && !waitsFor(in, f.Role):
		return false
	}
	if w.request.Approver == nil {
		return true
	}
	_, err := mayDecide(*w.request.Approver, in)
	return err == nil
}

func actedIn(in *intent.Intent, id string) bool {
	d := in.Actor.Details.OnBehalfOf
	return in.Actor.ID == id || in.PersonID == id || d != nil && d.ID == id
}

func waitsFor(in *intent.Intent, role string) bool {
	return slices.ContainsFunc(unmetNeeds(in.Needs, in.Approvals), func(n intent.ApprovalNeed) bool { return containsOrEmpty(n.Roles, role) })
}

package verify

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// adopted is the event that ends what an earlier release stored about a concern.
const adopted = "backbone.administration.adopted"

// boundRequest is what the event of a move says about a request.
type boundRequest struct {
	shredding.Move

	Revision    int    `json:"revision"`
	EndedBy     string `json:"ended_by"`
	Receipt     uint64 `json:"receipt_number"`
	ReceiptHash string `json:"receipt_sha256"`

	recordedAt time.Time
}

// requestRow is the stored row of a request.
type requestRow struct {
	id       string
	revision int
	digest   event.Hash
}

// requests compares the rows of requests that two persons decide on with the events of their
// moves. The last event of a request binds its row.
type requests struct {
	stream     string // type
	concern    string // as the rows of an earlier release were adopted
	kind       FindingKind
	unapproved FindingKind               // of a request that was carried out without an approval
	lasts      func(state string) bool   // as shredding.Approval.Lasting
	adopted    event.Sequence            // after what an earlier release stored; 0: no such event
	moves      map[string][]boundRequest // by id of the request, in order
}

func (r *requests) note(c *chain, e *event.Recorded) {
	if e.Type == adopted && e.Stream.ID == r.concern && r.adopted == 0 {
		r.adopted = e.Sequence
	}
	if e.Stream.Type != r.stream {
		return
	}
	move := boundRequest{recordedAt: e.RecordedAt}
	var err error
	move.Sequence = e.Sequence
	if move.Actor, err = e.Actor(); err != nil || !decodeData(e, &move) {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of a request cannot be read")
		return
	}
	if known := r.moves[e.Stream.ID]; len(known) > 0 && known[len(known)-1].Sequence >= e.Sequence {
		return // noted when the rows were compared before
	}
	r.moves[e.Stream.ID] = append(r.moves[e.Stream.ID], move)
}

// compareRows compares rows that were read after the events. A request may have moved since:
// its event is among the latest ones, which are read after the rows.
func (r *requests) compareRows(ctx context.Context, c *chain, store Store, rows []requestRow) error {
	if err := c.noteLatest(ctx, store, r); err != nil {
		return err
	}
	stored := map[string]bool{}
	for _, row := range rows {
		stored[row.id] = true
		r.compareRow(c, row)
	}
	for _, id := range slices.Sorted(maps.Keys(r.moves)) {
		r.compareApproval(c, id)
		if !stored[id] && r.moves[id][0].Sequence <= c.report.Head {
			c.add(r.kind, r.moves[id][0].Sequence, fmt.Sprintf("request %s was recorded and has no row", id))
		}
	}
	return nil
}

func (r *requests) compareRow(c *chain, row requestRow) {
	moves := r.moves[row.id]
	if len(moves) == 0 {
		if r.adopted > 0 {
			c.add(r.kind, 0, fmt.Sprintf("no event requested %s; a call that was cut off is recorded by the server within an hour", row.id))
		}
		return
	}
	i := slices.IndexFunc(moves, func(m boundRequest) bool { return m.Revision == row.revision })
	last := moves[len(moves)-1]
	switch {
	case i < 0 && row.revision > last.Revision:
		c.add(r.kind, last.Sequence, fmt.Sprintf("request %s moved on without an event; a call that was cut off is recorded by the server within an hour", row.id))
	case i < 0 || moves[i].Row != hex.EncodeToString(row.digest[:]):
		c.add(r.kind, last.Sequence, fmt.Sprintf("the row of request %s is not as its last move left it", row.id))
	case slices.ContainsFunc(moves[i+1:], func(m boundRequest) bool { return m.Sequence <= c.report.Head }):
		c.add(r.kind, last.Sequence, fmt.Sprintf("the row of request %s was set back", row.id))
	}
}

// compareApproval requires that a request was carried out only after its approver approved it as
// the actor of an event, for the same scope. Each step that followed names the same persons.
func (r *requests) compareApproval(c *chain, id string) {
	moves := r.moves[id]
	first := slices.IndexFunc(moves, func(m boundRequest) bool { return r.lasts(m.State) })
	if first < 0 {
		return
	}
	before := []shredding.Move{}
	for _, m := range moves[:first+1] { // an adopted request may have been carried out before
		before = append(before, m.Move)
	}
	for _, m := range moves[first:] {
		approval := shredding.Approval{RequestedBy: m.RequestedBy, ApprovedBy: m.ApprovedBy, Scope: m.Scope, Lasting: r.lasts, Adopted: r.adopted}
		if m.Sequence <= c.report.Head && !approval.IsRecorded(before) {
			c.add(r.unapproved, m.Sequence, fmt.Sprintf("request %s was carried out, and no event before is the approval of a second person", id))
			return
		}
	}
}

// noteLatest passes the events after the last one that was checked to a comparison. A later run
// checks them.
func (c *chain) noteLatest(ctx context.Context, store Store, to interface {
	note(c *chain, e *event.Recorded)
}) error {
	c.latest = true
	for after := c.report.Head; ; {
		page, err := store.ChainPage(ctx, c.entity.Partition, after, pageSize)
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			if e := &page[i]; e.Payload != nil && event.HashPayload(e.Salt, e.Payload) == e.PayloadHash {
				to.note(c, e)
			}
		}
		after = page[len(page)-1].Sequence
	}
}

// redactionRequests compares the requests for redactions.
type redactionRequests struct{ *requests }

func newRedactionRequests() redactionRequests {
	return redactionRequests{&requests{
		stream: shredding.RedactionStream, concern: "redactions", kind: RedactionMismatch, unapproved: RedactionUnapproved, lasts: shredding.RedactionLasts,
		moves: map[string][]boundRequest{},
	}}
}

func (r redactionRequests) compare(ctx context.Context, c *chain, store Store) error {
	stored, err := store.RedactionRequests(ctx, c.entity.TenantID, nil, 0)
	if err != nil {
		return err
	}
	rows := make([]requestRow, len(stored))
	for i := range stored {
		rows[i] = requestRow{id: stored[i].ID.String(), revision: stored[i].Revision}
		if rows[i].digest, err = stored[i].Digest(); err != nil {
			return err
		}
	}
	return r.compareRows(ctx, c, store, rows)
}

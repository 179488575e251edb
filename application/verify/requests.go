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
	Revision    int    `json:"revision"`
	State       string `json:"state"`
	RequestedBy string `json:"requested_by"`
	ApprovedBy  string `json:"approved_by"`
	EndedBy     string `json:"ended_by"`
	Scope       string `json:"scope"`
	Receipt     uint64 `json:"receipt_number"`
	ReceiptHash string `json:"receipt_sha256"`
	Row         string `json:"row_sha256"`

	sequence   event.Sequence
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
	stream  string // type
	concern string // as the rows of an earlier release were adopted
	kind    FindingKind
	adopted bool
	moves   map[string][]boundRequest // by id of the request, in order
}

func newRequests(stream, concern string, kind FindingKind) *requests {
	return &requests{stream: stream, concern: concern, kind: kind, moves: map[string][]boundRequest{}}
}

func (r *requests) note(c *chain, e *event.Recorded) {
	if e.Type == adopted && e.Stream.ID == r.concern {
		r.adopted = true
	}
	if e.Stream.Type != r.stream {
		return
	}
	move := boundRequest{sequence: e.Sequence, recordedAt: e.RecordedAt}
	if !decodeData(e, &move) {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of a request cannot be read")
		return
	}
	if known := r.moves[e.Stream.ID]; len(known) > 0 && known[len(known)-1].sequence >= e.Sequence {
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
		if !stored[id] && r.moves[id][0].sequence <= c.report.Head {
			c.add(r.kind, r.moves[id][0].sequence, fmt.Sprintf("request %s was recorded and has no row", id))
		}
	}
	return nil
}

func (r *requests) compareRow(c *chain, row requestRow) {
	moves := r.moves[row.id]
	if len(moves) == 0 {
		if r.adopted {
			c.add(r.kind, 0, fmt.Sprintf("no event requested %s; a call that was cut off is recorded by the server within an hour", row.id))
		}
		return
	}
	i := slices.IndexFunc(moves, func(m boundRequest) bool { return m.Revision == row.revision })
	last := moves[len(moves)-1]
	switch {
	case i < 0 && row.revision > last.Revision:
		c.add(r.kind, last.sequence, fmt.Sprintf("request %s moved on without an event; a call that was cut off is recorded by the server within an hour", row.id))
	case i < 0 || moves[i].Row != hex.EncodeToString(row.digest[:]):
		c.add(r.kind, last.sequence, fmt.Sprintf("the row of request %s is not as its last move left it", row.id))
	case slices.ContainsFunc(moves[i+1:], func(m boundRequest) bool { return m.sequence <= c.report.Head }):
		c.add(r.kind, last.sequence, fmt.Sprintf("the row of request %s was set back", row.id))
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
	return redactionRequests{newRequests(shredding.RedactionStream, "redactions", RedactionMismatch)}
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

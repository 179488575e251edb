package verify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// erasures compares the requests for erasures, their steps and approvals, and the receipts and
// keys that follow from them.
type erasures struct {
	*requests
	keys KeyStore
}

func newErasures(keys KeyStore) erasures {
	return erasures{&requests{
		stream: shredding.ErasureStream, concern: "erasures", kind: ErasureMismatch, unapproved: ErasureMismatch, lasts: shredding.ErasureLasts,
		moves: map[string][]boundRequest{},
	}, keys}
}

func (x erasures) compare(ctx context.Context, c *chain, store Store) error {
	stored, err := x.keys.ErasureRows(ctx, c.entity.TenantID)
	if err != nil {
		return err
	}
	journal, err := x.keys.ErasureJournal(ctx, c.entity.TenantID)
	if err != nil {
		return err
	}
	rows := make([]requestRow, len(stored))
	for i, r := range stored {
		rows[i] = requestRow{id: r.ID.String(), revision: r.Revision, digest: r.Digest}
	}
	if err := x.compareRows(ctx, c, store, rows); err != nil {
		return err
	}
	x.compareJournal(c, journal)
	if err := x.compareReceipts(ctx, c); err != nil {
		return err
	}
	return x.findContradictions(ctx, c, store)
}

// compareJournal compares the steps and approvals with the events of the same revisions.
func (x erasures) compareJournal(c *chain, journal []ports.ErasureJournalEntry) {
	entries := map[string]map[int]ports.ErasureJournalEntry{}
	for _, e := range journal {
		id := e.RequestID.String()
		if entries[id] == nil {
			entries[id] = map[int]ports.ErasureJournalEntry{}
		}
		entries[id][e.Revision] = e
		if (e.State == shredding.ErasureApproved) != (e.Approver != "") {
			c.add(ErasureMismatch, 0, fmt.Sprintf("step and approval of request %s at revision %d do not agree", id, e.Revision))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(x.moves)) {
		for _, move := range x.moves[id] {
			e, found := entries[id][move.Revision]
			if len(entries[id]) == 0 || move.Sequence > c.report.Head {
				continue // the row is missing, which is reported, or the move happened since
			}
			if !found || string(e.State) != move.State || !isBy(e, move) {
				c.add(ErasureMismatch, move.Sequence, fmt.Sprintf("the step of request %s to %s is not as it was taken", id, move.State))
			}
		}
		if moves := x.moves[id]; len(entries[id]) > 0 && slices.Max(slices.Collect(maps.Keys(entries[id]))) > moves[len(moves)-1].Revision {
			c.add(ErasureMismatch, moves[len(moves)-1].Sequence, fmt.Sprintf("request %s has a step without an event; a call that was cut off is recorded by the server within an hour", id))
		}
	}
}

// clockMargin is how far the clocks of the key store's database and of the log's may differ. An
// approval is stored before its event is recorded; one that was moved to later would be valid for
// longer.
const clockMargin = 10 * time.Minute

// isBy reports whether a step was taken by the persons of its event.
func isBy(e ports.ErasureJournalEntry, move boundRequest) bool {
	switch shredding.ErasureState(move.State) {
	case shredding.ErasureRequested:
		return e.Person == move.RequestedBy
	case shredding.ErasureApproved:
		return e.Person == move.ApprovedBy && e.Approver == move.ApprovedBy && e.Requester == move.RequestedBy && hex.EncodeToString(e.Scope[:]) == move.Scope &&
			!e.StoredAt.After(move.recordedAt.Add(clockMargin))
	case shredding.ErasureRejected, shredding.ErasureWithdrawn:
		return e.Person == move.EndedBy
	default:
		return true
	}
}

// compareReceipts compares the receipts with the events that name them.
func (x erasures) compareReceipts(ctx context.Context, c *chain) error {
	type receipt struct{ request, hash string }
	receipts := map[uint64]receipt{} // of the tenant
	err := ports.EachReceipt(ctx, x.keys, 1, func(r ports.ErasureReceipt) error {
		if r.TenantID == c.entity.TenantID {
			hash := sha256.Sum256(r.Note)
			receipts[r.Number] = receipt{r.RequestID.String(), hex.EncodeToString(hash[:])}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(x.moves)) {
		for _, move := range x.moves[id] {
			if move.Receipt == 0 {
				continue
			}
			if r := receipts[move.Receipt]; r.request != id || move.ReceiptHash != "" && move.ReceiptHash != r.hash {
				c.add(ErasureMismatch, move.Sequence, fmt.Sprintf("receipt %d is not that of request %s", move.Receipt, id))
				break
			}
		}
	}
	return nil
}

// problems says what is wrong, by kind of contradiction.
var problems = map[ports.ContradictionKind]string{
	ports.ClassesDiffer:        "request %s fences other classes than were decided",
	ports.FenceMissing:         "a fence of request %s is missing or lifted",
	ports.FenceUnexplained:     "there is a fence of %s, which is no request or receipt that fences",
	ports.KeyRowMissing:        "a key that receipt %s destroyed has no row",
	ports.DestroyedUnexplained: "key %s is destroyed, and no receipt names it",
	ports.KeyWithoutVersion:    "the live key %s lacks its active version",
	ports.VersionUnexplained:   "the key %s has a version beyond its active one",
	ports.ForeignTenant:        "key %s is in a partition of another tenant",
	ports.ReceiptNumber:        "the receipt before number %s is missing",
	ports.ReceiptKeys:          "receipt %s has other keys than its signed note",
	ports.ReceiptUnexplained:   "receipt %s is of no request, and was not exported",
	ports.ReceiptGeneration:    "receipt %s has an earlier generation of the key store than its request",
	ports.GenerationSetBack:    "the generation of the key store is before that of receipt %s",
}

func (x erasures) findContradictions(ctx context.Context, c *chain, store Store) error {
	entities, err := store.LegalEntities(ctx, c.entity.TenantID)
	if err != nil {
		return err
	}
	partitions := []event.PartitionID{c.entity.Partition} // the administrative log has personal data too
	for _, le := range entities {
		partitions = append(partitions, le.Partition)
	}
	found, err := x.keys.Contradictions(ctx, c.entity.TenantID, partitions)
	for _, p := range found {
		c.add(KeyStoreMismatch, 0, fmt.Sprintf(problems[p.Problem], p.About))
	}
	return err
}

// hold is a legal hold as the log has it.
type hold struct {
	shredding.HoldRecord
	lifted   *shredding.HoldLiftedRecord // nil: in force
	sequence event.Sequence
	late     bool // placed or lifted since the run began
}

// holds compares the rows of legal holds with the events that placed and lifted them.
type holds struct {
	keys   KeyStore
	placed map[event.ID]*hold
}

func (x holds) note(c *chain, e *event.Recorded) {
	late := c.latest
	switch e.Type {
	case shredding.HoldPlaced:
		h := &hold{sequence: e.Sequence, late: late}
		if !decodeData(e, &h.HoldRecord) {
			c.add(AnnouncementUnreadable, e.Sequence, "the event of a hold cannot be read")
			return
		}
		x.placed[h.HoldID] = h
	case shredding.HoldLifted:
		var lifted shredding.HoldLiftedRecord
		if !decodeData(e, &lifted) || x.placed[lifted.HoldID] == nil {
			c.add(AnnouncementUnreadable, e.Sequence, "the event that lifted a hold cannot be read")
			return
		}
		h := x.placed[lifted.HoldID]
		h.lifted, h.late = &lifted, late
	}
}

func (x holds) compare(ctx context.Context, c *chain, store Store) error {
	rows, err := x.keys.AllHolds(ctx, c.entity.TenantID)
	if err != nil {
		return err
	}
	if err := c.noteLatest(ctx, store, x); err != nil {
		return err
	}
	entities, err := store.LegalEntities(ctx, c.entity.TenantID)
	if err != nil {
		return err
	}
	codes := map[event.PartitionID]string{0: ""}
	for _, le := range entities {
		codes[le.Partition] = le.Code
	}
	stored := map[event.ID]bool{}
	for _, row := range rows {
		stored[row.ID] = true
		h := x.placed[row.ID]
		switch {
		case h == nil && row.ReleasedAt.IsZero(): // one that was lifted has no effect
			c.add(HoldMismatch, 0, fmt.Sprintf("no event placed hold %s", row.ID))
		case h != nil && !h.late && !h.is(row, codes):
			c.add(HoldMismatch, h.sequence, fmt.Sprintf("the row of hold %s is not as it was placed or lifted", row.ID))
		}
	}
	for _, h := range slices.SortedFunc(maps.Values(x.placed), func(a, b *hold) int { return cmp.Compare(a.sequence, b.sequence) }) {
		if !h.late && !stored[h.HoldID] {
			c.add(HoldMismatch, h.sequence, fmt.Sprintf("hold %s was placed and has no row; the server stores it again within an hour", h.HoldID))
		}
	}
	return nil
}

// is compares a row with the hold; codes are those of the tenant's legal entities, "" of all.
func (h *hold) is(row ports.LegalHold, codes map[event.PartitionID]string) bool {
	code, known := codes[row.Partition]
	sameEnd := (h.Until == nil) == (row.Until == nil) && (h.Until == nil || *h.Until == *row.Until)
	same := known && h.Subject == row.Subject.String() && h.LegalEntity == code && h.Reason == row.Reason && h.PlacedBy == row.PlacedBy && h.PlacedAt.Equal(event.Micros(row.PlacedAt)) && sameEnd
	if h.lifted == nil {
		return same && row.ReleasedAt.IsZero()
	}
	return same && h.lifted.LiftedBy == row.ReleasedBy && h.lifted.LiftedAt.Equal(event.Micros(row.ReleasedAt))
}

// epochs compares the states of a tenant's epochs of keys with their events.
type epochs struct {
	keys    KeyStore
	adopted *bool
	last    map[uint32]recordedEpoch
}

type recordedEpoch struct {
	shredding.EpochRecord
	sequence event.Sequence
	at       time.Time
}

func newEpochs(keys KeyStore) epochs {
	return epochs{keys, new(bool), map[uint32]recordedEpoch{}}
}

func (x epochs) note(c *chain, e *event.Recorded) {
	if e.Type == adopted && e.Stream.ID == "key_epochs" {
		*x.adopted = true
	}
	if e.Stream.Type != shredding.EpochStream {
		return
	}
	r := recordedEpoch{sequence: e.Sequence, at: e.RecordedAt}
	if !decodeData(e, &r.EpochRecord) || strconv.FormatUint(uint64(r.Epoch), 10) != e.Stream.ID {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of an epoch of keys cannot be read")
		return
	}
	x.last[r.Epoch] = r
}

func (x epochs) compare(ctx context.Context, c *chain, store Store) error {
	rows, err := x.keys.KEKs(ctx, c.entity.TenantID)
	if err != nil {
		return err
	}
	if err := c.noteLatest(ctx, store, x); err != nil {
		return err
	}
	stored := map[uint32]bool{}
	for _, row := range rows {
		r, found := x.last[row.Epoch]
		stored[row.Epoch] = true
		switch {
		case !found && *x.adopted:
			c.add(KeyEpochMismatch, 0, fmt.Sprintf("no event created epoch %d; a running server records it within seconds", row.Epoch))
		case found && r.sequence <= c.report.Head && (r.State != string(row.State) || r.KeyID != row.KeyID):
			c.add(KeyEpochMismatch, r.sequence, fmt.Sprintf("epoch %d is %s, and was recorded as %s; a running server records what a rotation has changed within seconds", row.Epoch, row.State, r.State))
		}
	}
	for _, epoch := range slices.Sorted(maps.Keys(x.last)) {
		if !stored[epoch] && x.last[epoch].sequence <= c.report.Head {
			c.add(KeyEpochMismatch, x.last[epoch].sequence, fmt.Sprintf("epoch %d was recorded and has no row", epoch))
		}
	}
	return nil
}

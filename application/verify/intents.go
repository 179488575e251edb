package verify

import (
	"context"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Every write of an intent's row appends an event whose payload holds a digest of the row
// (intent.Binding). Verification compares both ways: each such event with the place that the
// row points to, which finds rows that are missing or were set back to an earlier revision,
// and each row with the event that it points to, which finds rows that were edited or made up.

// intentPage is how many rows of intents one query reads.
const intentPage = 500

// checkIntents compares the events of a page with the rows of the intents that they bind. A
// row may be newer than an event, never older.
func (c *chain) checkIntents(ctx context.Context, store Store, events []event.Recorded) error {
	bound := map[event.ID]event.Sequence{}
	for i := range events {
		e := &events[i]
		if e.IntentID == (event.ID{}) {
			continue
		}
		if _, ok := intent.BindingOf(e.Payload); ok {
			bound[e.IntentID] = e.Sequence
		}
	}
	if len(bound) == 0 {
		return nil
	}
	ids := make([]event.ID, 0, len(bound))
	for id := range bound {
		ids = append(ids, id)
	}
	rows, err := store.IntentSequences(ctx, c.entity.Partition, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		switch last, ok := rows[id]; {
		case !ok:
			c.add(IntentMismatch, bound[id], fmt.Sprintf("the event binds the row of intent %s, which is missing", id))
		case last < bound[id] || last == intent.BeforeBindings:
			c.add(IntentMismatch, bound[id], fmt.Sprintf("the row of intent %s is older than this event, which binds it", id))
		}
	}
	return nil
}

// checkIntentRows compares all rows of intents with the events that bind them.
func (c *chain) checkIntentRows(ctx context.Context, store Store) error {
	var after event.ID
	for {
		rows, err := store.BoundIntents(ctx, c.entity.Partition, after, intentPage)
		if err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			if r.Intent.LastSequence == intent.BeforeBindings {
				c.report.UnboundIntents++
			} else if detail := intentDisagreement(r); detail != "" {
				c.add(IntentMismatch, r.Intent.LastSequence, fmt.Sprintf("the row of intent %s %s", r.Intent.ID, detail))
			}
		}
		if err := c.checkPersonalIntents(ctx, store, rows); err != nil {
			return err
		}
		if len(rows) < intentPage {
			return nil
		}
		after = rows[len(rows)-1].Intent.ID
	}
}

// checkPersonalIntents checks that a row names each person whose values the payload of an intent
// has sealed, since an erasure finds the intent by it. A row too many does not matter: an erasure
// looks there in vain.
func (c *chain) checkPersonalIntents(ctx context.Context, store Store, rows []ports.BoundIntent) error {
	type rowKey struct {
		intent event.ID
		personKey
	}
	want := map[rowKey]bool{}
	var subjects []string
	var ids []event.ID
	for i := range rows {
		row := &rows[i].Intent
		if !shredding.HasSealed(row.Payload) {
			continue
		}
		sealed, err := sealedBy(row.Payload)
		if err != nil {
			c.add(SealedMalformed, row.LastSequence, fmt.Sprintf("a sealed value of intent %s has not the form of one", row.ID))
			continue
		}
		for k := range sealed {
			want[rowKey{row.ID, k}] = true
			subjects, ids = append(subjects, k.subject), append(ids, row.ID)
		}
	}
	if len(want) == 0 {
		return nil
	}
	found, err := store.PersonalIntentRows(ctx, c.entity.Partition, subjects, ids)
	if err != nil {
		return err
	}
	for _, row := range found {
		delete(want, rowKey{row.IntentID, personKey{row.Subject, row.KeyClass}})
	}
	for k := range want {
		c.add(PersonalRowMissing, 0, fmt.Sprintf("no row names a person whose values intent %s has sealed: an erasure would not find it", k.intent))
	}
	return nil
}

// intentDisagreement says what is wrong with a row, "" if its event binds it.
func intentDisagreement(r *ports.BoundIntent) string {
	if r.Unreadable {
		return "holds a value that cannot be read"
	}
	if r.EventIntent != r.Intent.ID {
		return "has no event that binds it"
	}
	kept, bound := intent.BindingOf(r.EventPayload)
	if !bound {
		return "has no event that binds it"
	}
	if own, err := r.Intent.Bind(); err != nil || own != kept {
		return "is not the one that its event binds"
	}
	first := event.Sequence(0)
	if n := event.Sequence(r.Intent.EventCount); n > 0 {
		first = r.Intent.LastSequence - n
		if !intent.IsAbout(r.EventType) {
			first++
		}
	}
	if r.Intent.FirstSequence != first {
		return fmt.Sprintf("points to events from %d on, not from %d on", r.Intent.FirstSequence, first)
	}
	return ""
}

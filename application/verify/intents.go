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

// checkIntentRows compares all rows of intents with the events that bind them. A row may say that
// it is from before events bound intents only in a legal entity that is as old.
func (r *run) checkIntentRows(ctx context.Context, store Store, c *chain) error {
	var after event.ID
	for {
		rows, err := store.BoundIntents(ctx, c.entity.Partition, after, intentPage)
		if err != nil {
			return err
		}
		for i := range rows {
			row := &rows[i]
			if row.Intent.LastSequence == intent.BeforeBindings {
				isBound, err := r.hasBoundAllIntents(ctx, store, c.entity)
				if err != nil {
					return err
				}
				if isBound {
					c.add(IntentMismatch, 0, fmt.Sprintf("the row of intent %s says that it is from before events bound intents, and the legal entity is not", row.Intent.ID))
				} else {
					c.report.UnboundIntents++
				}
			} else if detail := intentDisagreement(row); detail != "" {
				c.add(IntentMismatch, row.Intent.LastSequence, fmt.Sprintf("the row of intent %s %s", row.Intent.ID, detail))
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

// administrationBegan is the event after which an administrative log records what happens. Before it
// stand the legal entities that existed when the log began.
const administrationBegan = "backbone.administration.began"

// hasBoundAllIntents reports whether a legal entity is younger than the bindings of intents, so
// that no row of it can be from before them. Administrative logs came after the bindings: this is
// true of such a log itself, and of the legal entities that it created after it had begun. Older
// ones, and one that was created together with the log, may have such rows. The administrative
// log of a tenant is read only if there is such a row, once.
func (r *run) hasBoundAllIntents(ctx context.Context, store Store, le ports.LegalEntity) (bool, error) {
	if le.IsAdministrative() {
		return true, nil
	}
	if known, ok := r.bound[le.TenantID]; ok {
		return known[le.Partition], nil
	}
	logs, err := store.AdministrativeLogs(ctx, le.TenantID)
	if err != nil {
		return false, err
	}
	bound := map[event.PartitionID]bool{}
	for _, log := range logs {
		hasBegun := false
		for page := range readAhead(ctx, store, log.Partition, 0) {
			for i := range page.events {
				e := &page.events[i]
				var created createdEntity
				switch {
				case e.Type == administrationBegan:
					hasBegun = true
				case hasBegun && e.Type == legalEntityCreated && e.Payload != nil && decodeData(e, &created):
					bound[created.Partition] = true
				}
			}
			if page.err != nil {
				return false, page.err
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	r.bound[le.TenantID] = bound
	return bound[le.Partition], nil
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
	if r.Lost { // checkSegments reports the file
		return ""
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

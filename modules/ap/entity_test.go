package ap_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/entities"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/snapshots"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/test/testkit"
)

type caughtUpPositions struct{}

func (caughtUpPositions) Do(_ string, f func(context.Context)) bool {
	f(context.Background())
	return true
}

// entityOf reads the stored state of an entity, each time from a snapshot of the last
// read if there is one.
func (b *books) entityOf(kind, id string, change ...func(*entities.Query)) (object, string) {
	b.tb.Helper()
	s, err := entities.New(entities.Config{
		Log: b.store.Events, Snapshots: snapshots.NewEntities(b.store.Snapshots, snapshots.NewAuthenticator(&testkit.Secrets{}, slog.New(slog.DiscardHandler), nil)), Positions: query.New(query.Config{Log: b.store.Events, Clock: b.clock}), Folds: catalog, Background: caughtUpPositions{}, Clock: b.clock,
		Limits: entities.Limits{SnapshotEvery: 1, FoldTimeout: time.Minute},
	})
	require.NoError(b.tb, err)
	q := entities.Query{LegalEntity: b.entity, Type: kind, ID: id, Consistency: entities.Strong}
	for _, f := range change {
		f(&q)
	}
	got, err := s.Read(context.Background(), q)
	require.NoError(b.tb, err)
	var state object
	require.NoError(b.tb, json.Unmarshal(got.State, &state))
	return state, string(got.State)
}

func TestEntities(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V-1042", object{"name": "Contoso Supply Ltd", "country": "US"})
	submitted := b.execute("ap_clerk", "ap.submit_invoice", seedInvoice())
	id := submitted.Events[0].Stream.ID
	invoice, _ := b.entityOf("invoice", id)
	require.Equal(t, "validated", invoice["status"])
	vendor, _ := b.entityOf("vendor", "V-1042")
	require.Equal(t, object{"validated": 1.0}, vendor["documents"])
	require.Equal(t, object{id: "validated"}, vendor["undecided_documents"])
	before := b.head()

	out := b.execute("approver", "ap.approve_invoice", object{"invoice_id": id, "comment": "goods arrived"})
	journalID := b.events(out)[1].Stream.ID
	invoice, _ = b.entityOf("invoice", id)
	for member, want := range map[string]any{
		"document_id": id, "status": "posted", "vendor_id": "V-1042", "total_amount": "12500.00", "currency": "USD", "functional_amount": "11556.25",
		"functional_currency": "EUR", "journal_id": journalID, "approvals": 1.0, "posting_date": "2025-03-15",
	} {
		require.Equal(t, want, invoice[member], member)
	}
	vendor, _ = b.entityOf("vendor", "V-1042")
	require.Equal(t, object{"USD": "12500.00"}, vendor["posted"])
	require.Equal(t, object{"posted": 1.0}, vendor["documents"])
	require.Equal(t, "Contoso Supply Ltd", vendor["name"])
	journal, _ := b.entityOf("journal", journalID)
	require.Equal(t, "posted", journal["status"])
	require.Equal(t, "11556.25", journal["total_debit"])
	require.Equal(t, "11556.25", journal["total_credit"])
	require.Equal(t, 2.0, journal["line_count"])
	account, _ := b.entityOf("account", "2000")
	require.Equal(t, "active", account["status"])
	require.Equal(t, "ap", account["control"])
	period, _ := b.entityOf("period", "ap:2025-03")
	require.Equal(t, object{"period": "ap:2025-03", "status": "open"}, period)

	invoice, _ = b.entityOf("invoice", id, func(q *entities.Query) { q.KnownAt = "seq:" + b.sequence(before) })
	require.Equal(t, "validated", invoice["status"], "as it was known then")
}

func (b *books) sequence(n event.Sequence) string {
	text, err := json.Marshal(uint64(n))
	require.NoError(b.tb, err)
	return string(text)
}

// TestEntities_PersonsStaySealed reads a person and a contact; their values are
// copies that open by themselves, in stored snapshots too.
func TestEntities_PersonsStaySealed(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	sole := b.naturalPerson(nil)
	b.execute("ap_clerk", "ap.set_vendor_contact", object{"vendor_id": sole.Stream.ID, "contact_id": "C-1", "name": contactName, "email": contactMail})
	for _, e := range []struct{ kind, id, shows string }{{"vendor", sole.Stream.ID, personName}, {"vendor", sole.Stream.ID, contactMail}, {"contact", "C-1", contactName}} {
		for range 2 { // the second one from a snapshot
			_, text := b.entityOf(e.kind, e.id)
			require.Contains(t, text, `"$pii"`)
			require.NotContains(t, text, e.shows)
			require.Contains(t, b.keys.open(t, []byte(text)), e.shows)
		}
		stored, _, err := b.store.Snapshots.EntitySnapshots(t.Context(), b.entity.Partition, e.kind, e.id)
		require.NoError(t, err)
		if e.kind == "vendor" {
			require.NotEmpty(t, stored)
		}
		for _, s := range stored {
			require.NotContains(t, string(s.State), e.shows)
		}
	}
	b.clock.Advance(time.Second)
	b.execute("ap_clerk", "ap.remove_vendor_contact", object{"vendor_id": sole.Stream.ID, "contact_id": "C-1"})
	contact, text := b.entityOf("contact", "C-1")
	require.Equal(t, "removed", contact["status"])
	require.NotContains(t, text, "$pii")
}

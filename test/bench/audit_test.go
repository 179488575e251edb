//go:build bench

package bench

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
)

// audited is a journal that an auditor looks into, with the invoice behind it.
type audited struct{ journal, intent, process, invoice string }

// auditStep is a kind of request of an auditor on the way from a figure to the paper (docs/audit.md).
type auditStep struct {
	name   string
	times  int  // in a session, each of another journal
	caches bool // a cache of events and lineage could answer it
	again  bool // and had the answer, since the session has read the event before
	path   func(audited) string

	took, inDatabase []time.Duration
}

func auditSteps(legalEntity string) []*auditStep {
	at := "legal_entity=" + legalEntity
	return []*auditStep{
		{name: "ledger of an account", times: 1, path: func(audited) string { return "/api/gl/accounts/5100/ledger?limit=50&" + at }},
		{name: "lineage of a journal", times: 5, caches: true, path: func(a audited) string { return "/api/events/" + a.journal + "/lineage?" + at }},
		{name: "event", times: 5, caches: true, again: true, path: func(a audited) string { return "/api/events/" + a.journal + "?" + at }},
		{name: "intent", times: 3, path: func(a audited) string { return "/api/intents/" + a.intent + "?" + at }},
		{name: "business process", times: 2, caches: true, path: func(a audited) string { return "/api/events/process/" + a.process }},
		{name: "events of an invoice", times: 2, caches: true, path: func(a audited) string {
			return "/api/events?stream_type=entity&stream_id=invoice:" + a.invoice + "&" + at
		}},
		{name: "state of an invoice", times: 2, path: func(a audited) string { return "/api/entities/invoice/" + a.invoice + "?" + at }},
		{name: "newest 50 events", times: 1, caches: true, path: func(audited) string {
			return "/api/events?stream_type=scope&stream_id=" + legalEntity + "&direction=backward&limit=50&" + at
		}},
	}
}

// journals lists what auditors look into.
func (b *books) journals(t *testing.T) (found []audited) {
	t.Helper()
	rows, err := connect(t, b.dsn).Query(t.Context(), `SELECT uuid_send(j.id), uuid_send(j.intent_id), j.correlation_id, i.stream_id
		FROM backbone.events j JOIN backbone.events i ON i.correlation_id = j.correlation_id AND i.partition_id = j.partition_id AND i.type = 'ap.invoice.submitted'
		WHERE j.type = 'gl.journal.posted' AND j.partition_id = $1`, int32(b.whole.Partition))
	require.NoError(t, err)
	var journal, intent []byte
	var a audited
	_, err = pgx.ForEachRow(rows, []any{&journal, &intent, &a.process, &a.invoice}, func() error {
		a.journal, a.intent = event.ID(journal).String(), event.ID(intent).String()
		found = append(found, a)
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
}

// reportAudit measures sessions of an auditor, and how much faster a cache of events and lineage could make them that asks the
// database nothing: one that has every answer, and one that has what the session has read (docs/adr/0085-no-cache-of-events.md).
func reportAudit(t *testing.T, o options, shared *bookFixtures, figures *table) {
	b := shared.books(t)
	n := shared.node(t)
	execute(t, b.dsn, "VACUUM ANALYZE", "CHECKPOINT")
	journals := b.journals(t)
	auditor := newClients(t, 1, n.address, b.tokens["auditor"])[0]
	steps := auditSteps(b.whole.Code)
	session := func(context.Context, int) (int, error) {
		first := rand.IntN(len(journals))
		for _, s := range steps {
			for i := range s.times {
				path := s.path(journals[(first+i*7919)%len(journals)])
				began, before := time.Now(), n.sent.nanoseconds.Load()
				if _, err := auditor.want(http.StatusOK, http.MethodGet, path, "", nil); err != nil {
					return 0, err
				}
				s.took = append(s.took, time.Since(began))
				s.inDatabase = append(s.inDatabase, time.Duration(n.sent.nanoseconds.Load()-before))
			}
		}
		return 1, nil
	}
	drive(t, 1, o.period/2, session)
	for _, s := range steps {
		s.took, s.inDatabase = nil, nil
	}
	drive(t, 1, o.period*time.Duration(o.rounds), session)

	var whole, known, knownAgain time.Duration
	for _, s := range steps {
		slices.Sort(s.took)
		slices.Sort(s.inDatabase)
		took, inDatabase := quantile(s.took, 0.5), quantile(s.inDatabase, 0.5)
		figures.addText("Audit: "+s.name+": p50, in the database", "%s, %s", latency(took), latency(inDatabase))
		whole += time.Duration(s.times) * took
		saved := time.Duration(s.times) * min(took, inDatabase)
		if s.caches {
			known += saved
		}
		if s.again {
			knownAgain += saved
		}
	}
	figures.addText("   a session", "%s", latency(whole))
	figures.addText("   with a cache that has all events and lineages", "%.2f times as fast", float64(whole)/float64(whole-known))
	figures.addText("   with one that has those that the session has read", "%.2f times as fast", float64(whole)/float64(whole-knownAgain))
}

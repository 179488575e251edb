package e2e

import (
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// sendConcurrently sends one request per client at the same moment, over separate connections
// that are already open.
func sendConcurrently(t *testing.T, d *dev, clients int, send func(client int) (answer, error)) []answer {
	t.Helper()
	answers := make([]answer, clients)
	failures := make([]error, clients)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	server := client{server: d.HTTP, http: &http.Client{Transport: transport}}
	for i := range clients {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			_, failures[i] = server.do("GET", "/livez", "")
			ready.Done()
			<-start
			if failures[i] == nil {
				answers[i], failures[i] = send(i)
			}
		}()
	}
	ready.Wait()
	close(start)
	done.Wait()
	for _, failure := range failures {
		require.NoError(t, failure)
	}
	return answers
}

// TestSameInvoiceAtOnce lets 64 clients submit one invoice at the same moment.
func TestSameInvoiceAtOnce(t *testing.T) {
	t.Parallel()
	const entity, clients = "DEMF", 64
	d := sharedDev(t)
	d.as(t, "vendor_admin").must(t, entity, "ap.register_vendor", object{"vendor_id": "V-RACE", "name": "Race Ltd", "country": "US"})
	clerk := d.as(t, "ap_clerk")

	answers := sendConcurrently(t, d, clients, func(int) (answer, error) {
		return clerk.submit(entity, "ap.submit_invoice", invoice("V-RACE", "R-1"))
	})

	var winner outcome
	won := 0
	for _, a := range answers {
		if a.status == http.StatusCreated {
			won++
			require.NoError(t, a.decode(&winner))
		}
	}
	require.Equal(t, 1, won)
	submitted := winner.event("ap.invoice.submitted")
	require.NotEmpty(t, submitted)
	for _, a := range answers {
		if a.status == http.StatusCreated {
			continue
		}
		require.Equal(t, http.StatusConflict, a.status, a)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		var p struct {
			Code     string `json:"code"`
			IntentID string `json:"intent_id"`
			Holder   struct {
				EventID    string `json:"event_id"`
				DocumentID string `json:"document_id"`
				Sequence   string `json:"sequence"`
			} `json:"holder"`
		}
		require.NoError(t, a.decode(&p))
		require.Equal(t, "ap.invoice.duplicate", p.Code)
		require.Equal(t, submitted, p.Holder.EventID)
		require.Equal(t, winner.IntentID, p.Holder.DocumentID)
		require.Equal(t, winner.Events[0].Sequence, p.Holder.Sequence)
		require.NotEmpty(t, p.IntentID)
		require.NotEqual(t, winner.IntentID, p.IntentID)
	}

	// The refusals can be read; the log has one invoice.
	events, err := d.as(t, "auditor").events(url.Values{
		"stream_type": {"entity"}, "stream_id": {"vendor:V-RACE"}, "legal_entity": {entity}, "event_types": {"ap.invoice.submitted"},
	})
	require.NoError(t, err)
	require.Len(t, events, 1)
	require.Equal(t, submitted, events[0].ID)
}

// TestSameKeyAtOnce sends one request 64 times under one idempotency key: it takes
// effect once, and every caller gets its outcome or the answer that it is in progress.
func TestSameKeyAtOnce(t *testing.T) {
	t.Parallel()
	const entity, clients = "DEMF", 64
	d := sharedDev(t)
	d.as(t, "vendor_admin").must(t, entity, "ap.register_vendor", object{"vendor_id": "V-KEY", "name": "Key Ltd", "country": "US"})
	clerk := d.as(t, "ap_clerk")
	answers := sendConcurrently(t, d, clients, func(int) (answer, error) {
		return clerk.submit(entity, "ap.submit_invoice", invoice("V-KEY", "K-1"), "Idempotency-Key", "same-key")
	})
	first, outcomes := 0, map[string]bool{}
	for _, a := range answers {
		switch a.status {
		case http.StatusCreated:
			first++
			outcomes[string(a.body)] = true
		case http.StatusOK:
			require.Equal(t, "true", a.header.Get("Idempotency-Replayed"))
			outcomes[string(a.body)] = true
		default:
			require.Equal(t, http.StatusConflict, a.status, a)
			require.Equal(t, "idempotency.in_progress", a.code(), a)
		}
	}
	require.Equal(t, 1, first)
	require.Len(t, outcomes, 1, "the same bytes for every caller")
	events, err := d.as(t, "auditor").events(url.Values{"stream_type": {"entity"}, "stream_id": {"vendor:V-KEY"}, "legal_entity": {entity}, "event_types": {"ap.invoice.submitted"}})
	require.NoError(t, err)
	require.Len(t, events, 1)
}

// approversRace lets all approvers approve one invoice at the same moment: it is posted once.
func approversRace(t *testing.T, d *dev) {
	t.Helper()
	const entity, clients = "DEMF", 24
	d.as(t, "vendor_admin").must(t, entity, "ap.register_vendor", object{"vendor_id": "V-APPR", "name": "Approval Ltd", "country": "US"})
	paper := invoice("V-APPR", "A-1")
	paper["currency"] = "EUR"
	id := d.as(t, "ap_clerk").must(t, entity, "ap.submit_invoice", paper).IntentID
	roles := []string{"approver", "controller", "cfo"}
	answers := sendConcurrently(t, d, clients, func(i int) (answer, error) {
		return clientOf(d.devFile, roles[i%len(roles)]).submit(entity, "ap.approve_invoice", object{"invoice_id": id})
	})
	approved := 0
	for _, a := range answers {
		if a.status == http.StatusCreated {
			approved++
			continue
		}
		require.Equal(t, "ap.invoice.wrong_state", a.code(), a)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, a)
	}
	require.Equal(t, 1, approved)
	events, err := d.as(t, "auditor").events(url.Values{"stream_type": {"entity"}, "stream_id": {"invoice:" + id}, "legal_entity": {entity}, "event_types": {"ap.invoice.approved,ap.invoice.posted,gl.journal.posted"}})
	require.NoError(t, err)
	require.Len(t, events, 3)
}

package e2e

import (
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSameInvoiceAtOnce lets 64 clients submit one paper at the same moment.
func TestSameInvoiceAtOnce(t *testing.T) {
	t.Parallel()
	const entity, clients = "DEMF", 64
	d := sharedDev(t)
	d.as(t, "vendor_admin").must(t, entity, "ap.register_vendor", object{"vendor_id": "V-RACE", "name": "Race Ltd", "country": "US"})
	clerk := d.as(t, "ap_clerk")

	answers := make([]answer, clients)
	failures := make([]error, clients)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range clients {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			// A connection of its own, open before the race.
			_, failures[i] = clerk.do("GET", "/livez", "")
			ready.Done()
			<-start
			if failures[i] == nil {
				answers[i], failures[i] = clerk.submit(entity, "ap.submit_invoice", invoice("V-RACE", "R-1"))
			}
		}()
	}
	ready.Wait()
	close(start)
	done.Wait()

	var winner outcome
	won := 0
	for i, a := range answers {
		require.NoError(t, failures[i])
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

	// The refusals can be read; the log holds one paper.
	events, err := d.as(t, "auditor").events(url.Values{
		"stream_type": {"entity"}, "stream_id": {"vendor:V-RACE"}, "legal_entity": {entity}, "event_types": {"ap.invoice.submitted"},
	})
	require.NoError(t, err)
	require.Len(t, events, 1)
	require.Equal(t, submitted, events[0].ID)
}

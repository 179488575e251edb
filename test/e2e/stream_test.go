package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// placedEvent is an event with its legal entity.
type placedEvent struct {
	event
	Scope struct {
		LegalEntity string `json:"legal_entity"`
	} `json:"scope"`
}

// followSamples reads all books as one feed and a stream of them from both ends.
func followSamples(t *testing.T, d *dev) {
	t.Helper()
	auditor := d.as(t, "auditor")
	seen := map[string][]event{}
	for from := "0"; ; {
		var page struct {
			Events     []placedEvent `json:"events"`
			HasMore    bool          `json:"has_more"`
			NextCursor string        `json:"next_cursor"`
		}
		require.NoError(t, auditor.want(http.StatusOK, &page, "GET", "/api/streams/$all?count=7&from="+url.QueryEscape(from), ""))
		for _, e := range page.Events {
			seen[e.Scope.LegalEntity] = append(seen[e.Scope.LegalEntity], e.event)
		}
		if from = page.NextCursor; !page.HasMore {
			break
		}
	}
	for _, entity := range d.LegalEntities {
		all, err := auditor.events(url.Values{"stream_type": {"scope"}, "stream_id": {entity}})
		require.NoError(t, err)
		require.Equal(t, all, seen[entity], entity)
		delete(seen, entity)
	}
	require.Empty(t, seen)

	var invoice struct {
		Stream struct {
			Version int `json:"version"`
		} `json:"stream"`
		Events []json.RawMessage `json:"events"`
	}
	journals, err := auditor.events(url.Values{"stream_type": {"type"}, "stream_id": {"ap.invoice.approved"}, "legal_entity": {"DEMF"}})
	require.NoError(t, err)
	require.NotEmpty(t, journals)
	at := "/api/streams/" + journals[0].Stream.Type + "/" + journals[0].Stream.ID + "?legal_entity=DEMF"
	require.NoError(t, auditor.want(http.StatusOK, &invoice, "GET", at, ""))
	forward := invoice.Events
	require.Len(t, forward, invoice.Stream.Version)
	require.NoError(t, auditor.want(http.StatusOK, &invoice, "GET", at+"&direction=backward&count=1", ""))
	require.JSONEq(t, string(forward[len(forward)-1]), string(invoice.Events[0]))
}

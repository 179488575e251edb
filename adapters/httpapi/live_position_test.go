package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// TestAPositionAheadOfTheLogIsRefusedWithItsStatus asks over server-sent events, whose
// status was 200 before anybody had looked.
func TestAPositionAheadOfTheLogIsRefusedWithItsStatus(t *testing.T) {
	t.Parallel()
	h := openHouse(t)
	h.machineType(t)
	h.machines(t, "USMF", 3)
	path := "/api/subscribe/streams/machine/M-17?legal_entity=USMF"
	for name, position := range map[string]ask{
		"Last-Event-ID": {method: "GET", path: path, token: "auditor", header: map[string]string{"Last-Event-ID": "7"}},
		"from":          {method: "GET", path: path + "&from=8", token: "auditor"},
	} {
		ahead := h.do(t, position)
		require.Equal(t, http.StatusConflict, ahead.status, name)
		require.Equal(t, "application/problem+json", ahead.header.Get("Content-Type"))
		require.Equal(t, "feed.version_ahead", ahead.json(t)["code"], name)
	}
}

// TestARefusedFeedIsNotCountedAsOpen has one feed allowed, and positions that cannot be
// gone on from.
func TestARefusedFeedIsNotCountedAsOpen(t *testing.T) {
	t.Parallel()
	h := openLiveHouse(t, live.Config{PerPrincipal: 1})
	h.machineType(t)
	h.machines(t, "USMF", 1)
	path := "/api/subscribe/streams/machine/M-17?legal_entity=USMF"
	for range 3 {
		require.Equal(t, "feed.version_ahead", h.do(t, ask{method: "GET", path: path + "&from=9", token: "auditor"}).json(t)["code"])
	}
	h.source(t, path, "auditor", "").event("event")
}

// TestCursorsOfAThousandLegalEntities goes on with one in every way.
func TestCursorsOfAThousandLegalEntities(t *testing.T) {
	t.Parallel()
	const n = 1000
	h := openHouse(t)
	h.machineType(t)
	for i := range n {
		le, err := h.store.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "demo", Code: fmt.Sprintf("L%03d", i), Status: "active"})
		require.NoError(t, err)
		e := event.Prepared{
			Skeleton: event.Skeleton{
				ID: event.ID{1, 14: byte(i >> 8), 15: byte(i)}, Type: "equipment.machine.serviced", SchemaVersion: 1, OccurredAt: time.Now(),
				EffectiveDate: event.MustDate("2026-03-01"), Scope: event.Scope{TenantID: "demo", LegalEntity: le.Code}, ActorType: event.Human,
				ActorID: "p-1", CorrelationID: "c-1", Stream: event.StreamID{Type: "machine", ID: "M-17"},
			},
			Payload: []byte(`{"data":{"hours":1},"dimensions":{},"entity_refs":[]}`),
		}
		_, err = h.store.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{e}})
		require.NoError(t, err)
	}
	page := h.page(t, "/api/streams/$all?count=1000", "auditor")
	for page.HasMore {
		page = h.page(t, "/api/streams/$all?count=1000&from="+page.NextCursor, "auditor")
	}
	cursor := page.NextCursor
	perEntity := float64(len(cursor)) / n
	t.Logf("%.1f bytes for each legal entity", perEntity)
	require.Less(t, perEntity, 24.0, "what the limit of headers is reckoned with")

	resumed := h.source(t, "/api/subscribe/streams/$all", "auditor", cursor)
	resumed.event("caughtUp")
	addressed := h.source(t, "/api/subscribe/streams/$all?from="+cursor, "auditor", "")
	addressed.event("caughtUp")
	conn := h.dial(t, "/api/subscribe/streams/$all", h.bearer("auditor"), "backbone.v1")
	require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(`{"action":"subscribe","from":"`+cursor+`"}`)))
	heard(t, conn, "caughtUp")
	h.machines(t, "L500", 1)
	require.Equal(t, "L500/2", resumed.sequence())
	require.Equal(t, "L500/2", addressed.sequence())
	require.Equal(t, "2", heard(t, conn, "event").Event.Sequence)
}

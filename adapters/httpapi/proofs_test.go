package httpapi_test

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// signLog takes all events into the global log and records a checkpoint of them, as a node does.
func (h *apiFixture) signLog(t *testing.T) globallog.Checkpoint {
	t.Helper()
	heads := testkit.Must(h.store.Events.PartitionHeads(t.Context()))
	_, err := h.store.GlobalLog.ExtendGlobalLog(t.Context(), slices.Sorted(maps.Keys(heads)), 1000)
	require.NoError(t, err)
	c := globallog.Checkpoint{Origin: "books/1", Size: testkit.Must(h.store.GlobalLog.GlobalSize(t.Context()))}
	c.Root = testkit.Must(globallog.Root(c.Size, func(level int, from, n uint64) ([]event.Hash, error) {
		return h.store.GlobalLog.GlobalHashes(t.Context(), level, from, n)
	}))
	require.True(t, testkit.Must(h.store.GlobalLog.RecordCheckpoint(t.Context(), ports.SignedCheckpoint{Incarnation: 1, Size: c.Size, Root: c.Root, Note: append(c.Text(), "\n— books/1 AAAA\n"...)})))
	return c
}

// requireProof demands that a proof is of a checksum under a checkpoint.
func requireProof(t *testing.T, c globallog.Checkpoint, checksum, text string) {
	t.Helper()
	proof, err := globallog.ParseProof([]byte(text))
	require.NoError(t, err)
	require.Empty(t, proof.Extra)
	require.NoError(t, globallog.CheckInclusion(proof.Hashes, c, proof.Position, event.Hash(testkit.Must(hex.DecodeString(checksum)))))
}

// TestGetProof: one who may read the event gets its proof, once it is signed.
func TestGetProof(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	a := h.do(t, testRequest{method: "POST", path: "/api/events", token: "module", body: events(serviced(""))})
	var appended struct {
		Events []struct{ ID, Checksum, Proof string }
	}
	require.NoError(t, json.Unmarshal(a.body, &appended))
	require.Empty(t, appended.Events[0].Proof)
	path := "/api/events/" + appended.Events[0].ID + "/proof"
	get := testRequest{method: "GET", path: path, token: "auditor"}
	a = h.do(t, get)
	require.Equal(t, http.StatusNotFound, a.status)
	require.Equal(t, "global_log.not_signed", a.json(t)["code"])
	c := h.signLog(t)
	answer := h.do(t, get).json(t)
	require.Equal(t, appended.Events[0].Checksum, answer["checksum"])
	requireProof(t, c, appended.Events[0].Checksum, answer["proof"].(string))
	for token, status := range map[string]int{"admin": http.StatusForbidden, "": http.StatusUnauthorized} {
		require.Equal(t, status, h.do(t, testRequest{method: "GET", path: path, token: token}).status)
	}
	a = h.do(t, testRequest{method: "GET", path: "/api/events/01M8HV5P1VSSWEFPMXT9FAHZCA/proof", token: "auditor"})
	require.Equal(t, "event.not_found", a.json(t)["code"])
}

// TestAppend_Proof answers when a checkpoint has the events, with a proof of each.
func TestAppend_Proof(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	h.machineType(t)
	a := h.do(t, testRequest{method: "POST", path: "/api/events?proof=maybe", token: "module", body: events(serviced(""))})
	require.Equal(t, "request.parameter_invalid", a.json(t)["code"])
	h.signLog(t) // without a checkpoint at all there is nothing to wait for
	before := h.heads(t)
	answered := make(chan testAnswer, 1)
	go func() {
		answered <- h.do(t, testRequest{method: "POST", path: "/api/events?proof=true", token: "module", body: events(serviced(""), serviced(""))})
	}()
	testkit.Eventually(t, time.Minute, func() bool { return !maps.Equal(before, h.heads(t)) })
	require.Empty(t, answered)
	c := h.signLog(t)
	var appended struct {
		Events []struct{ Checksum, Proof string }
	}
	a = <-answered
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	require.NoError(t, json.Unmarshal(a.body, &appended))
	require.Len(t, appended.Events, 2)
	for _, e := range appended.Events {
		requireProof(t, c, e.Checksum, e.Proof)
	}
}

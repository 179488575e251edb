package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/paper"
	"github.com/erpbackbone/backbone/ports"
)

// PapersHarness is a store of sealed papers under test, with the log beside it.
type PapersHarness struct {
	Papers interface {
		ports.Papers
		ports.PaperAudit
	}
	Appender  ports.EventAppender
	Directory interface {
		ports.LegalEntities
		ports.Installations
	}
	Types ports.SharedEventTypes
	// Age moves the time at which papers were stored into the past.
	Age func(t *testing.T, by time.Duration)
}

// RunPapers checks the store of sealed papers.
func RunPapers(t *testing.T, h PapersHarness) {
	t.Helper()
	ctx, clock, ids := t.Context(), NewClock(), newIDSource()
	require.NoError(t, h.Directory.Bootstrap(ctx, ports.Installation{LogName: LogName, Deployment: Deployment, CreatedAt: clock.Now()}))
	var logs [2]ports.LegalEntity
	for i, code := range []string{"ONE", "TWO"} {
		var err error
		logs[i], err = h.Directory.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: "T", Code: code, Name: code, TimeZone: "UTC", Status: "active", CreatedAt: clock.Now()})
		require.NoError(t, err)
	}
	p, other := logs[0].Partition, logs[1].Partition
	typ, err := h.Types.RegisterEventType(ctx, registration(paper.Kept, 1, clock.Now()))
	require.NoError(t, err)
	content := func(id, sealed string) ports.PaperContent {
		return ports.PaperContent{PaperID: id, SHA256: sha256.Sum256([]byte(sealed)), Sealed: []byte(sealed)}
	}
	add := func(p event.PartitionID, c ports.PaperContent) {
		t.Helper()
		require.NoError(t, h.Papers.AddPaper(ctx, p, c))
	}
	stored := func(p event.PartitionID) map[string]string {
		t.Helper()
		out := map[string]string{}
		for c, err := range h.Papers.PaperContents(ctx, p) {
			require.NoError(t, err)
			require.Equal(t, event.Hash(sha256.Sum256(c.Sealed)), c.SHA256)
			out[string(c.Sealed)] = c.PaperID
		}
		return out
	}

	require.Empty(t, stored(p))
	first, second := content("P-1", "first"), content("P-1", "second")
	add(p, first)
	add(p, first)
	add(p, second)
	add(other, content("P-9", "first"))
	require.Equal(t, map[string]string{"first": "P-1", "second": "P-1"}, stored(p))
	require.Equal(t, map[string]string{"first": "P-9"}, stored(other))
	got, err := h.Papers.PaperContent(ctx, p, first.SHA256)
	require.NoError(t, err)
	require.Equal(t, first, got)
	_, err = h.Papers.PaperContent(ctx, other, second.SHA256)
	require.Equal(t, "paper.content_missing", fault.CodeOf(err), "of another legal entity")
	wrong := content("P-1", "third")
	wrong.SHA256 = first.SHA256
	wrong.SHA256[0]++
	require.Error(t, h.Papers.AddPaper(ctx, p, wrong), "bytes under another digest")

	id := ids.next()
	e := event.Prepared{
		Skeleton: event.Skeleton{
			Partition: p, ID: id, Type: typ.Type, SchemaVersion: 1, OccurredAt: clock.Now(), EffectiveDate: event.MustDate("2026-03-02"),
			Scope: event.Scope{TenantID: "T", LegalEntity: "ONE"}, ActorType: event.System, ActorID: "suite", CorrelationID: "corr", Stream: paper.Stream("P-1"),
			Source: event.Source{System: "suite", Channel: "test"},
		},
		TypeNumber: typ.Number,
		Payload:    []byte(`{"data":{"content_sha256":"` + hex.EncodeToString(first.SHA256[:]) + `"},"dimensions":{},"entity_refs":[]}`),
	}
	e.PayloadHash, e.PayloadHashDone = event.HashPayload(e.Salt, e.Payload), true
	_, err = h.Appender.Append(ctx, ports.AppendRequest{Partition: p, Events: []event.Prepared{e}})
	require.NoError(t, err)

	sweep := func() int64 {
		t.Helper()
		n, err := h.Papers.SweepPapers(ctx, clock.Now().AddDate(1000, 0, 0))
		require.NoError(t, err)
		return n
	}
	h.Age(t, 23*time.Hour)
	require.Zero(t, sweep(), "an append may be on its way")
	h.Age(t, 2*time.Hour)
	require.EqualValues(t, 2, sweep(), "no event names them")
	require.Equal(t, map[string]string{"first": "P-1"}, stored(p))
	require.Empty(t, stored(other))
	require.Zero(t, sweep())
	require.ErrorIs(t, h.Papers.AddPaper(cancelled(), p, second), context.Canceled)
	require.Equal(t, map[string]string{"first": "P-1"}, stored(p))
}

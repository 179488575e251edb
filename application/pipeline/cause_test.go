package pipeline_test

import (
	"context"
	"errors"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// directory finds legal entities, of which the store has the list.
type directory struct{ *memory.Directory }

func (d directory) LegalEntity(ctx context.Context, tenantID, code string) (ports.LegalEntity, error) {
	all, err := d.LegalEntities(ctx, tenantID)
	for _, le := range all {
		if le.Code == code {
			return le, err
		}
	}
	return ports.LegalEntity{}, errors.Join(err, errors.ErrUnsupported)
}

func (b *cashFixture) queries() *query.Service {
	return query.New(query.Config{Log: b.store.Events, Directory: directory{b.store.Directory}, Cursors: query.NewCursorSealer([]byte("key"))})
}

// Who has approved an intent that still waits is found by the events of the actor, and stands in
// the trace of the process.
func TestApprove_ActorsOfWaitingIntent(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	id := b.submitLoan(t, 2000)
	_, err := b.service.Approve(t.Context(), supervisor, pipeline.Decision{LegalEntity: b.entity, Intent: id})
	require.NoError(t, err)
	stored, _, err := b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	require.Equal(t, intent.PendingApproval, stored.Status)
	process, err := b.queries().Process(t.Context(), query.ProcessQuery{TenantID: "acme", CorrelationID: stored.CorrelationID, Limit: 100})
	require.NoError(t, err)
	require.Equal(t, []string{cashier.Actor.ID, supervisor.Actor.ID}, process.Actors)
	page, err := b.queries().Events(t.Context(), query.Selection{TenantID: "acme", Kind: query.ByActor, StreamID: supervisor.Actor.ID, LegalEntity: b.entity.Code, Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Events, 1)
	require.Equal(t, intent.ApprovalRecorded, page.Events[0].Type)
}

// A cause may be an event of another legal entity. The lineage of what the intent made, and of
// the events about it, leads there.
func TestSubmit_CauseInAnotherLegalEntity(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	other, err := b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "DEMF", Name: "DE", TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	there := b.giveLoan(1)
	there.LegalEntity = other
	first, err := b.service.Submit(t.Context(), cashier, there)
	require.NoError(t, err)
	cause := first.Events[0].ID

	here := b.giveLoan(2)
	here.CausedBy, here.CausedByPartition = cause, other.Partition
	made, err := b.service.Submit(t.Context(), cashier, here)
	require.NoError(t, err)
	here = b.giveLoan(200)
	here.CausedBy, here.CausedByPartition = cause, other.Partition
	waiting, err := b.service.Submit(t.Context(), cashier, here)
	require.NoError(t, err)
	require.Equal(t, intent.PendingApproval, waiting.Status)
	approved, err := b.service.Approve(t.Context(), supervisor, pipeline.Decision{LegalEntity: b.entity, Intent: waiting.IntentID})
	require.NoError(t, err)

	log := b.queries()
	about, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, intent.StreamOf(waiting.IntentID), 1, 10)
	require.NoError(t, err)
	for _, id := range []event.ID{made.Events[0].ID, approved.Events[0].ID, about[0].ID} {
		found, err := log.Lineage(t.Context(), b.entity, nil, id)
		require.NoError(t, err)
		require.False(t, found.Truncated)
		require.Len(t, found.Events, 2)
		require.Equal(t, cause, found.Events[0].ID)
		require.Equal(t, other.Partition, found.Events[0].Partition)
	}
	effects, err := log.Descendants(t.Context(), other, nil, cause, 100)
	require.NoError(t, err)
	require.Len(t, effects.Events, 4, "two loans, that one waited and that it was approved")
	stored, _, err := b.service.Get(t.Context(), b.entity, waiting.IntentID)
	require.NoError(t, err)
	require.Equal(t, other.Partition, stored.CausedByPartition)
}

// A cause that is in no log, or that the caller does not see, is refused before anything is
// stored, unless the request says that it may be unknown.
func TestSubmit_UnknownCause(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	known, err := b.service.Submit(t.Context(), cashier, b.giveLoan(1))
	require.NoError(t, err)
	blind := module.WithSight(t.Context(), func(context.Context) (module.Sight, error) { return module.Sight{}, nil })
	for name, c := range map[string]struct {
		ctx       context.Context
		cause     event.ID
		partition event.PartitionID
	}{
		"no event":                {t.Context(), ulid.Make(), 0},
		"event of another log":    {t.Context(), known.Events[0].ID, 4711},
		"event of an unseen type": {blind, known.Events[0].ID, 0},
	} {
		req := b.giveLoan(2)
		req.CausedBy, req.CausedByPartition = c.cause, c.partition
		_, err := b.service.Submit(c.ctx, cashier, req)
		require.Equal(t, "request.cause_unknown", fault.CodeOf(err), name)
		f, _ := fault.As(err)
		require.Equal(t, "/caused_by", f.Field)
		require.Empty(t, f.IntentID)
		req.AllowUnknownCause = true
		out, err := b.service.Submit(c.ctx, cashier, req)
		require.NoError(t, err, name)
		require.Equal(t, intent.Executed, out.Status)
	}
}

// The row of an intent names the streams that its plan writes, which waiting intents have not
// written yet.
func TestSubmit_Documents(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	id := b.submitLoan(t, 200)
	stored, _, err := b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	require.Equal(t, []string{"loan/main"}, stored.Documents)
	events, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, intent.StreamOf(id), 1, 10)
	require.NoError(t, err)
	data, err := events[0].Data()
	require.NoError(t, err)
	require.Contains(t, string(data), `"documents":["loan/main"],"amount":{"value":200,"currency":"EUR"}`)
}

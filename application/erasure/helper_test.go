package erasure_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

func (e *exports) names() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.documents))
}

func (b *rig) list(t testing.TB) []erasure.Status {
	t.Helper()
	all, err := b.service.List(t.Context(), officer, nil, 0)
	require.NoError(t, err)
	return all
}

// receipts lists those of the register.
func (b *rig) receipts(t testing.TB) []ports.ErasureReceipt {
	t.Helper()
	all, err := b.register.Erasures().Receipts(t.Context(), 1, 100)
	require.NoError(t, err)
	return all
}

// report says that a node has forgotten what was destroyed up to a generation.
func (b *rig) report(t testing.TB, node string, forgotten int64) {
	t.Helper()
	_, err := b.register.ReportNode(t.Context(), node, forgotten)
	require.NoError(t, err)
}

func (b *rig) entity(t testing.TB, code string) ports.LegalEntity {
	t.Helper()
	le, err := b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: code, TimeZone: "UTC"})
	require.NoError(t, err)
	return le
}

// refusesAppends wants appends about the subject to be refused.
func (b *rig) refusesAppends(t testing.TB, le ports.LegalEntity) {
	t.Helper()
	_, _, err := b.log.Append(t.Context(), eventappend.Request{
		LegalEntity: le, Actor: event.Actor{Type: event.System, ID: "hr", Name: "hr"}, PersonID: "hr",
		Drafts: []event.Draft{{Type: contacted, Stream: event.StreamID{Type: "employee", ID: "E-1"}, Data: json.RawMessage(`{"employee":"E-1","email":"late@example.org"}`)}},
	})
	require.Equal(t, "pii.subject_erased", fault.CodeOf(err))
}

// stopAt works until the request is in a state, and not further.
func (b *rig) stopAt(t testing.TB, state shredding.ErasureState) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	config := b.config
	config.Register = stopping{b.register.Erasures(), state, cancel}
	testkit.Must(erasure.NewWorker(config)).RunOnce(ctx)
	require.Equal(t, string(state), b.list(t)[0].State)
}

// stopping ends the worker's context when a request reaches a state.
type stopping struct {
	*memory.ErasureRegister
	state shredding.ErasureState
	stop  context.CancelFunc
}

func (s stopping) look(r ports.ErasureRequest, err error) (ports.ErasureRequest, error) {
	if err == nil && r.State == s.state {
		s.stop()
	}
	return r, err
}

func (s stopping) MoveErasure(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	return s.look(s.ErasureRegister.MoveErasure(ctx, r))
}

func (s stopping) FenceErasure(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	return s.look(s.ErasureRegister.FenceErasure(ctx, r))
}

func (s stopping) DestroyErasure(ctx context.Context, id event.ID) (ports.Destruction, ports.ErasureRequest, error) {
	d, r, err := s.ErasureRegister.DestroyErasure(ctx, id)
	r, err = s.look(r, err)
	return d, r, err
}

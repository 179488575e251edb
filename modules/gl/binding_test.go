package gl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
)

// Every row of an intent that the ledger's set-up wrote has the digest that its event holds.
func TestIntents_AreBound(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.refuse(t, "gl.journal.unbalanced", "gl_accountant", "gl.post_journal", twoLines("10", "11", "USD", "2026-03-15"))
	rows, err := b.store.Intents.BoundIntents(t.Context(), b.entity.Partition, event.ID{}, 1000)
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	for _, r := range rows {
		kept, bound := intent.BindingOf(r.EventPayload)
		require.True(t, bound, r.Intent.Type)
		own, err := r.Intent.Bind()
		require.NoError(t, err)
		require.Equal(t, own, kept, r.Intent.Type)
		require.Equal(t, r.Intent.ID, r.EventIntent)
	}
}

package query_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
)

// A failover that lost the end of the log gives its sequences to other events; a
// cursor from before must not go on as if nothing had happened.
func TestACursorNoticesThatTheLogIsAnother(t *testing.T) {
	t.Parallel()
	before := newLibrary()
	le := before.entity(t, "acme", "USMF")
	before.fill(t, le, 5)
	page, err := before.Events(t.Context(), byScope(2))
	require.NoError(t, err)

	for name, events := range map[string]int{"other events": 5, "the end is gone": 3, "everything is gone": 0} {
		after := newLibrary()
		other := after.entity(t, "acme", "USMF")
		after.fill(t, other, events)
		sel := byScope(2)
		sel.Cursor = page.NextCursor
		_, err = after.Events(t.Context(), sel)
		require.Equal(t, "cursor.diverged", code(t, err), name)
	}

	// What is appended after the pinned head changes nothing.
	before.fill(t, le, 3)
	sel := query.Selection{TenantID: "acme", Kind: query.ByScope, StreamID: "USMF", Limit: 2, Cursor: page.NextCursor}
	next, err := before.Events(t.Context(), sel)
	require.NoError(t, err)
	require.Equal(t, []event.Sequence{3, 4}, sequences(next.Events))
}

package plugin_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/cmd/scaffold/skeleton/plugin"
	"github.com/erpbackbone/backbone/test/moduletest"
)

// TestReadModel runs the module on PostgreSQL. The test is skipped where there is none.
func TestReadModel(t *testing.T) {
	t.Parallel()
	books := moduletest.NewOnPostgres(t, plugin.New())
	books.Execute("skeleton_clerk", "skeleton.add_item", `{"code": "A-1", "quantity": 5}`)
	removed := books.Execute("skeleton_clerk", "skeleton.add_item", `{"code": "A-2", "quantity": 7}`)
	books.Execute("skeleton_clerk", "skeleton.remove_item", fmt.Sprintf(`{"item_id": %q, "reason": "broken"}`, removed.Events[0].Stream.ID))

	var items []struct {
		Code     string
		Quantity int
	}
	books.Report("skeleton/items", nil, &items)
	require.Len(t, items, 1)
	require.Equal(t, "A-1", items[0].Code)
	require.Equal(t, 5, items[0].Quantity)
}

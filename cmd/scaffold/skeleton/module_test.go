package skeleton_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/cmd/scaffold/skeleton"
	"github.com/erpbackbone/backbone/cmd/scaffold/skeleton/plugin"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/moduletest"
)

func TestItems(t *testing.T) {
	t.Parallel()
	books := moduletest.New(t, skeleton.Module{})
	added := books.Execute("skeleton_clerk", "skeleton.add_item", `{"code": "A-1", "quantity": 5}`)
	remove := fmt.Sprintf(`{"item_id": %q, "reason": "broken"}`, added.Events[0].Stream.ID)

	books.Refuse("skeleton.item.duplicate", "skeleton_clerk", "skeleton.add_item", `{"code": "A-1", "quantity": 1}`)
	books.Refuse("intent.forbidden", "auditor", "skeleton.remove_item", remove)
	books.Execute("skeleton_clerk", "skeleton.remove_item", remove)
	books.Refuse("skeleton.item.wrong_state", "skeleton_clerk", "skeleton.remove_item", remove)
	books.Refuse("skeleton.item.not_found", "skeleton_clerk", "skeleton.remove_item", `{"item_id": "no-such-item", "reason": "broken"}`)
}

func TestAddItem_LargeQuantity(t *testing.T) {
	t.Parallel()
	books := moduletest.New(t, skeleton.Module{})
	waiting := books.Pend("skeleton_clerk", "skeleton.add_item", `{"code": "A-1", "quantity": 101}`)
	_, err := books.Approve("skeleton_clerk:2", waiting)
	require.Equal(t, "intent.forbidden", fault.CodeOf(err))
	approved, err := books.Approve("skeleton_manager", waiting)
	require.NoError(t, err)
	require.Len(t, approved.Events, 1)
}

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

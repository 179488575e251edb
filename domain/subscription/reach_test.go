package subscription_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/subscription"
)

func TestReach(t *testing.T) {
	t.Parallel()
	de, us, both := []string{"DEMF"}, []string{"USMF"}, []string{"DEMF", "USMF"}
	for _, c := range []struct {
		filter, owner, caller []string
		visible, within       bool
	}{
		{nil, nil, nil, true, true},
		{nil, nil, us, true, false}, // legal entities that are created later are delivered too
		{de, nil, nil, true, true},
		{de, nil, us, false, false},
		{de, nil, both, true, true},
		{both, nil, us, true, false},
		{both, us, us, true, true},
		{both, de, us, false, false},
		{nil, de, us, false, false},
		{nil, de, de, true, true},
		{nil, both, de, true, false},
		{de, us, de, false, true}, // it delivers nothing
	} {
		s := subscription.Subscription{Filter: subscription.Filter{LegalEntities: c.filter}}
		require.Equal(t, c.visible, s.VisibleTo(c.caller, c.owner), "%+v", c)
		require.Equal(t, c.within, s.Within(c.caller, c.owner), "%+v", c)
	}
}

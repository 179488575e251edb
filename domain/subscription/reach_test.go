package subscription_test

import (
	"errors"
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

// TestVisible asks for the legal entities of each owner once, and only for operators of some.
func TestVisible(t *testing.T) {
	t.Parallel()
	subs := []subscription.Subscription{{ID: "own", Owner: "p-1"}, {ID: "a", Owner: "p-2"}, {ID: "b", Owner: "p-2"}, {ID: "c", Owner: "p-3"}}
	for name, c := range map[string]struct {
		reader  subscription.Reader
		visible []string
		asked   []string
	}{
		"owner":                      {subscription.Reader{PersonID: "p-1"}, []string{"own"}, nil},
		"operator of all":            {subscription.Reader{PersonID: "p-1", Operator: true}, []string{"own", "a", "b", "c"}, nil},
		"operator of legal entities": {subscription.Reader{PersonID: "p-1", Operator: true, LegalEntities: []string{"USMF"}}, []string{"own", "a", "b"}, []string{"p-2", "p-3"}},
	} {
		var ids, asked []string
		found, err := subscription.Visible(c.reader, subs, func(_, personID string) ([]string, error) {
			asked = append(asked, personID)
			return map[string][]string{"p-2": {"USMF"}, "p-3": {"DEMF"}}[personID], nil
		})
		require.NoError(t, err, name)
		for _, s := range found {
			ids = append(ids, s.ID)
		}
		require.Equal(t, c.visible, ids, name)
		require.Equal(t, c.asked, asked, name)
	}
	_, err := subscription.Visible(subscription.Reader{Operator: true, LegalEntities: []string{"USMF"}}, subs, func(string, string) ([]string, error) { return nil, errors.New("unavailable") })
	require.Error(t, err)
}

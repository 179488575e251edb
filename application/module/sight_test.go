package module_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// firstEvents are the types of the first events of streams, with blanks between them.
type firstEvents map[event.StreamID]string

func (f firstEvents) StreamStatus(context.Context, event.PartitionID, event.StreamID) (ports.StreamStatus, error) {
	return ports.StreamStatus{}, nil
}

func (f firstEvents) ReadStream(_ context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	if name, ok := f[q.Stream]; ok {
		var events []event.Recorded
		for name := range strings.FieldsSeq(name) {
			events = append(events, event.Recorded{Skeleton: event.Skeleton{Type: name}})
		}
		return events[:min(len(events), q.Limit)], false, nil
	}
	return nil, false, nil
}

func TestSight(t *testing.T) {
	t.Parallel()
	builtIn := func(name string) string {
		if len(name) > 3 && name[:3] == "ap." {
			return "ap"
		}
		return ""
	}
	owners := map[string]string{"hr.employee.hired": "hr", "people.left": "hr", "crm.customer.created": "crm", "crm.customer.left": "crm", "ap.invoice.submitted": "hr"}
	hr := module.NewSight(ports.Binding{Modules: []string{"hr"}, ContractedTypes: []string{"crm.customer.created"}}, owners, builtIn)
	require.Equal(t, []string{"crm.customer.created", "hr.employee.hired", "people.left"}, hr.Types())
	require.Equal(t, []string{"people.left"}, hr.Limit([]string{"people.left", "crm.customer.left"}))
	require.Equal(t, hr.Types(), hr.Limit(nil))
	require.NotNil(t, hr.Limit([]string{"crm.customer.left"}))
	require.Empty(t, hr.Limit([]string{"crm.customer.left"}))
	require.False(t, hr.Sees("ap.invoice.submitted"), "the prefix of a built-in module decides")
	require.False(t, hr.Owns("crm.customer.created"))
	require.Nil(t, module.FullSight().Limit(nil))
	require.False(t, module.Sight{}.Sees("hr.employee.hired"), "the zero value sees nothing")
	require.False(t, module.Sight{}.OwnsModule(""))

	streams := firstEvents{
		{Type: "employee", ID: "1"}: "hr.employee.hired", {Type: "customer", ID: "1"}: "crm.customer.created",
		{Type: "customer", ID: "2"}: "crm.customer.left", {Type: "crm.customer", ID: "1"}: "crm.customer.created", {Type: "crm.customer", ID: "2"}: "hr.employee.hired",
		{Type: "shared", ID: "1"}: "stream.metadata_changed stream.metadata_changed crm.customer.left", {Type: "shared", ID: "2"}: "stream.metadata_changed",
	}
	for _, c := range []struct {
		stream      event.StreamID
		seen, owned bool
		unclaimed   bool
	}{
		{event.StreamID{Type: "employee", ID: "1"}, true, true, false},
		{event.StreamID{Type: "employee", ID: "new"}, true, true, true},
		{event.StreamID{Type: "shared", ID: "1"}, false, false, false},
		{event.StreamID{Type: "shared", ID: "2"}, true, true, true},
		{event.StreamID{Type: "hr.employee", ID: "new"}, true, true, false},
		{event.StreamID{Type: "customer", ID: "1"}, true, false, false},
		{event.StreamID{Type: "customer", ID: "2"}, false, false, false},
		{event.StreamID{Type: "crm.customer", ID: "1"}, true, false, false},
		{event.StreamID{Type: "crm.customer", ID: "2"}, true, false, false},
		{event.StreamID{Type: "crm.customer", ID: "new"}, false, false, false},
		{event.StreamID{Type: "ap.invoice", ID: "new"}, false, false, false},
	} {
		seen, owned, err := hr.Stream(t.Context(), streams, 1, c.stream)
		require.NoError(t, err)
		require.Equal(t, []bool{c.seen, c.owned}, []bool{seen, owned}, c.stream)
		owned, unclaimed, err := hr.OwnStream(t.Context(), streams, 1, c.stream)
		require.NoError(t, err)
		require.Equal(t, []bool{c.owned, c.unclaimed}, []bool{owned, unclaimed}, c.stream)
	}
	seen, owned, err := module.Sight{}.Stream(t.Context(), streams, 1, event.StreamID{Type: "employee", ID: "1"})
	require.NoError(t, err)
	require.False(t, seen || owned)
}

package query_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// cause makes an event that is caused by another.
func cause(of event.Recorded, in ports.LegalEntity) func(*event.Prepared) {
	return func(p *event.Prepared) {
		p.CausedBy = of.ID
		if of.Partition != in.Partition {
			p.CausedByPartition = of.Partition
		}
	}
}

func TestLineage(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	us, de, jp := l.entity(t, "acme", "USMF"), l.entity(t, "acme", "DEMF"), l.entity(t, "acme", "JPMF")
	a := l.write(t, us, nil)
	b := l.write(t, us, cause(a, us))
	c := l.write(t, de, cause(b, de))
	d := l.write(t, de, cause(c, de))
	e := l.write(t, jp, cause(d, jp))
	f := l.write(t, us, cause(e, us)) // back where it began

	ids := func(events []event.Recorded) (out []event.ID) {
		for _, e := range events {
			out = append(out, e.ID)
		}
		return out
	}
	for name, tc := range map[string]struct {
		readable  []string
		of        event.Recorded
		in        ports.LegalEntity
		want      []event.Recorded
		truncated bool
	}{
		"root":          {nil, a, us, []event.Recorded{a}, false},
		"one entity":    {nil, b, us, []event.Recorded{a, b}, false},
		"all":           {nil, f, us, []event.Recorded{a, b, c, d, e, f}, false},
		"all, named":    {[]string{"USMF", "DEMF", "JPMF"}, f, us, []event.Recorded{a, b, c, d, e, f}, false},
		"out of sight":  {[]string{"USMF", "JPMF"}, f, us, []event.Recorded{e, f}, true},
		"only its own":  {[]string{"DEMF"}, d, de, []event.Recorded{c, d}, true},
		"not the other": {[]string{"USMF"}, f, us, []event.Recorded{f}, true},
	} {
		got, err := l.Lineage(t.Context(), tc.in, tc.readable, tc.of.ID)
		require.NoError(t, err, name)
		require.Equal(t, ids(tc.want), ids(got.Events), name)
		require.Equal(t, tc.truncated, got.Truncated, name)
	}
	_, err := l.Lineage(t.Context(), de, nil, a.ID)
	require.Equal(t, "event.not_found", code(t, err))
}

func TestLineageIsBounded(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	us, de := l.entity(t, "acme", "USMF"), l.entity(t, "acme", "DEMF")
	chain := func(entities ...ports.LegalEntity) []event.Recorded {
		var out []event.Recorded
		for i := range 80 {
			le := entities[i%len(entities)]
			var change func(*event.Prepared)
			if i > 0 {
				change = cause(out[i-1], le)
			}
			out = append(out, l.write(t, le, change))
		}
		return out
	}
	for name, entities := range map[string][]ports.LegalEntity{"inside one": {us}, "across two": {us, de}, "in runs": {us, us, us, us, us, us, us, de, de, de}} {
		events := chain(entities...)
		for _, n := range []int{1, 2, query.MaxLineageDepth - 1, query.MaxLineageDepth, query.MaxLineageDepth + 1, query.MaxLineageDepth + 2, 80} {
			last := events[n-1]
			got, err := l.Lineage(t.Context(), ports.LegalEntity{TenantID: "acme", Partition: last.Partition}, nil, last.ID)
			require.NoError(t, err)
			// The event itself and as many causes as are followed.
			want := min(n, query.MaxLineageDepth+1)
			require.Len(t, got.Events, want, "%s, %d", name, n)
			require.Equal(t, last.ID, got.Events[want-1].ID)
			require.Equal(t, n > want, got.Truncated, "%s, %d", name, n)
		}
	}
}

func TestLineageToAnEventThatIsNotThere(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	us, de := l.entity(t, "acme", "USMF"), l.entity(t, "acme", "DEMF")
	rival := l.entity(t, "rival", "USMF")
	for name, change := range map[string]func(*event.Prepared){
		"in another entity": func(p *event.Prepared) { p.CausedBy, p.CausedByPartition = event.ID{1}, de.Partition },
		"in its own":        func(p *event.Prepared) { p.CausedBy = event.ID{1} },
		"of another tenant": cause(l.write(t, rival, nil), us),
		"in no entity":      func(p *event.Prepared) { p.CausedBy, p.CausedByPartition = event.ID{1}, 12345 },
	} {
		e := l.write(t, us, change)
		got, err := l.Lineage(t.Context(), us, nil, e.ID)
		require.NoError(t, err, name)
		require.Len(t, got.Events, 1, name)
		require.True(t, got.Truncated, name)
	}
}

// broken is a log that cannot be read.
type broken struct{ *memory.Store }

func (broken) Lineage(context.Context, event.PartitionID, event.ID, int, int) ([]event.Recorded, bool, error) {
	return nil, false, fault.New(fault.Unavailable, "store.unavailable", "the store is away; try again")
}

func TestABrokenLogIsNoEndOfALineage(t *testing.T) {
	t.Parallel()
	l := newLibrary()
	us := l.entity(t, "acme", "USMF")
	e := l.write(t, us, nil)
	_, err := query.New(l.store, broken{l.store}, l.directory, query.NewCursors(key)).Lineage(t.Context(), us, nil, e.ID)
	require.Equal(t, "store.unavailable", code(t, err))
}

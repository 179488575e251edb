package custom_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

const mostBytes = 8 << 20

func payloadBytes(events []event.Recorded) (n int) {
	for i := range events {
		n += len(events[i].Payload)
	}
	return n
}

// largestAnswer knows how large the largest answer was.
type largestAnswer struct {
	ports.EventSearcher
	largest int
}

func (w *largestAnswer) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	found, err := w.EventSearcher.SearchEvents(ctx, q, scan)
	w.largest = max(w.largest, payloadBytes(found.Events))
	return found, err
}

// A trial of large events has as many as one of small ones, and reads them a few at a
// time, in their order.
func TestTrial_PagesLargeEvents(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	reads := &largestAnswer{EventSearcher: g.store.Events}
	service := testkit.Must(custom.New(custom.Config{Compiler: jq.NewWithLimits(untimedLimits()), Rows: g.store.ProjectionRows, Register: g.store.ProjectionVersions, Decisions: g.decisions, Entities: g.store.Directory, Events: reads, Recompute: custom.RecomputeConfig{RecomputeLimits: recomputeLimits}}))
	service.SetTrialEvents(15)
	le := g.entity(t, "acme", "USMF")
	text := strings.Repeat("x", 1<<20)
	for i := range 20 {
		g.write(t, le, posted, `{"vendor":"V-1","nr":"`+string(rune('a'+i))+`","text":"`+text+`"}`, "all")
		g.write(t, le, "shop.other", `{}`)
	}
	for _, tag := range []string{"", "all"} {
		d := definition("acme", ".data.vendor", `{nrs: ((.state.nrs // "") + .event.data.nr)}`, posted)
		if tag != "" {
			d.Filter.Tags = []string{tag}
		}
		_, trial, err := service.Create(t.Context(), custom.Creation{Name: "x", Definition: d, DryRun: true})
		require.NoError(t, err)
		require.Equal(t, []int{15, 15}, []int{trial.Considered, trial.Events})
		require.JSONEq(t, `{"nrs":"fghijklmnopqrst"}`, string(trial.Entities[0].Rows[0].State))
		require.Positive(t, reads.largest)
		require.LessOrEqual(t, reads.largest, mostBytes)
	}
}

// Rows are recomputed from large events a few at a time, and come out as they were.
func TestRecompute_PagesLargeEvents(t *testing.T) {
	t.Parallel()
	g := newRecomputeFixture(t, nil)
	p := g.create(t, "sums", definition("acme", ".data.vendor", sums, posted))
	text := strings.Repeat("x", 1<<20)
	for range 10 {
		g.bill(t, "1", "M-1", "V-1", "1", text)
	}
	g.advance(t, p, g.le, 2)
	want := g.rows(t, "sums", g.le)
	require.JSONEq(t, `{"n":10,"sum":10}`, want["V-1"])
	g.damage(t, p, map[string]string{"V-1": `{"n":1}`})
	for _, of := range []event.StreamID{machine, {Type: "bill", ID: "1"}} {
		report, err := g.rebuild(of, "", false)
		require.NoError(t, err)
		require.Equal(t, 10, report.Rebuilt[0].Events)
		require.Equal(t, want, g.rows(t, "sums", g.le))
	}
	require.Positive(t, g.largest)
	require.LessOrEqual(t, g.largest, mostBytes)
}

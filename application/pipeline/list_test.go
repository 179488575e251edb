package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// list reads all pages of a list, each of at most two intents.
func (b *cashFixture) list(t *testing.T, r pipeline.ListRequest) (ids []event.ID) {
	t.Helper()
	r.TenantID, r.Limit = "acme", 2
	if r.LegalEntities == nil {
		r.LegalEntities = []ports.LegalEntity{b.entity}
	}
	for {
		page, err := b.service.List(t.Context(), r)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Intents), 2)
		for _, in := range page.Intents {
			require.Empty(t, in.Payload)
			ids = append(ids, in.ID)
		}
		if r.Cursor = page.NextCursor; r.Cursor == "" {
			return ids
		}
	}
}

func TestList_Filters(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	other, err := b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "DEMF", Name: "DE", TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	submit := func(le ports.LegalEntity, who pipeline.Caller, amount int) event.ID {
		req := b.giveLoan(amount)
		req.LegalEntity = le
		out, err := b.service.Submit(t.Context(), who, req)
		if f, refused := fault.As(err); refused {
			id, err := event.ParseID(f.IntentID)
			require.NoError(t, err)
			return id
		}
		return out.IntentID
	}
	began := time.Now()
	executed := submit(b.entity, cashier, 1)
	small := submit(b.entity, cashier, 200)
	abroad := submit(other, director, 300)
	large := submit(b.entity, supervisor, 2000)
	denied := submit(b.entity, cashier, loanNeedsNothing)
	both := []ports.LegalEntity{other, b.entity}

	all := []event.ID{executed, small, abroad, large, denied}
	require.Equal(t, all, b.list(t, pipeline.ListRequest{LegalEntities: both}))
	require.Equal(t, []event.ID{denied, large, abroad, small, executed}, b.list(t, pipeline.ListRequest{LegalEntities: both, Direction: ports.Backward}))
	filter := func(f pipeline.ListFilter) []event.ID {
		return b.list(t, pipeline.ListRequest{LegalEntities: both, Filter: f})
	}
	require.Equal(t, []event.ID{executed}, filter(pipeline.ListFilter{Status: intent.Executed}))
	require.Equal(t, []event.ID{denied}, filter(pipeline.ListFilter{Status: intent.Denied}))
	require.Equal(t, []event.ID{small, abroad, large}, filter(pipeline.ListFilter{Status: intent.PendingApproval}))
	require.Equal(t, []event.ID{abroad}, filter(pipeline.ListFilter{Actor: director.Principal.PersonID}))
	require.Equal(t, []event.ID{small, abroad, large}, filter(pipeline.ListFilter{Role: "supervisor"}))
	require.Equal(t, []event.ID{large}, filter(pipeline.ListFilter{Role: "director"}))
	require.Equal(t, all, filter(pipeline.ListFilter{Document: "loan/main"}), "the policy refused a plan")
	require.Equal(t, all, filter(pipeline.ListFilter{Document: "main"}))
	require.Empty(t, filter(pipeline.ListFilter{Document: "ain"}))
	require.Equal(t, all, filter(pipeline.ListFilter{Types: []string{"loan.give_loan"}, From: began.Add(-time.Minute), To: time.Now().Add(time.Minute)}))
	require.Empty(t, filter(pipeline.ListFilter{Types: []string{"loan.other"}}))
	require.Empty(t, filter(pipeline.ListFilter{To: began.Add(-time.Minute)}))
	require.Empty(t, filter(pipeline.ListFilter{From: time.Now().Add(time.Minute)}))
	require.Empty(t, b.list(t, pipeline.ListRequest{MinAge: time.Hour}))

	// What waits for a person: not what the person submitted or has decided on.
	waiting := func(who pipeline.Caller) []event.ID {
		return b.list(t, pipeline.ListRequest{LegalEntities: both, Approver: &who})
	}
	require.Equal(t, []event.ID{small, abroad}, waiting(supervisor))
	require.Equal(t, []event.ID{large}, waiting(director))
	require.Empty(t, waiting(cashier))
	_, err = b.service.Approve(t.Context(), person("p-2", "supervisor"), pipeline.Decision{LegalEntity: b.entity, Intent: large})
	require.NoError(t, err)
	require.Equal(t, []event.ID{large}, waiting(director))
	require.Equal(t, []event.ID{small, abroad}, filter(pipeline.ListFilter{Role: "supervisor"}), "the need that was met is left out")
}

// A page looks at a bounded number of rows, and its cursor goes on where it stopped.
func TestList_BoundedScan(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	rare := person("p-rare", "cashier")
	const rows = 5_200
	template := testkit.Must(b.service.Submit(t.Context(), cashier, b.giveLoan(1)))
	stored := testkit.Must(b.service.Intents.Intent(t.Context(), b.entity.Partition, template.IntentID))
	for range rows {
		in := stored
		in.ID = b.service.IDs.NewID(time.Now())
		_, err := b.store.Appender.Append(t.Context(), testkit.WriteIntent(ports.IntentWrite{Intent: in}))
		require.NoError(t, err)
	}
	last := testkit.Must(b.service.Submit(t.Context(), rare, b.giveLoan(1)))
	r := pipeline.ListRequest{
		TenantID: "acme", LegalEntities: []ports.LegalEntity{b.entity}, Limit: 2, Filter: pipeline.ListFilter{Actor: "p-rare"},
	}
	page := testkit.Must(b.service.List(t.Context(), r))
	require.Empty(t, page.Intents)
	require.NotEmpty(t, page.NextCursor)
	foreign := r
	foreign.Cursor, foreign.Filter.Actor = page.NextCursor, "p-else"
	_, err := b.service.List(t.Context(), foreign)
	require.Equal(t, "cursor.foreign", fault.CodeOf(err))
	r.Cursor = page.NextCursor
	page = testkit.Must(b.service.List(t.Context(), r))
	require.Len(t, page.Intents, 1)
	require.Equal(t, last.IntentID, page.Intents[0].ID)
	require.Empty(t, page.NextCursor)
}

// countedIntents counts the rows that are read.
type countedIntents struct {
	ports.IntentReader
	rows int
}

func (c *countedIntents) ListIntents(ctx context.Context, q ports.IntentQuery) ([]intent.Intent, error) {
	found, err := c.IntentReader.ListIntents(ctx, q)
	c.rows += len(found)
	return found, err
}

// A page over many legal entities shares one number of rows among them, and pages miss nothing.
func TestList_ManyLegalEntities(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	const (
		entities = 300
		rounds   = 20 // intents of each, submitted in turn
	)
	stored := testkit.Must(b.service.Intents.Intent(t.Context(), b.entity.Partition, testkit.Must(b.service.Submit(t.Context(), cashier, b.giveLoan(1))).IntentID))
	var all []ports.LegalEntity
	for i := range entities {
		le, err := b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: fmt.Sprintf("E%d", i), Name: "E", TimeZone: "UTC", Status: "active"})
		require.NoError(t, err)
		all = append(all, le)
	}
	var want []event.ID
	for range rounds {
		for _, le := range all {
			in := stored
			in.ID, in.Partition = b.service.IDs.NewID(time.Now()), le.Partition
			_, err := b.store.Appender.Append(t.Context(), testkit.WriteIntent(ports.IntentWrite{Intent: in}))
			require.NoError(t, err)
			want = append(want, in.ID)
		}
	}
	counted := &countedIntents{IntentReader: b.service.Intents}
	b.service.Intents = counted
	slices.SortFunc(want, event.ID.Compare)
	for _, direction := range []ports.Direction{ports.Forward, ports.Backward} {
		r := pipeline.ListRequest{TenantID: "acme", LegalEntities: all, Limit: 100, Direction: direction}
		var got []event.ID
		for more := true; more; more = r.Cursor != "" {
			counted.rows = 0
			page := testkit.Must(b.service.List(t.Context(), r))
			require.LessOrEqual(t, counted.rows, 5_000)
			for _, in := range page.Intents {
				got = append(got, in.ID)
			}
			r.Cursor = page.NextCursor
		}
		require.Equal(t, want, got)
		slices.Reverse(want)
	}
	counted.rows = 0
	page := testkit.Must(b.service.List(t.Context(), pipeline.ListRequest{TenantID: "acme", LegalEntities: all, Limit: 100, Filter: pipeline.ListFilter{Actor: "p-rare"}}))
	require.Empty(t, page.Intents)
	require.NotEmpty(t, page.NextCursor)
	require.LessOrEqual(t, counted.rows, 5_000)
}

// A service sees intents of its modules only.
func TestList_Sight(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	b.submitLoan(t, 200)
	r := pipeline.ListRequest{TenantID: "acme", LegalEntities: []ports.LegalEntity{b.entity}, Limit: 2}
	for bound, want := range map[string]int{"loan": 1, "cash": 0} {
		ctx := module.WithSight(t.Context(), func(context.Context) (module.Sight, error) {
			return module.NewSight(ports.Binding{Modules: []string{bound}}, nil, func(string) string { return "loan" }), nil
		})
		require.Len(t, testkit.Must(b.service.List(ctx, r)).Intents, want)
	}
}

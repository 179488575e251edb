package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("analysts", 0.3, func(w *world, r *rand.Rand) part {
	a := &analysts{world: w}
	for i := range 1 + r.IntN(2) {
		a.all = append(a.all, &analyst{world: w, name: fmt.Sprintf("analysis-%d", i), random: w.random(fmt.Sprintf("analyst %d", i))})
	}
	return a
})

// analysts create, change and delete projections of their own, each under one name, while an operator
// rebuilds, switches, resets and pauses them.
type analysts struct {
	world    *world
	operator ports.Principal
	all      []*analyst
	proven   bool // that a change becomes active
}

// analyst owns the projection of one name.
type analyst struct {
	world  *world
	name   string
	random *rand.Rand

	mu     sync.Mutex
	exists bool                      // as the last definite answer said
	again  func(ctx context.Context) // repeats a request that got no definite answer
}

// analysis is a definition with the same fold in Go.
type analysis struct {
	key, fold string
	filter    projection.Filter
	rows      func(events []event.Recorded) map[string]string
}

// sums are the state of a row.
type sums struct {
	N   int   `json:"n"`
	Sum int64 `json:"sum"`
}

const foldSums = `{"n": ((.state.n // 0) + 1), "sum": ((.state.sum // 0) + .event.data.amount)}`

// foldMovements folds those movements that count; one that ends a row removes it.
func foldMovements(counts, ends func(m movement) bool) func(events []event.Recorded) map[string]string {
	return func(events []event.Recorded) map[string]string {
		states := map[string]sums{}
		for i := range events {
			m, err := movementOf(&events[i])
			if events[i].Type != movedType || err != nil || !counts(m) {
				continue
			}
			s := states[m.Till]
			states[m.Till] = sums{s.N + 1, s.Sum + m.Amount}
			if ends(m) {
				delete(states, m.Till)
			}
		}
		out := map[string]string{}
		for till, s := range states {
			state, _ := json.Marshal(s) // of numbers
			out[till] = string(state)
		}
		return out
	}
}

func always(movement) bool { return true }
func never(movement) bool  { return false }

var analyses = []analysis{
	{`.data.till`, foldSums, projection.Filter{Types: []string{movedType}}, foldMovements(always, never)},
	{`if .data.amount > 0 then .data.till else null end`, foldSums, projection.Filter{Types: []string{movedType}}, foldMovements(func(m movement) bool { return m.Amount > 0 }, never)},
	{`.data.till`, `if .event.data.amount < 0 then null else ` + foldSums + ` end`, projection.Filter{Types: []string{movedType}}, foldMovements(always, func(m movement) bool { return m.Amount < 0 })},
	{`.data.till`, foldSums, projection.Filter{Types: []string{movedType, joinedType}, Tags: []string{"till:T0"}}, foldMovements(func(m movement) bool { return m.Till == "T0" }, never)},
}

func (a analysis) definition() projection.Definition {
	return projection.Definition{TenantID: tenantID, Filter: a.filter, Key: a.key, Fold: a.fold}
}

// rowsOf computes the rows of a version from the log.
func rowsOf(p projection.Projection) (func(events []event.Recorded) map[string]string, error) {
	d, err := projection.ParseDefinition(p.Definition)
	if err != nil {
		return nil, err
	}
	for _, a := range analyses {
		if reflect.DeepEqual(a.definition(), d) {
			return a.rows, nil
		}
	}
	return nil, fmt.Errorf("version %d of %s has the definition %s", p.Version, p.Name, p.Definition)
}

func (a *analysts) prepare(ctx context.Context) (err error) {
	a.operator, err = a.world.enroll(ctx, "p-operator", event.Human, "operator")
	return err
}

func (a *analysts) work() {
	for _, one := range a.all {
		a.world.begin(func(ctx context.Context) {
			for pause(ctx, one.random, 3*time.Second) == nil {
				one.act(ctx, analyses[one.random.IntN(len(analyses))], one.random.Float64() < 0.3)
			}
		})
	}
	r := a.world.random("operator of analyses")
	a.world.begin(func(ctx context.Context) {
		for pause(ctx, r, 2*time.Second) == nil {
			_ = a.world.request(ctx, r, func(ctx context.Context, n *run) error { return a.operate(ctx, r, n) }) // the next action follows
		}
	})
	reader := a.world.random("reader of analyses")
	a.world.begin(func(ctx context.Context) {
		for pause(ctx, reader, 500*time.Millisecond) == nil {
			_ = a.read(ctx, reader) // no answer is no wrong one
		}
	})
}

// act creates, changes or deletes the projection. A repeated request may find that the first one was
// carried out.
func (a *analyst) act(ctx context.Context, to analysis, remove bool) {
	a.mu.Lock()
	exists := a.exists
	a.mu.Unlock()
	err := a.world.retry(ctx, a.random, func(ctx context.Context, n *run) error {
		c := custom.Creation{Name: a.name, Definition: to.definition(), By: "p-owner"}
		switch {
		case !exists:
			_, _, err := n.services.Custom.Create(ctx, c)
			return err
		case remove:
			return n.services.Custom.Delete(ctx, tenantID, a.name, c.By)
		}
		_, err := n.services.Custom.Change(ctx, c, a.random.Float64() < 0.7)
		return err
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again = nil
	switch {
	case isUncertain(err):
		a.again = func(ctx context.Context) { a.act(ctx, to, remove) }
	case err == nil:
		a.exists = !exists || !remove
	case !exists && fault.CodeOf(err) == projection.CodeExists:
		a.exists = true
	case exists && remove && fault.KindOf(err) == fault.NotFound:
		a.exists = false
	}
}

// operate does to one of the projections what operators do.
func (a *analysts) operate(ctx context.Context, r *rand.Rand, n *run) (err error) {
	by := projections.Decider{By: a.operator.PersonID, Tenant: tenantID}
	name := projection.CustomName(tenantID, a.all[r.IntN(len(a.all))].name)
	order := projections.Order{Name: name, Decider: by}
	command := projections.Command{Name: name, Decider: by, Reason: "test"}
	for _, le := range a.world.entities {
		command.Partitions = append(command.Partitions, le.Partition)
	}
	if r.Float64() < 0.3 {
		order.Partition = command.Partitions[0]
	}
	switch r.IntN(10) {
	case 0, 1:
		order.Latest = r.Float64() < 0.5
		_, err = n.services.Rebuilds.Start(ctx, order, r.Float64() < 0.7)
	case 2:
		_, err = n.services.Rebuilds.Switch(ctx, order)
	case 3:
		_, err = n.services.Rebuilds.Rollback(ctx, order)
	case 4:
		_, err = n.services.Rebuilds.Cancel(ctx, order)
	case 5:
		_, err = n.services.Rebuilds.TakeSnapshot(ctx, order)
	case 6:
		command.Action = projection.Pause
		err = n.services.Operations.Do(ctx, command)
	case 7:
		command.Action, command.Partition = projection.Reset, command.Partitions[r.IntN(len(command.Partitions))]
		err = n.services.Operations.Do(ctx, command)
	default:
		command.Action = projection.Resume
		err = n.services.Operations.Do(ctx, command)
	}
	return err
}

// read compares a page of rows with a fold of the log at the sequence that it names.
func (a *analysts) read(ctx context.Context, r *rand.Rand) error {
	one, le := a.all[r.IntN(len(a.all))], a.world.entities[r.IntN(len(a.world.entities))]
	q := custom.RowsQuery{Name: one.name, Entity: le, Limit: 100}
	head := event.Sequence(0)
	if r.Float64() < 0.3 {
		head = a.world.head(le)
		q.MinSequence = fmt.Sprint(uint64(head))
	}
	return a.world.request(ctx, r, func(ctx context.Context, n *run) error {
		page, err := n.services.Custom.Rows(ctx, q)
		if err != nil {
			return err
		}
		live, err := a.world.customVersions(ctx, one.name)
		if err != nil {
			return err
		}
		for _, p := range live { // it may be gone by now
			if p.Version == page.Version {
				a.world.require(page.Sequence >= head, "reports include what was asked for", "%s at %d, not %d", one.name, page.Sequence, head)
				return a.world.compareRows(ctx, p, le, page.Rows, page.Sequence)
			}
		}
		return nil
	})
}

// compareRows compares rows of a version with a fold of the log up to a sequence.
func (w *world) compareRows(ctx context.Context, p projection.Projection, le ports.LegalEntity, rows []ports.ProjectionRow, at event.Sequence) error {
	fold, err := rowsOf(p)
	if err != nil {
		return err
	}
	events, err := w.database.Events.Events(ctx, ports.EventQuery{Partition: le.Partition, Limit: 1 << 20})
	if err != nil {
		return err
	}
	w.requireRows(p, le, rows, at, fold(events[:at]))
	return nil
}

func (a *analysts) settle(ctx context.Context) error {
	r := a.world.random("settling analyst")
	by := projections.Decider{By: a.operator.PersonID, Tenant: tenantID}
	for _, one := range a.all {
		if one.again != nil {
			one.again(ctx)
		}
		err := eventually(ctx, func() error { return a.requireExistence(ctx, one) })
		if err != nil {
			return err
		}
		err = eventually(ctx, func() error {
			live, err := a.world.customVersions(ctx, one.name)
			if err != nil {
				return err
			}
			for _, p := range live { // redactions wait for every version, also for those that readers do not see
				err := a.world.request(ctx, r, func(ctx context.Context, n *run) error {
					return n.services.Operations.Do(ctx, projections.Command{Name: p.Name, Version: p.Version, Decider: by, Action: projection.Resume, Reason: "end"})
				})
				if isUncertain(err) {
					return err
				}
			}
			return a.world.customCaughtUp(ctx, one.name)
		})
		if err != nil {
			return err
		}
	}
	if a.proven {
		return nil
	}
	a.proven = true
	return a.proveChange(ctx, r, a.all[0])
}

// requireExistence requires that a projection is there exactly if its analyst was told so.
func (a *analysts) requireExistence(ctx context.Context, one *analyst) error {
	live, err := a.world.customVersions(ctx, one.name)
	if err == nil && (len(live) > 0) != one.exists {
		err = fmt.Errorf("%s has %d live versions, and its analyst was told that it exists: %t", one.name, len(live), one.exists)
	}
	return err
}

// proveChange changes a projection while nothing else does, and waits until readers see the rows of the
// new definition.
func (a *analysts) proveChange(ctx context.Context, r *rand.Rand, one *analyst) error {
	name, by := projection.CustomName(tenantID, one.name), projections.Decider{By: a.operator.PersonID, Tenant: tenantID}
	to := analyses[r.IntN(len(analyses))]
	err := eventually(ctx, func() error {
		return a.world.request(ctx, r, func(ctx context.Context, n *run) error {
			if !one.exists {
				_, _, err := n.services.Custom.Create(ctx, custom.Creation{Name: one.name, Definition: to.definition(), By: "p-owner"})
				one.exists = err == nil
				return err
			}
			changed, err := n.services.Custom.Change(ctx, custom.Creation{Name: one.name, Definition: to.definition(), By: "p-owner"}, true)
			if waits := changed.Same && changed.Version != changed.Shown; waits || fault.CodeOf(err) == projection.CodeBeingChanged {
				_, err = n.services.Rebuilds.Cancel(ctx, projections.Order{Name: name, Decider: by})
				err = errors.Join(err, errors.New("another version was being built"))
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	return eventually(ctx, func() error {
		live, err := a.world.customVersions(ctx, one.name)
		if err != nil {
			return err
		}
		for _, p := range live {
			d, err := projection.ParseDefinition(p.Definition)
			if err == nil && p.Role == projection.Active && reflect.DeepEqual(d, to.definition()) {
				return a.world.customCaughtUp(ctx, one.name)
			}
		}
		return fmt.Errorf("the change of %s does not become active: %v", one.name, live)
	})
}

func (a *analysts) check(b *books) {
	for _, one := range a.all {
		err := a.requireExistence(context.Background(), one)
		a.world.require(err == nil, "a tenant's projection exists as it was answered", "%v", err)
		a.world.checkCustomRows(b, one.name, rowsOf)
	}
}

// customVersions are the live versions of a tenant's projection, read past every node.
func (w *world) customVersions(ctx context.Context, name string) (live []projection.Projection, err error) {
	all, err := w.database.ProjectionVersions.NamedProjections(ctx, projection.CustomName(tenantID, name))
	for _, p := range all {
		if p.Role.IsLive() {
			live = append(live, p)
		}
	}
	return live, err
}

// customCaughtUp requires that the active version of a tenant's projection has read all logs.
func (w *world) customCaughtUp(ctx context.Context, name string) error {
	live, err := w.customVersions(ctx, name)
	if err != nil {
		return err
	}
	for _, p := range live {
		if p.Role != projection.Active {
			continue
		}
		for _, le := range w.entities {
			_, at, err := w.database.ProjectionRows.ListProjectionRows(ctx, ports.ProjectionRowQuery{Projection: p.Name, Version: p.Version, Partition: le.Partition, Limit: 1})
			if err != nil {
				return err
			}
			if head := w.head(le); at < head {
				return fmt.Errorf("version %d of %s has read %d of %d events of %s", p.Version, name, at, head, le.Code)
			}
		}
	}
	return nil
}

// checkCustomRows compares the rows of every live version of a tenant's projection with a fresh fold.
func (w *world) checkCustomRows(b *books, name string, foldOf func(p projection.Projection) (func(events []event.Recorded) map[string]string, error)) {
	live, err := w.customVersions(context.Background(), name)
	w.require(err == nil, "projections", "%v", err)
	for _, p := range live {
		fold, err := foldOf(p)
		if !w.require(err == nil, "projections", "%v", err) {
			continue
		}
		for _, le := range w.entities {
			rows, at, err := w.database.ProjectionRows.ListProjectionRows(context.Background(), ports.ProjectionRowQuery{Projection: p.Name, Version: p.Version, Partition: le.Partition, Limit: 1 << 20})
			w.require(err == nil, "projections", "%v", err)
			w.requireRows(p, le, rows, at, fold(b.partitions[le.Partition][:at]))
		}
	}
}

func (w *world) requireRows(p projection.Projection, le ports.LegalEntity, rows []ports.ProjectionRow, at event.Sequence, want map[string]string) {
	w.require(len(rows) == len(want), "a tenant's projection equals a fresh fold", "version %d of %s in %s at %d has %d rows, not %d", p.Version, p.Name, le.Code, at, len(rows), len(want))
	for _, row := range rows {
		w.require(sameJSON(row.State, want[row.Key]), "a tenant's projection equals a fresh fold", "version %d of %s in %s at %d: %s is %s, not %s", p.Version, p.Name, le.Code, at, row.Key, row.State, want[row.Key])
	}
}

// sameJSON reports whether two documents mean the same.
func sameJSON(a json.RawMessage, b string) bool {
	var left, right any
	return json.Unmarshal(a, &left) == nil && json.Unmarshal([]byte(b), &right) == nil && reflect.DeepEqual(left, right)
}

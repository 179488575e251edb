package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/oracle"
	"github.com/erpbackbone/backbone/test/testkit"
)

const (
	// operatorPace is how often an operator does something, at most.
	operatorPace = 500 * time.Millisecond
	// fleetProjection is a custom projection of the fleet's tenant: how often each machine
	// was serviced.
	fleetProjection = "serviced"
)

// expectedRefusals are refusals after another operator, or an earlier request whose answer was
// lost, has changed the version.
var expectedRefusals = []string{
	"projection.rebuilding", "projection.not_building", "projection.not_retained", "projection.changed", "projection.version_behind",
	"projection.snapshot_under_way", "projection.snapshot_not_found", "projection.being_changed", "projection.not_comparable", "projection.fenced",
}

// operators run all operations on read models while readers are served.
type operators struct {
	ask    func(ctx context.Context, method, path, body string) (answer, error)
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	transient bool // rows may differ for a while

	mutex    sync.Mutex
	did      map[string]int
	failures []error
}

func newOperators(t *testing.T, ask func(ctx context.Context, method, path, body string) (answer, error)) *operators {
	t.Helper()
	o := &operators{ask: ask, did: map[string]int{}}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	t.Cleanup(func() { o.cancel(); o.done.Wait() })
	return o
}

// operate starts the operators of a fleet.
func operate(t *testing.T, f *fleet) *operators {
	t.Helper()
	o := newOperators(t, func(ctx context.Context, method, path, body string) (answer, error) {
		return f.sendToAny(ctx, rand.IntN(len(f.nodes)), "admin", method, path, body)
	})
	require.NoError(t, f.client(f.nodes[0], "admin").want(http.StatusCreated, nil, "POST", "/api/admin/projections", customDefinition(0)))
	rebuilt := []string{"gl.ledger", "ap.open-items"}
	o.repeat(func(n int) error { return o.rebuildPart(rebuilt[n%2], "USMF") })
	o.repeat(func(n int) error { return o.rebuildFromSnapshot(rebuilt[(n+1)%2]) })
	o.repeat(o.changeCustomProjection)
	o.repeat(func(int) error { return o.rebuildRowsOfEntity(f) })
	return o
}

// repeat runs an operation until the operators stop or it fails.
func (o *operators) repeat(what func(n int) error) {
	o.done.Go(func() {
		pace := time.NewTicker(operatorPace)
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-o.ctx.Done():
				return
			case <-pace.C:
			}
			if err := what(n); err != nil && o.ctx.Err() == nil {
				o.mutex.Lock()
				o.failures = append(o.failures, err)
				o.mutex.Unlock()
				return
			}
		}
	})
}

// reach waits until each operation was run at least once.
func (o *operators) reach(t *testing.T, what ...string) {
	t.Helper()
	testkit.Eventually(t, settleTime, func() bool {
		o.mutex.Lock()
		defer o.mutex.Unlock()
		require.Empty(t, o.failures)
		return !slices.ContainsFunc(what, func(w string) bool { return o.did[w] == 0 })
	}, "operators do ", what)
}

// stop ends the operators and requires that each wanted operation was run.
func (o *operators) stop(t *testing.T, want ...string) {
	t.Helper()
	o.cancel()
	o.done.Wait()
	require.Empty(t, o.failures)
	t.Logf("operators: %v", o.did)
	for _, what := range want {
		require.Positive(t, o.did[what], what)
	}
}

func (o *operators) count(what string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.did[what]++
}

// send sends an order and reports whether it was accepted; a refusal means that another operator was faster.
func (o *operators) send(what, method, path, body string) (followed bool, err error) {
	a, err := o.ask(o.ctx, method, "/api/admin/projections"+path, body)
	switch {
	case err != nil:
		return false, err
	case a.status < http.StatusMultipleChoices:
		o.count(what)
		return true, nil
	case slices.Contains(expectedRefusals, a.code()):
		return false, nil
	default:
		return false, fmt.Errorf("%s: %s %s: %s", what, method, path, a)
	}
}

// versions reads the versions of a projection. A fault of nodes and databases halts none.
func (o *operators) versions(name string) (b versionsView, err error) {
	a, err := o.ask(o.ctx, "GET", "/api/admin/projections/"+name+"/rebuild", "")
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("%s: %s", name, a)
	}
	if err == nil {
		err = a.decode(&b)
	}
	for _, building := range append([]*buildingView{b.Building}, b.parts()...) {
		if err == nil && building != nil && building.Faulted > 0 {
			err = fmt.Errorf("version %d of %s is stalled: %s", building.Version, name, a)
		}
	}
	return b, err
}

func (b versionsView) parts() (out []*buildingView) {
	for _, part := range b.LegalEntities {
		out = append(out, part.Building)
	}
	return out
}

// part is the version that is built for a legal entity, or for all: "".
func (b versionsView) part(entity string) *buildingView {
	if entity == "" {
		return b.Building
	}
	for _, part := range b.LegalEntities {
		if part.LegalEntity == entity {
			return part.Building
		}
	}
	return nil
}

// await waits until the versions meet a condition.
func (o *operators) await(name string, until func(versionsView) bool) error {
	pace := time.NewTicker(operatorPace)
	defer pace.Stop()
	for {
		if b, err := o.versions(name); err != nil || until(b) {
			return err
		}
		select {
		case <-o.ctx.Done():
			return o.ctx.Err()
		case <-pace.C:
		}
	}
}

// rebuildPart rebuilds the rows of one legal entity, switches to them, and back and
// forth.
func (o *operators) rebuildPart(name, entity string) error {
	return o.rebuild(name, entity, "a legal entity", object{"legal_entity": entity})
}

// rebuildFromSnapshot takes a snapshot and starts a version from it.
func (o *operators) rebuildFromSnapshot(name string) error {
	if _, err := o.send("snapshot", "POST", "/"+name+"/snapshot", "{}"); err != nil {
		return err
	}
	taken := func(b versionsView) bool { return len(b.Snapshots) == 0 || b.Snapshots[0].Complete }
	if err := o.await(name, taken); err != nil {
		return err
	}
	return o.rebuild(name, "", "from a snapshot", object{"from_snapshot": "latest"})
}

func (o *operators) rebuild(name, entity, what string, begin object) error {
	body := "{}"
	if entity != "" {
		body = fmt.Sprintf(`{"legal_entity":%q}`, entity)
	}
	order, err := json.Marshal(begin)
	if err != nil {
		return err
	}
	if begun, err := o.send(what+": begun", "POST", "/"+name+"/rebuild", string(order)); err != nil || !begun {
		return err
	}
	caughtUp := func(b versionsView) bool {
		building := b.part(entity)
		return building == nil || building.CaughtUp
	}
	if err := o.await(name, caughtUp); err != nil {
		return err
	}
	// The active rows were right, so the new ones do not differ.
	a, err := o.ask(o.ctx, "POST", "/api/admin/projections/"+name+"/compare", body)
	if err != nil {
		return err
	}
	if a.status == http.StatusOK {
		var c struct {
			Rows string `json:"rows"`
		}
		if err := a.decode(&c); err != nil || c.Rows != "0" && !o.transient {
			return fmt.Errorf("%s of %s differs: %s, %w", what, name, a, err)
		}
		o.count(what + ": compared")
	} else if !slices.Contains(expectedRefusals, a.code()) {
		return fmt.Errorf("compare %s: %s", name, a)
	}
	for _, step := range []string{"switch", "rollback", "rollback", "drop"} {
		if _, err := o.send(what+": "+step, "POST", "/"+name+"/"+step, body); err != nil {
			return err
		}
	}
	return nil
}

// customDefinition is one of two definitions of the fleet's custom projection.
func customDefinition(n int) string {
	fold := `{count: ((.state.count // 0) + 1)}`
	if n%2 == 1 {
		fold = `{count: ((.state.count // 0) + 1), twice: (((.state.count // 0) + 1) * 2)}`
	}
	text, _ := json.Marshal(object{"name": fleetProjection, "filter": object{"types": []string{machineType}}, "key": ".stream.id", "fold": fold})
	return string(text)
}

// changeCustomProjection changes the definition of the custom projection, switches to the new
// rows, and rolls back now and then.
func (o *operators) changeCustomProjection(n int) error {
	began, err := o.send("a definition: changed", "PUT", "/"+fleetProjection+"?switch=true", customDefinition(n+1))
	if err != nil || !began {
		return err
	}
	if err := o.await(fleetProjection, func(b versionsView) bool { return b.Building == nil }); err != nil {
		return err
	}
	o.count("a definition: switch")
	if n%3 == 0 {
		_, err = o.send("a definition: rolled back", "POST", "/"+fleetProjection+"/rollback", "{}")
	}
	return err
}

// rebuildRowsOfEntity rebuilds the rows of an entity, which must not change.
func (o *operators) rebuildRowsOfEntity(f *fleet) error {
	names := []string{"gl.ledger", "ap.open-items", "ap.vendors"}
	name := names[rand.IntN(len(names))]
	streamType, id, err := f.someStream(o.ctx, targets[name])
	if err != nil {
		return nil //nolint:nilerr // the database is away
	}
	body, err := json.Marshal(object{"legal_entity": "USMF", "entity": object{"type": streamType, "id": id}})
	if err != nil {
		return err
	}
	a, err := o.ask(o.ctx, "POST", "/api/admin/projections/"+name+"/rebuild-rows", string(body))
	switch {
	case err != nil:
		return err
	case slices.Contains(expectedRefusals, a.code()), a.code() == "projection.target_unsupported": // another ledger's stream
		return nil
	case a.status != http.StatusOK:
		return fmt.Errorf("rows of %s/%s in %s: %s", streamType, id, name, a)
	}
	var out struct {
		Rows string `json:"rows"`
	}
	if err := a.decode(&out); err != nil {
		return err
	}
	if out.Rows != "0" {
		return fmt.Errorf("%s rows of %s/%s in %s were wrong: %s", out.Rows, streamType, id, name, a)
	}
	o.count("an entity")
	return nil
}

// someStream picks a stream of USMF of one of the types.
func (f *fleet) someStream(ctx context.Context, types []string) (streamType, id string, err error) {
	connection, err := pgx.Connect(ctx, f.super)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = connection.Close(context.Background()) }()
	err = connection.QueryRow(ctx, `SELECT e.stream_type, e.stream_id FROM backbone.events e JOIN backbone.legal_entities l USING (partition_id)
		WHERE l.code = 'USMF' AND e.stream_type = ANY ($1) AND e.stream_version = 1 ORDER BY random() LIMIT 1`, types).Scan(&streamType, &id)
	return streamType, id, err
}

// removeLeftovers drops all versions and snapshots but the active versions.
func (f *fleet) removeLeftovers(t *testing.T) {
	t.Helper()
	o := newOperators(t, func(ctx context.Context, method, path, body string) (answer, error) {
		return f.sendToAny(ctx, 0, "admin", method, path, body)
	})
	for _, name := range []string{"gl.ledger", "ap.open-items", "ap.vendors", fleetProjection} {
		testkit.EventuallyNoError(t, settleTime, func() error {
			b, err := o.versions(name)
			if err != nil {
				return err
			}
			order := func(step, entity string, snapshot int) error {
				body := object{}
				if entity != "" {
					body["legal_entity"] = entity
				}
				if snapshot != 0 {
					body["snapshot"] = snapshot
				}
				text, _ := json.Marshal(body)
				_, err := o.send(step, "POST", "/"+name+"/"+step, string(text))
				return err
			}
			var failures []string
			note := func(what bool, step, entity string, snapshot int) {
				if what {
					failures = append(failures, fmt.Sprintf("%s %s %d: %v", step, entity, snapshot, order(step, entity, snapshot)))
				}
			}
			note(b.Building != nil, "cancel", "", 0)
			note(b.Retained != 0, "drop", "", 0)
			for _, part := range b.LegalEntities {
				note(part.Building != nil, "cancel", part.LegalEntity, 0)
				note(part.Retained != 0, "drop", part.LegalEntity, 0)
			}
			for _, s := range b.Snapshots {
				note(true, "drop", s.LegalEntity, s.Version)
			}
			if len(b.Dropping) > 0 {
				failures = append(failures, fmt.Sprintf("%v are being removed", b.Dropping))
			}
			if len(failures) > 0 {
				return fmt.Errorf("%s: %s", name, strings.Join(failures, "; "))
			}
			return nil
		}, name, " has no version to drop")
	}
	var left int
	f.query(t, `SELECT (SELECT count(*) FROM backbone.projection_snapshots) + (SELECT count(*) FROM backbone.projections WHERE role NOT IN ('active', 'dropped'))
		+ (SELECT count(*) FROM backbone.projection_checkpoints c JOIN backbone.projections p ON p.name = c.projection AND p.version = c.version WHERE p.role <> 'active')`, &left)
	require.Zero(t, left)
}

// requireCustomProjection compares the rows of the custom projection with the log.
func (f *fleet) requireCustomProjection(t *testing.T, books oracle.Books) {
	t.Helper()
	for entity, partition := range f.partitions {
		want := map[string]int{}
		for _, e := range books[partition] {
			if e.Type == machineType {
				want[e.Stream.ID]++
			}
		}
		var page customRows
		require.NoError(t, f.client(f.nodes[0], "auditor").want(http.StatusOK, &page, "GET", "/api/projections/"+fleetProjection+"?legal_entity="+entity, ""))
		got := map[string]int{}
		for _, row := range page.Rows {
			var state struct {
				Count int  `json:"count"`
				Twice *int `json:"twice"`
			}
			require.NoError(t, json.Unmarshal(row.State, &state))
			require.True(t, state.Twice == nil || *state.Twice == 2*state.Count, "%s of %s", row.State, row.Key)
			got[row.Key] = state.Count
		}
		require.Equal(t, want, got, entity)
	}
}

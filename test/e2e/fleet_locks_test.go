package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// lock holds the locks of a statement in a separate session until release is called.
func (f *fleet) lock(t *testing.T, statement string, arguments ...any) (release func()) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), f.super)
	require.NoError(t, err)
	release = func() { _ = connection.Close(context.Background()) }
	t.Cleanup(release)
	_, err = connection.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	tag, err := connection.Exec(t.Context(), statement, arguments...)
	require.NoError(t, err)
	require.Positive(t, tag.RowsAffected(), statement)
	return release
}

// otherEntities are the legal entities of the fleet without one.
func otherEntities(entity string) (out []string) {
	for _, e := range fleetEntities {
		if e != entity {
			out = append(out, e)
		}
	}
	return out
}

// write appends one event at a node, which must accept it at the first attempt.
func (f *fleet) write(t *testing.T, w *writers, n *node, entity, key string) {
	t.Helper()
	a, err := f.client(n, "module").do("POST", "/api/events", batch(machineServiced(entity, "M-1", `{"hours":1}`)), "Idempotency-Key", key)
	require.NoError(t, err, "%s at %s", entity, n.id)
	require.Equal(t, http.StatusCreated, a.status, "%s at %s: %s", entity, n.id, a)
	require.NoError(t, w.recordEvents(key, entity, a))
}

// awaitProjections waits until all projections but one have read the legal entities up to
// their present heads.
func (f *fleet) awaitProjections(t *testing.T, but string, entities ...string) {
	t.Helper()
	heads := `SELECT e.partition_id, max(e.sequence) FROM backbone.events e JOIN backbone.legal_entities l USING (partition_id) WHERE l.code = ANY ($1) GROUP BY 1`
	connection, err := pgx.Connect(t.Context(), f.super)
	require.NoError(t, err)
	defer func() { _ = connection.Close(context.Background()) }()
	rows, err := connection.Query(t.Context(), heads, entities)
	require.NoError(t, err)
	var partition int32
	var head int64
	want := map[int32]int64{}
	_, err = pgx.ForEachRow(rows, []any{&partition, &head}, func() error { want[partition] = head; return nil })
	require.NoError(t, err)
	require.Len(t, want, len(entities))
	testkit.Eventually(t, settleTime, func() bool {
		rows, err := connection.Query(t.Context(), `SELECT c.partition_id, min(c.sequence) FROM backbone.projection_checkpoints c
			JOIN backbone.projections p ON p.name = c.projection AND p.version = c.version AND p.role = 'active'
			WHERE c.projection <> $1 GROUP BY 1`, but)
		require.NoError(t, err)
		reached := 0
		var sequence int64
		_, err = pgx.ForEachRow(rows, []any{&partition, &sequence}, func() error {
			if head, wanted := want[partition]; wanted && sequence >= head {
				reached++
			}
			return nil
		})
		require.NoError(t, err)
		return reached == len(want)
	}, "projections but ", but, " in ", strings.Join(entities, " "))
}

// lockHead locks the head of a legal entity for longer than LockTimeout: its writers get an
// error, and writers of other legal entities do not wait for the lock, which would refuse them too.
func (f *fleet) lockHead(t *testing.T, w *writers, entity string) {
	t.Helper()
	release := f.lock(t, `SELECT FROM backbone.partition_heads h JOIN backbone.legal_entities l USING (partition_id) WHERE l.code = $1 FOR UPDATE OF h`, entity)
	defer release()
	refused := make(chan error, 1)
	go func() { // waits as long as the node does
		a, err := f.client(f.nodes[0], "module").do("POST", "/api/events", batch(machineServiced(entity, "M-1", `{"hours":1}`)))
		if err == nil && (a.status != http.StatusServiceUnavailable || a.code() != "store.unavailable") {
			err = fmt.Errorf("a locked legal entity: %s", a)
		}
		refused <- err
	}()
	for i := range 10 {
		for _, n := range f.nodes {
			for _, other := range otherEntities(entity) {
				f.write(t, w, n, other, fmt.Sprintf("head-%s-%s-%d-%s", entity, other, i, n.id))
			}
		}
	}
	require.NoError(t, <-refused)
	f.awaitProjections(t, "", otherEntities(entity)...)
}

// lockCheckpoint locks the checkpoint of a projection in a legal entity, in all versions: the
// projection continues in other legal entities, and other projections continue in this one.
func (f *fleet) lockCheckpoint(t *testing.T, w *writers, projection, entity string) {
	t.Helper()
	release := f.lock(t, `SELECT FROM backbone.projection_checkpoints c JOIN backbone.legal_entities l USING (partition_id) WHERE l.code = $1 AND c.projection = $2 FOR UPDATE OF c`, entity, projection)
	defer release()
	for i := range 3 {
		for _, n := range f.nodes {
			for _, e := range fleetEntities {
				f.write(t, w, n, e, fmt.Sprintf("checkpoint-%s-%d-%s", projection, i, n.id))
			}
		}
		f.awaitProjections(t, projection, entity)
		f.awaitProjections(t, "", otherEntities(entity)...)
	}
}

// lockCursor locks the cursor of a new subscription in a legal entity: consumers get and
// answer the events of other legal entities; those of the locked one follow after the lock.
func (f *fleet) lockCursor(t *testing.T, w *writers, entity string) {
	t.Helper()
	const id = "locked-cursor"
	n := 0
	write := func() {
		t.Helper()
		for _, e := range fleetEntities {
			f.write(t, w, f.nodes[n%len(f.nodes)], e, fmt.Sprintf("cursor-%d", n))
			n++
		}
	}
	came := map[string]int{}
	fastest := settleTime // of the polls
	take := func(of []string, atLeast int) {
		t.Helper()
		testkit.Eventually(t, settleTime, func() bool {
			reader := f.client(f.nodes[rand.IntN(len(f.nodes))], "module")
			var p struct {
				Events []delivered `json:"events"`
			}
			began := time.Now()
			require.NoError(t, reader.want(http.StatusOK, &p, "GET", "/api/subscriptions/"+id+"/poll?limit=100", ""))
			fastest = min(fastest, time.Since(began))
			var ids []string
			for _, e := range p.Events {
				ids = append(ids, strconv.Quote(e.ID))
				came[e.Scope.LegalEntity]++
			}
			if len(ids) > 0 {
				require.NoError(t, reader.want(http.StatusOK, nil, "POST", "/api/subscriptions/"+id+"/acknowledge", `{"event_ids":[`+strings.Join(ids, ",")+`]}`))
			}
			return !slices.ContainsFunc(of, func(e string) bool { return came[e] < atLeast })
		}, id, " delivers events")
	}
	f.as(t, "module", http.StatusCreated, "/api/subscriptions", `{"id":"`+id+`","subscriber_type":"service","subscriber_id":"fleet","event_types":["`+machineType+`"],"settings":{"start_from":"end"}}`)
	write()
	take(fleetEntities, 1)
	release := f.lock(t, `SELECT FROM backbone.subscription_cursors c JOIN backbone.subscriptions s ON s.uid = c.subscription
		JOIN backbone.legal_entities l USING (partition_id) WHERE l.code = $1 AND s.id = $2 FOR UPDATE OF c`, entity, id)
	defer release()
	before := came[entity]
	fastest = settleTime
	for i := range 5 {
		write()
		take(otherEntities(entity), came[otherEntities(entity)[0]]+1+i%2)
	}
	require.Equal(t, before, came[entity], "no delivery under a lock")
	require.Less(t, fastest, answerTime, "polls do not wait for the lock")
	release()
	write()
	take([]string{entity}, before+1)
	require.NoError(t, f.client(f.nodes[0], "module").want(http.StatusOK, nil, "DELETE", "/api/subscriptions/"+id, ""))
}

// requireFanoutShares waits until the number of live nodes is as given and each legal entity
// is published by its preferred node.
func (f *fleet) requireFanoutShares(t *testing.T, alive int) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), f.super)
	require.NoError(t, err)
	defer func() { _ = connection.Close(context.Background()) }()
	testkit.EventuallyNoError(t, settleTime, func() error {
		rows, err := connection.Query(t.Context(), `SELECT node FROM backbone.work_nodes WHERE work LIKE 'publisher/%' AND seen_at > statement_timestamp() - interval '10 s' ORDER BY 1`)
		require.NoError(t, err)
		nodes, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		if len(nodes) != alive {
			return fmt.Errorf("%v share the fan-out", nodes)
		}
		rows, err = connection.Query(t.Context(), `SELECT name, partition_id, holder FROM backbone.leases WHERE name LIKE 'publisher/%' AND expires_at > statement_timestamp()`)
		require.NoError(t, err)
		var lease ports.LeaseResource
		var holder string
		held := 0
		_, err = pgx.ForEachRow(rows, []any{&lease.Name, &lease.Partition, &holder}, func() error {
			if want := ports.Preferred(nodes, lease); holder != want {
				return fmt.Errorf("%s has %v of %s", holder, lease, want)
			}
			held++
			return nil
		})
		if err == nil && held < len(fleetEntities) {
			err = fmt.Errorf("%d legal entities are published", held)
		}
		return err
	}, "the fan-out is shared by ", alive)
}

// takeOverFanout kills a node, waits until the other nodes publish its legal entities, and
// starts it again to get its share back.
func (f *fleet) takeOverFanout(t *testing.T, w *writers, n *node) {
	t.Helper()
	f.requireFanoutShares(t, len(f.nodes))
	f.killNode(t, n)
	f.requireFanoutShares(t, len(f.nodes)-1)
	w.await(t, betweenFaults)
	f.startNode(t, n)
	f.requireFanoutShares(t, len(f.nodes))
}

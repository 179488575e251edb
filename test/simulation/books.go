package simulation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/oracle"
)

func sortBy[T any, K cmp.Ordered](list []T, key func(T) K) {
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
}

// event returns the event at a sequence, nil if there is none.
func (b *books) event(p event.PartitionID, n event.Sequence) *event.Recorded {
	return b.partitions.Event(p, n)
}

// readBooks reads all logs past every node.
func (w *world) readBooks(ctx context.Context) (*books, error) {
	logs, err := oracle.Read(ctx, w.database.Events)
	if err != nil {
		return nil, err
	}
	w.events = 0
	for _, events := range logs {
		w.events += len(events)
	}
	return &books{world: w, partitions: logs}, nil
}

// head is the newest sequence of a legal entity, read past every node.
func (w *world) head(le ports.LegalEntity) event.Sequence {
	h, err := w.database.Events.Head(context.Background(), le.Partition)
	w.require(err == nil, "books", "%v", err)
	return h.Sequence
}

// eventByID finds an event in any log, past every node.
func (w *world) eventByID(ctx context.Context, id event.ID) (event.Recorded, error) {
	for _, le := range w.entities {
		if e, err := w.database.Events.EventByID(ctx, le.Partition, id); err == nil {
			return e, nil
		}
	}
	return event.Recorded{}, fmt.Errorf("no log has event %s", id)
}

// check compares everything with the model, after all nodes have ended.
func (w *world) check() {
	b, err := w.readBooks(context.Background())
	if !w.require(err == nil, "books", "%v", err) {
		return
	}
	rules := oracle.Require(w.require)
	rules.Chains(logName, b.partitions)
	rules.Intents(context.Background(), w.database.Intents, b.partitions)
	for _, le := range w.entities {
		w.checkTills(le, b.partitions[le.Partition])
	}
	w.checkIntents(b)
	w.verify()
	w.checkBalances(b)
	for _, p := range w.parts {
		p.check(b)
	}
}

// movementOf is the data of a movement.
func movementOf(e *event.Recorded) (movement, error) {
	var payload struct{ Data movement }
	err := json.Unmarshal(e.Payload, &payload)
	return payload.Data, err
}

// foldBalances computes the rows of the projection from the log, up to a sequence.
func foldBalances(events []event.Recorded, through event.Sequence) map[string]balanceRow {
	out := map[string]balanceRow{}
	for i := range events {
		e := &events[i]
		if e.Sequence > through || e.Type != movedType {
			continue
		}
		m, _ := movementOf(e) // checkTills has read it
		row := out[m.Till]
		row.Balance, row.Moves, row.Sequence = row.Balance+m.Amount, row.Moves+1, e.Sequence
		out[m.Till] = row
	}
	return out
}

// checkTills requires that each decision was right at its place in the log.
func (w *world) checkTills(le ports.LegalEntity, events []event.Recorded) {
	balance, slips, receipts := map[string]int64{}, map[string]bool{}, 0
	for i := range events {
		e := &events[i]
		if e.Type != movedType {
			continue
		}
		m, err := movementOf(e)
		w.require(err == nil, "payloads", "%v", err)
		receipts++
		w.require(m.Receipt == fmt.Sprintf("R-%06d", receipts), "numbers have no gap", "%s: event %d has receipt %s, not %d", le.Code, e.Sequence, m.Receipt, receipts)
		w.require(m.Slip == "" || !slips[m.Slip], "a slip counts once", "%s: %s", le.Code, m.Slip)
		balance[m.Till] += m.Amount
		w.require(balance[m.Till] >= 0, "conditions are exact", "%s: till %s has %d after event %d", le.Code, m.Till, balance[m.Till], e.Sequence)
		slips[m.Slip] = true
	}
}

// checkIntents requires that an executed intent made events, as all of the till do, and that large
// amounts were approved.
func (w *world) checkIntents(b *books) {
	for id, o := range b.partitions.ByIntent() {
		in, err := w.database.Intents.Intent(context.Background(), slices.Concat(o.Made, o.About)[0].Partition, id)
		if err != nil {
			continue // the rules of all logs say so
		}
		w.require(in.Status != intent.Executed || len(o.Made) > 0, "intents are stored with their events", "%s is executed without events", id)
		if len(o.Made) > 0 {
			m, _ := movementOf(&o.Made[0])
			w.require(m.Amount < approvalFrom || len(in.Approvals) > 0, "large amounts are approved", "%s of %d", id, m.Amount)
		}
	}
}

// caughtUp requires that the active version of the projection has read all logs.
func (w *world) caughtUp(ctx context.Context) error {
	version, err := w.database.ProjectionVersions.ActiveProjection(ctx, balances)
	if err != nil {
		return err
	}
	read := w.positions(balances, version)
	heads, err := w.database.Events.PartitionHeads(ctx)
	if err != nil {
		return err
	}
	for _, le := range w.entities {
		if read[le.Partition] < heads[le.Partition].Sequence {
			return fmt.Errorf("version %d of the projection has read %d of %d events of %s", version, read[le.Partition], heads[le.Partition].Sequence, le.Code)
		}
	}
	return nil
}

// positions are the sequences that a version of a projection has read.
func (w *world) positions(name string, version int) map[event.PartitionID]event.Sequence {
	checkpoints, err := w.database.Projections.Checkpoints(context.Background(), name, version)
	w.require(err == nil, "projections", "%v", err)
	out := map[event.PartitionID]event.Sequence{}
	for _, c := range checkpoints {
		out[c.Partition] = c.Sequence
	}
	return out
}

// checkBalances compares the rows of every live version of the projection with a fresh fold.
func (w *world) checkBalances(b *books) {
	all, err := w.database.ProjectionVersions.ListProjections(context.Background())
	w.require(err == nil, "projections", "%v", err)
	for _, p := range all {
		if p.Name != balances || !p.Role.IsLive() {
			continue
		}
		checkpoints, err := w.database.Projections.Checkpoints(context.Background(), p.Name, p.Version)
		w.require(err == nil, "projections", "%v", err)
		for _, c := range checkpoints {
			want := foldBalances(b.partitions[c.Partition], c.Sequence)
			prefix := rowKey(p.Version, c.Partition, "")
			rows := w.database.ReadModels.Rows(balances, prefix)
			w.require(len(rows) == len(want), "a projection equals a fresh fold", "version %d of partition %d has %d rows, not %d", p.Version, c.Partition, len(rows), len(want))
			for _, row := range rows {
				till := row.Key[len(prefix):]
				got := row.Value.(*balanceRow)
				w.require(got.tillState == want[till].tillState && got.Sequence == want[till].Sequence, "a projection equals a fresh fold", "version %d of partition %d at %d: till %s is %v, not %v", p.Version, c.Partition, c.Sequence, till, *got, want[till])
			}
		}
	}
}

// verify runs the product's own verification of all logs, with the rows and keys that they explain.
func (w *world) verify() {
	reports, err := w.verifyOnce(context.Background())
	w.require(err == nil, "verification runs", "%v", err)
	for i := range reports {
		for _, f := range reports[i].Findings {
			w.require(false, "verification finds nothing", "%s: %v", reports[i].LegalEntity, f)
		}
	}
}

func (w *world) verifyOnce(ctx context.Context) ([]verify.EntityReport, error) {
	return verify.Run(ctx, w.database.Chains(), tenantID, nil, nil, verify.WithKeyStore(keyStoreAudit{w.keyStore.Erasures(), w.keyStore}), verify.OpenKeys(w.kms))
}

// recordedLater is how long a server may take to record what a call did that was cut off.
const recordedLater = 70 * time.Minute

// awaitRecords waits until the administrative log has what calls did that were cut off. Any server
// records that, so all others may stop.
func (w *world) awaitRecords(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recordedLater)
	defer cancel()
	recorder := w.nodes[w.random("recorder").IntN(len(w.nodes))]
	for {
		reports, err := w.verifyOnce(ctx)
		if err != nil || !slices.ContainsFunc(reports, func(r verify.EntityReport) bool { return len(r.Findings) > 0 }) {
			return // the check reports what is left
		}
		for _, n := range w.nodes {
			if n != recorder {
				n.shutDown()
			}
		}
		if ports.Sleep(ctx, 10*time.Minute) != nil {
			return
		}
	}
}

// keyStoreAudit is what a verification reads of the key store.
type keyStoreAudit struct {
	*memory.ErasureRegister
	keys *memory.KeyStore
}

// SubjectKeys implements verify.KeyStore.
func (a keyStoreAudit) SubjectKeys(ctx context.Context, ids []ports.SubjectKeyID) ([]ports.SubjectKey, error) {
	return a.keys.SubjectKeys(ctx, ids)
}

// KEKs implements verify.KeyStore.
func (a keyStoreAudit) KEKs(ctx context.Context, tenantID string) ([]ports.KEK, error) {
	return a.keys.Rotation().KEKs(ctx, tenantID)
}

package main

// mutant is a version of the product with one defect.
type mutant struct {
	name    string
	defect  string // what is broken
	from    string // where the defect comes from
	changes []change
}

// change replaces a text that occurs once in a file.
type change struct{ file, old, new string }

// Where mutants come from, other than the subject of the commit that fixed a defect of the past.
const (
	conformanceSuite = "conformance suite" // it has the same broken store
	promise          = "promise of the port or package"
)

const (
	appendFile      = "adapters/memory/append.go"
	projectionsFile = "adapters/memory/projections.go"
	deliveriesFile  = "adapters/memory/deliveries.go"
	publishersFile  = "adapters/memory/publishers.go"
	versionsFile    = "adapters/memory/projection_versions.go"
	attemptFile     = "application/pipeline/attempt.go"
	leasesFile      = "adapters/memory/leases.go"
	fetchFile       = "application/subscriptions/fetch.go"
)

var mutants = []mutant{
	// The store: appends.
	{"store ignores stream expectations", "an append checks no version of a stream", conformanceSuite, []change{
		{appendFile, "if !want.Expected.AllowsIn(state, from, actual) {", "if false && !want.Expected.AllowsIn(state, from, actual) {"},
	}},
	{"store allows duplicate business keys", "two events may hold one business key", conformanceSuite, []change{
		{appendFile, "\t\t\tif held {\n\t\t\t\treturn nil, concurrency.", "\t\t\tif false && held {\n\t\t\t\treturn nil, concurrency."},
	}},
	{"store forgets idempotency keys", "a repeated request is appended again", conformanceSuite, []change{
		{appendFile, "if !known || !now.Before(row.expiresAt) {", "if true || !known || !now.Before(row.expiresAt) {"},
	}},
	{"store burns numbers of refused appends", "a refused append uses up a number of its series", conformanceSuite, []change{
		{appendFile, "st.series[number.Series] = n + 1\n", "st.series[number.Series] = n + 1\n\t\t\tp.series[number.Series] = n + 1\n"},
	}},
	{"store lets the last writer of an intent win", "two decisions about one intent are both stored, which the ids of their events would refuse too", conformanceSuite, []change{
		{appendFile, "if err := p.checkIntent(r.Intent); err != nil {", "if err := error(nil); err != nil {"},
		{"application/pipeline/module.go", "b.EventIDs = []event.ID{module.DeriveID(row.ID, aboutEventIDBase+row.Revision)}", "b.EventIDs = nil"},
	}},
	{"store loses updates of intents", "the row of an intent does not change with its events", promise, []change{
		{appendFile, "p.intents[w.Intent.ID] = storedIntent(r.Partition, w, outcome)", "if _, known := p.intents[w.Intent.ID]; !known {\n\t\t\tp.intents[w.Intent.ID] = storedIntent(r.Partition, w, outcome)\n\t\t}"},
	}},
	{"store repeats versions in a batch", "two events of one batch have the same version of their stream", promise, []change{
		{appendFile, "versions[e.Stream] = version + 1\n", "versions[e.Stream] = version\n"},
	}},
	{"store takes recorded_at from the clock", "an append of a node whose clock is behind is recorded before earlier events", conformanceSuite, []change{
		{appendFile, "if recordedAt.Before(head.RecordedAt) {", "if false && recordedAt.Before(head.RecordedAt) {"},
	}},

	// The store: read models.
	{"store keeps rows of a failed batch", "rows are committed without the checkpoint", promise, []change{
		{projectionsFile, "if err != nil || !write {\n\t\ttx.close()\n", "if err != nil || !write {\n\t\ts.mu.Lock()\n\t\ttx.commit()\n\t\ts.mu.Unlock()\n"},
	}},
	{"store passes a failed batch", "the checkpoint moves though the handler failed", conformanceSuite, []change{
		{projectionsFile, "if err := h.Apply(ctx, tx, b); err != nil {\n\t\t\t\treturn false, err\n\t\t\t}", "_ = h.Apply(ctx, tx, b)"},
	}},
	{"store repeats the event before a batch", "a batch begins with the last event of the batch before", conformanceSuite, []change{
		{projectionsFile, "After: c.Sequence, Limit: a.Limit}", "After: max(c.Sequence, 1) - 1, Limit: a.Limit}"},
	}},
	{"store counts an event of a rebuild twice", "the checkpoint of a rebuilt version is one event behind its rows", promise, []change{
		{projectionsFile, "last := events[advanced-1]\n", "last := events[advanced-1]\n\t\tif a.Version > 1 && advanced > 1 {\n\t\t\tlast = events[advanced-2]\n\t\t}\n"},
	}},
	{"store does not fence projections", "a worker of an earlier term advances from a checkpoint that it read before it waited for the lock", conformanceSuite, []change{
		{projectionsFile, " || w.Lease != nil && s.term(w.Lease.LeaseResource, w.Lease.Holder) != w.Lease.Term", ""},
		{projectionsFile, "turn, err := s.readModels.acquire(ctx, a.LockWait)\n\tif err != nil {\n\t\treturn ports.Checkpoint{}, 0, err\n\t}\n", "s.mu.Lock()\n\tstale := s.checkpoint(checkpointKey{a.Projection, a.Version, a.Partition})\n\ts.mu.Unlock()\n\tturn, err := s.readModels.acquire(ctx, a.LockWait)\n\tif err != nil {\n\t\treturn ports.Checkpoint{}, 0, err\n\t}\n\ts.mu.Lock()\n\tif stale.Sequence > 0 {\n\t\ts.checkpoints[checkpointKey{a.Projection, a.Version, a.Partition}] = stale\n\t}\n\ts.mu.Unlock()\n"},
	}},
	{"store commits ended transactions", "a frozen node commits a batch after its transaction was ended and another node has gone on", promise, []change{
		{projectionsFile, "if err := s.readModels.check(turn); err != nil { //", "if err := error(nil); err != nil { //"},
	}},
	{"store keeps rows at a reset", "a reset reads all events into the rows that are there", promise, []change{
		{projectionsFile, "if err := h.Reset(ctx, tx, b); err != nil {", "if err := error(nil); err != nil {"},
		{projectionsFile, "b := ports.ProjectionBatch{Projection: o.Projection, Version: o.Version, Partition: o.Partition}\n", ""},
	}},
	{"store hides a reset", "a reset changes no revision, so the nodes do not notice it", conformanceSuite, []change{
		{projectionsFile, "ports.LetterDiscarded, o.By, o.Reason)\n\t\t\ts.bumpRevision(o)\n", "ports.LetterDiscarded, o.By, o.Reason)\n"},
	}},
	{"store switches to a version that lacks events", "a switch does not bring the new version up", conformanceSuite, []change{
		{versionsFile, "if w.Force {\n\t\treturn nil\n\t}\n\theads,", "if true || w.Force {\n\t\treturn nil\n\t}\n\theads,"},
	}},

	// The store: deliveries, publishers, keys, signals.
	{"store loses waiting messages", "messages that wait behind others are not stored", promise, []change{
		{deliveriesFile, "for _, m := range changed {\n", "for _, m := range changed {\n\t\tif m.State == subscription.Waiting {\n\t\t\tcontinue\n\t\t}\n"},
	}},
	{"store keeps acknowledged messages", "a message that is done stays open", promise, []change{
		{deliveriesFile, "delete(d.messages, n)\n", "_ = n\n"},
	}},
	{"store commits ended deliveries", "a frozen node commits a delivery after its transaction was ended and another node has gone on", promise, []change{
		{deliveriesFile, "if err := cmp.Or(ctx.Err(), d.lock.check(turn), tx.checkFailures()); err != nil {", "if err := error(nil); err != nil {"},
	}},
	{"store does not fence publishers", "a publisher of an earlier term moves the cursor, also back", conformanceSuite, []change{
		{publishersFile, "if c.Term > term {", "if false && c.Term > term {"},
		{publishersFile, "if !begun || c.Term != term {", "if !begun {"},
		{publishersFile, "if c.PublishedThrough != from || to <= from {", "if to <= from {"},
	}},
	{"store appends with fenced keys", "an append does not check the keys of its values", conformanceSuite, []change{
		{"adapters/memory/append_keys.go", "case k.State != shredding.KeyActive:", "case false && k.State != shredding.KeyActive:"},
		{"adapters/memory/append_keys.go", "case k.Active != wanted[i].version:", "case false && k.Active != wanted[i].version:"},
	}},
	{"store sees no node behind", "an erasure goes on while nodes have its keys in memory", promise, []change{
		{"adapters/memory/erasure_receipts.go", "if !r.at.Before(since) && r.generation < generation {", "if false && !r.at.Before(since) && r.generation < generation {"},
		{"adapters/memory/erasure.go", "to == shredding.ErasureEvicted && k.mayBeCached(e):", "false && k.mayBeCached(e):"},
	}},
	{"store holds leases for ever", "an expired lease of a dead node is not free", conformanceSuite, []change{
		{leasesFile, "if known && lease.Holder != holder && lease.ExpiresAt.After(now) {", "if known && lease.Holder != holder && lease.Holder != \"\" {"},
	}},
	{"store counts dead nodes", "a node that sends no heartbeat any more is preferred for work", conformanceSuite, []change{
		{leasesFile, "if seen.After(now.Add(-within)) {", "if true || seen.After(now.Add(-within)) {"},
	}},
	{"nothing wakes and nothing polls", "a node neither hears of new events nor looks for them", promise, []change{
		{"application/subscriptions/heads.go", "func(event.PartitionID) { w.Wake() }", "func(event.PartitionID) {}"},
		{"application/subscriptions/heads.go", "case <-poll.C:\n", "case <-time.After(1000 * time.Hour):\n"},
	}},

	// Intents.
	{"pipeline appends without expectations", "an intent is executed on a state that has changed since it was planned", promise, []change{
		{attemptFile, "streams: append(p.view.expectations(), p.plan.Streams...), conditions: append(", "streams: p.plan.Streams, conditions: append("},
	}},
	{"pipeline forgets idempotency keys", "a request's key is not given to the append", promise, []change{
		{attemptFile, "Idempotency: a.idempotency,\n", "\n"},
	}},
	{"pipeline refuses repeated requests", "a repeated request is refused because its first run changed the state", promise, []change{
		{attemptFile, "if a.idempotency != nil {\n\t\treplay, err :=", "if false && a.idempotency != nil {\n\t\treplay, err :="},
	}},
	{"pipeline executes an approval twice", "two approvals of one intent at the same time both execute it", promise, []change{
		{appendFile, "if err := p.checkIntent(r.Intent); err != nil {", "if err := error(nil); err != nil {"},
		{attemptFile, "ids[i] = module.EventID(a.stored.ID, i)", "ids[i] = a.service.IDs.NewID(time.Now())"},
		{"application/pipeline/module.go", "b.EventIDs = []event.ID{module.DeriveID(row.ID, aboutEventIDBase+row.Revision)}", "b.EventIDs = nil"},
		{"application/pipeline/approval.go", "if d.IdempotencyKey == \"\" {", "if true {"},
	}},
	{"pipeline executes a rejected intent", "an approval does not look whether the intent still waits", promise, []change{
		{"application/pipeline/approval.go", "if stored.Status != intent.PendingApproval {", "if stored.Status != intent.PendingApproval && stored.Status != intent.Rejected {"},
	}},
	{"pipeline executes without approval", "an intent that needs an approval is executed at once", promise, []change{
		{attemptFile, "if len(unmetNeeds(p.answer.Needs, a.stored.Approvals)) > 0 {\n\t\treturn a.parkForApproval(ctx, p)", "if false {\n\t\treturn a.parkForApproval(ctx, p)"},
	}},
	{"pipeline refuses by cached states", "a refusal that was planned on a cached state is not planned again on fresh state", promise, []change{
		{attemptFile, "if p.view != nil && p.view.usedCache && freshStateCouldChange(err) {", "if p.view != nil && p.view.usedCache && isStalePlan(err) {"},
	}},

	// Personal data.
	{"vault ignores evictions", "a node reports that it has evicted keys, and keeps them", promise, []change{
		{"application/vault/read.go", "evicted = v.cache.drop(e, true)", "evicted = 0"},
		{"application/vault/read.go", "evicted := v.cache.clear()", "evicted := 0"},
	}},
	{"erasure does not wait for nodes", "an erasure is certified while a node may still open values", promise, []change{
		{"application/erasure/steps.go", "if behind > 0 {", "if false && behind > 0 {"},
		{"adapters/memory/erasure.go", "to == shredding.ErasureEvicted && k.mayBeCached(e):", "false && k.mayBeCached(e):"},
	}},
	{"rotation ends a key that is in use", "an epoch is closed before all keys are wrapped again", promise, []change{
		{"application/keyrotation/epoch.go", "if err != nil || len(page) == 0 {\n\t\t\treturn done, err", "if true {\n\t\t\treturn done, err"},
		{"application/keyrotation/epoch.go", "if left > 0 {", "if false && left > 0 {"},
		{"adapters/memory/keyrotation.go", "&& k.count(tenantID, epoch) > 0:", "&& false:"},
		{"application/keyrotation/epoch.go", "if err := s.requireUnused(ctx, k); err != nil {", "if err := error(nil); err != nil {"},
	}},

	{"erasure passes holds", "a legal hold stops no erasure", promise, []change{
		{"application/erasure/preview.go", "if len(holds) > 0 {", "if false && len(holds) > 0 {"},
		{"adapters/memory/erasure.go", "\t\tif err := k.checkHolds(e); err != nil {\n\t\t\treturn ports.ErasureRequest{}, err", "\t\tif err := error(nil); err != nil {\n\t\t\treturn ports.ErasureRequest{}, err"},
		{"adapters/memory/erasure.go", "\t\t\tif err := k.checkHolds(e); err != nil {\n\t\t\t\treturn ports.Destruction{}", "\t\t\tif err := error(nil); err != nil {\n\t\t\t\treturn ports.Destruction{}"},
	}},
	{"verification ends twice", "a run that was cancelled or interrupted records its results all the same", promise, []change{
		{"application/verify/jobs/run.go", "concurrency.StreamExpectation{Stream: streamOf(j.id), Expected: concurrency.Exactly(version)}", "concurrency.StreamExpectation{Stream: streamOf(j.id), Expected: concurrency.StreamExists()}"},
		{"application/verify/jobs/run.go", "j.mu.Lock()\n\tversion := j.version\n\tj.mu.Unlock()\n\terr := j.service", "err := j.service"},
	}},
	{"search takes no fixed end", "later pages have events that were recorded after the first", promise, []change{
		{"application/query/search.go", "q.After, q.Until = pos.After, pos.Until", "q.After = pos.After"},
	}},
	{"reader records nothing", "an auditor is shown values that the record of reads lacks", promise, []change{
		{"application/disclosure/disclosure.go", "return r.service.Record(ctx, r.principal, r.purpose, accesses...)", "return nil"},
	}},
	{"grants never end", "an auditor reads by a grant that was ended or is over", promise, []change{
		{"domain/disclosure/grant.go", "return g.EndedBy == \"\" && now.Before(g.Until)", "return true || g.EndedBy == \"\" && now.Before(g.Until)"},
	}},
	{"redaction keeps rows", "rows of read models show what was redacted", promise, []change{
		{"application/redaction/worker.go", "left, err := c.ReadModels.RecomputeReaders(ctx, e.Type, le, e.Stream, passed)\n", "left, err := []string(nil), error(nil)\n\t_, _, _ = e, le, passed\n"},
	}},
	{"intent repeats what was redacted", "the payload of an intent shows the values that were redacted in its events", promise, []change{
		{"application/pipeline/approval.go", "out.Redacted, err = s.Intents.HasRedactions(ctx, &stored)", "_, err = s.Intents.HasRedactions(ctx, &stored)"},
	}},

	// Event types and projections of tenants.
	{"reader does not know new versions", "a node reads events of a version that it does not know yet as they are", promise, []change{
		{"application/upcasting/upcasting.go", "if s.versions.HasVersion(tenantID, events[i].Type, events[i].SchemaVersion) ||", "if true || s.versions.HasVersion(tenantID, events[i].Type, events[i].SchemaVersion) ||"},
	}},
	{"reader skips versions", "readers apply only the upcaster of the newest version", promise, []change{
		{"application/upcasting/upcasting.go", "for _, step := range steps {\n\t\tif step.Upcast", "if found == nil {\n\t\tsteps = steps[len(steps)-1:]\n\t}\n\tfor _, step := range steps {\n\t\tif step.Upcast"},
	}},
	{"store keeps rows that a tenant's program removed", "a row whose state is null stays", promise, []change{
		{"adapters/memory/projection_rows.go", "for _, key := range gone {", "for _, key := range gone[:0] {"},
	}},

	// Subscriptions and webhooks.
	{"subscription ignores the order of keys", "a message is delivered while an earlier one of its key is not done", promise, []change{
		{fetchFile, "Key: f.sub.Settings.KeyOf(e)}", "Key: subscription.Key{}}"},
	}},
	{"subscription ends leases too early", "a message is delivered again while its consumer works", promise, []change{
		{fetchFile, "subscription.NewPartialWindow(f.sub.Settings, tx.Now(), delivered)", "subscription.NewPartialWindow(f.sub.Settings, tx.Now().Add(3*time.Second), delivered)"},
		{fetchFile, "import (\n\t\"context\"\n", "import (\n\t\"context\"\n\t\"time\"\n"},
	}},
	{"subscription skips what it has no room for", "events that a poll read and did not deliver are lost", promise, []change{
		{fetchFile, "if count < len(candidates) {", "if false && count < len(candidates) {"},
	}},
	{"webhook takes an error for success", "an answer of 500 ends a message", promise, []change{
		{"application/webhooks/runner.go", "case a.Status >= 200 && a.Status < 300:", "case a.Status >= 200:"},
	}},
	{"webhook breaks off deliveries", "a delivery ends when its endpoint or subscription is changed", "Let deliveries to webhooks end when their subscription changes", []change{
		{"application/webhooks/dispatcher.go", "r.drain() // deliveries", "r.stop() // deliveries"},
	}},

	// Publishers and feeds.
	{"publisher passes unstored messages", "the cursor moves over messages that the broker did not store", promise, []change{
		{"application/fanout/batch.go", "to := events[stored-1].Sequence", "to := events[len(events)-1].Sequence"},
	}},
	{"publisher goes on after a failure", "the message after the one that failed is sent", promise, []change{
		{"application/fanout/batch.go", "case fault.KindOf(err) != fault.TooLarge || messages[stored].Reference:\n\t\t\treturn stored, duplicates, err", "case fault.KindOf(err) != fault.TooLarge || messages[stored].Reference:\n\t\t\tstored++\n\t\t\tcontinue"},
	}},
	{"feed moves its cursor too early", "a reader gets the cursor of events before the events", promise, []change{
		{"application/live/live.go", "if err := r.feed.Sink.Events(ctx, events, cursors); err != nil {", "if err := r.feed.Sink.Heartbeat(ctx, cursors[len(cursors)-1]); err != nil {\n\t\t\t\treturn delivered, err\n\t\t\t}\n\t\t\tif err := r.feed.Sink.Events(ctx, events, cursors); err != nil {"},
	}},
	{"feed loses the end of a page", "the last event of a page is not delivered", conformanceSuite, []change{
		{"application/query/follow.go", "reached = markOf(&found[len(found)-1])\n\t\tfound, err = a.filter(ctx, found)", "reached = markOf(&found[len(found)-1])\n\t\tif len(found) > 2 {\n\t\t\tfound = found[:len(found)-1]\n\t\t}\n\t\tfound, err = a.filter(ctx, found)"},
	}},
	{"feed misses a change while it reads", "the channel of growth is taken after the read", promise, []change{
		{"application/live/live.go", "if err != nil || ctx.Err() != nil {\n\t\t\treturn err\n\t\t}\n\t\tif r.state == CatchingUp && delivered", "if err != nil || ctx.Err() != nil {\n\t\t\treturn err\n\t\t}\n\t\t_, grown = r.service.config.Heads.Heads()\n\t\tif r.state == CatchingUp && delivered"},
	}},
	{"feed reads a stale tail", "the cached end of a log counts as the end of the log", promise, []change{
		{"application/query/tail_cache.go", "if i+1 < count {\n", "if true || i+1 < count {\n"},
	}},
	{"heads announce no growth", "those who wait for new events are not woken", promise, []change{
		{"application/subscriptions/heads.go", "close(w.changed)\n\tw.changed = make(chan struct{})\n", "\n"},
	}},
}

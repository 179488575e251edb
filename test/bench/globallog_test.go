//go:build bench

package bench

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	order "github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// pacedEvents is the rate at which events must reach the global log within a second.
const pacedEvents = 5000

// watched runs f beside the head watcher of a node, and beside its sequencer.
func (e *engine) watched(t *testing.T, sequences bool, f func()) {
	t.Helper()
	heads, err := subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: e.store.Events, WakeUps: e.store.Events, Clock: system.Clock{}, Poll: 500 * time.Millisecond})
	require.NoError(t, err)
	sequencer := globallog.New(globallog.Config{
		Log: e.store.GlobalLog, Leases: e.store.Leases, Heads: heads, Node: "bench", Logger: slog.New(slog.DiscardHandler), Observer: unobserved{},
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { heads.Run(ctx) })
	if sequences {
		running.Go(func() { sequencer.Run(ctx) })
	}
	defer running.Wait()
	defer stop()
	f()
}

type unobserved struct{}

func (unobserved) GlobalLogExtended(int)                 {}
func (unobserved) GlobalLogWindow(uint64, time.Duration) {}

// extend takes everything into the global log and returns how much it was.
func (e *engine) extend(t *testing.T) (events int) {
	t.Helper()
	var partitions []event.PartitionID
	for _, le := range e.entities {
		partitions = append(partitions, le.Partition)
	}
	for {
		ranges, err := e.store.GlobalLog.ExtendGlobalLog(t.Context(), partitions, 8192/len(partitions))
		require.NoError(t, err)
		if len(ranges) == 0 {
			return events
		}
		for _, r := range ranges {
			events += int(r.Count)
		}
	}
}

// window measures how long events that were appended at a steady rate are not in the global log.
func (e *engine) window(t *testing.T, period time.Duration) sample {
	t.Helper()
	const callers, batch = 10, 50
	type appended struct {
		p  event.PartitionID
		s  event.Sequence
		at time.Time
	}
	var mu sync.Mutex
	var waiting []appended
	var waits []time.Duration
	var s sample
	e.watched(t, true, func() {
		var done atomic.Bool
		var watching sync.WaitGroup
		watching.Go(func() {
			for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
				ends, err := e.store.GlobalLog.GlobalEnds(t.Context(), order.End)
				require.NoError(t, err)
				now := time.Now()
				mu.Lock()
				waiting = slices.DeleteFunc(waiting, func(a appended) bool {
					if a.s > ends[a.p] {
						return false
					}
					waits = append(waits, now.Sub(a.at))
					return true
				})
				isEnd := done.Load() && len(waiting) == 0
				mu.Unlock()
				if isEnd {
					return
				}
			}
		})
		pace := time.NewTicker(time.Second * batch / pacedEvents)
		defer pace.Stop()
		s = drive(t, callers, period, func(ctx context.Context, caller int) (int, error) {
			select {
			case <-pace.C:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			le := e.entities[caller%len(e.entities)]
			receipt, err := e.store.Appender.Append(ctx, e.invoices.request(le, batch))
			if err == nil {
				mu.Lock()
				waiting = append(waiting, appended{le.Partition, receipt.Events[batch-1].Sequence, time.Now()})
				mu.Unlock()
			}
			return batch, err
		})
		done.Store(true)
		watching.Wait()
	})
	slices.Sort(waits)
	s.latencies = waits
	return s
}

// reportProofs measures a checkpoint, and proofs of events under it.
func (e *engine) reportProofs(t *testing.T, o options, figures *table) {
	ctx := t.Context()
	read := func(level int, from, n uint64) ([]event.Hash, error) {
		return e.store.GlobalLog.GlobalHashes(ctx, level, from, n)
	}
	size, err := e.store.GlobalLog.GlobalSize(ctx)
	require.NoError(t, err)
	earlier := order.Checkpoint{Origin: order.Origin(logName, 1), Size: size / 2}
	earlier.Root, err = order.Root(earlier.Size, read)
	require.NoError(t, err)
	signer, err := signednote.NewSigner(earlier.Origin, "key", testkit.NewSigningKey(0))
	require.NoError(t, err)
	key, err := signer.VerifierKey(ctx)
	require.NoError(t, err)
	next := order.Checkpoint{Origin: earlier.Origin, Size: size}
	checkpoint := drive(t, 1, o.period, func(context.Context, int) (int, error) {
		if next.Root, err = order.Root(size, read); err != nil {
			return 0, err
		}
		proof, err := order.ProveConsistency(size, earlier.Size, read)
		if err != nil {
			return 0, err
		}
		return 1, order.CheckConsistency(proof, next, earlier)
	})
	note, err := signer.SignNote(ctx, next.Text())
	require.NoError(t, err)
	_, err = e.store.GlobalLog.RecordCheckpoint(ctx, ports.SignedCheckpoint{Incarnation: 1, Size: size, Root: next.Root, Note: note})
	require.NoError(t, err)
	prover, le := globallog.NewProver(e.store.GlobalLog), e.entities[0]
	head, err := e.store.Chains().Head(ctx, le.Partition)
	require.NoError(t, err)
	prove := func(ctx context.Context, sequence event.Sequence) (order.Proof, error) {
		place := ports.EventPosition{Partition: le.Partition, Sequence: sequence}
		evidence, err := verify.EvidenceOf(ctx, e.store.Chains(), head, place)
		if err != nil {
			return order.Proof{}, err
		}
		return prover.Prove(ctx, place, evidence)
	}
	var turn atomic.Uint64
	proofs := drive(t, 4, o.period, func(ctx context.Context, _ int) (int, error) {
		_, err := prove(ctx, event.Sequence(1+turn.Add(7919)%5000))
		return 1, err
	})
	one, err := prove(ctx, 1000)
	require.NoError(t, err)
	text := one.Encode()
	checks := drive(t, 2, o.period, func(context.Context, int) (int, error) {
		parsed, err := order.ParseProof(text)
		if err != nil {
			return 0, err
		}
		found, err := verify.OpenEvidence(parsed.Extra)
		if err != nil {
			return 0, err
		}
		_, _, err = globallog.VerifyProof(parsed, found.Checksum, signednote.Opener{}, key)
		return 1, err
	})
	figures.addText("   a checkpoint, without the signature", "p50 %s of %d events", latency(checkpoint.quantile(0.5)), size)
	figures.addText("   proofs with their events", "%s; %d bytes", perSecond(proofs.rate(), "proofs"), len(text))
	figures.addText("   proofs checked offline", "%s", perSecond(checks.rate(), "proofs"))
}

// reportGlobalLog measures what the global log costs appends and reads, and how far it is behind.
func reportGlobalLog(t *testing.T, o options, cluster *embeddedpg.Cluster, figures *table) {
	dsn := newDatabase(t, cluster, "globallog", func(ctx context.Context, dsn string) error { return migrate.Run(ctx, dsn, nil) })
	e := openEngine(t, dsn, 32)
	execute(t, dsn, "CHECKPOINT")
	beside := func(sequences bool, measure func(time.Duration) sample) func(time.Duration) sample {
		return func(period time.Duration) (s sample) {
			e.extend(t) // what was appended without the sequencer
			e.watched(t, sequences, func() { s = measure(period) })
			return s
		}
	}
	appendSingles, appendBatches := e.measure(t, appendCallers, 1, 1), e.measure(t, batchCallers, batchEvents, 1)
	single := &variant{name: "64 callers, 1 partition", measure: beside(false, appendSingles)}
	singleBeside := &variant{name: "64 callers, 1 partition, beside the sequencer", measure: beside(true, appendSingles)}
	batches := &variant{name: "batches of 100, 8 callers, 1 partition", measure: beside(false, appendBatches)}
	batchesBeside := &variant{name: "batches of 100, beside the sequencer", measure: beside(true, appendBatches)}
	takeTurns(t, o, newStatistics(t, cluster, o), single, singleBeside, batches, batchesBeside)
	figures.addText("Global log: without it, "+single.name, "%s", perSecond(single.rate(), "events"))
	figures.addRate("   "+singleBeside.name, singleBeside.rate(), singleBeside.ratio(single), "without", 0.97)
	figures.addRate("   "+batchesBeside.name, batchesBeside.rate(), batchesBeside.ratio(batches), "without", 0.97)

	e.measure(t, batchCallers, batchEvents, 32)(o.period)
	begun := time.Now()
	events := e.extend(t)
	figures.addText("   an extension of what is there", "%s", perSecond(float64(events)/time.Since(begun).Seconds(), "events"))
	window := e.window(t, 2*o.period)
	figures.addText("   window at a steady rate", "%s; p50 %s", perSecond(window.rate(), "events"), latency(window.quantile(0.5)))
	figures.addLimit("   window p99", window.quantile(0.99), time.Second)
	begun = time.Now()
	report, err := verify.GlobalLog(t.Context(), e.store.GlobalLog, verify.Anchors{}, nil)
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	figures.addText("   verification", "%s", perSecond(float64(report.Size)/time.Since(begun).Seconds(), "events"))

	e.reportProofs(t, o, figures)

	read := func(positions bool) func(time.Duration) sample {
		return func(period time.Duration) sample {
			return drive(t, 4, period, func(ctx context.Context, caller int) (int, error) {
				le := e.entities[caller]
				page, err := e.store.Events.Events(ctx, ports.EventQuery{Partition: le.Partition, Direction: ports.Forward, From: 1, Until: 100, Limit: 100})
				if err != nil || !positions {
					return len(page), err
				}
				of := make([]ports.EventPosition, len(page))
				for i := range page {
					of[i] = ports.EventPosition{Partition: le.Partition, Sequence: page[i].Sequence}
				}
				found, err := e.store.GlobalLog.GlobalPositions(ctx, of)
				if err == nil {
					require.Len(t, found, len(page))
				}
				return len(page), err
			})
		}
	}
	without := &variant{name: "pages of 100 events", measure: read(false)}
	with := &variant{name: "pages of 100 events with positions", measure: read(true)}
	takeTurns(t, o, newStatistics(t, cluster, o), without, with)
	figures.addText("   "+without.name, "%s", perSecond(without.rate(), "events"))
	figures.addComparison("   "+with.name, with.rate(), with.ratio(without), "without")
}

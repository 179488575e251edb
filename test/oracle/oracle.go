// Package oracle judges what a run has left behind: the logs, the rows of intents, and what clients
// and receivers were told. It reads ports, so that the simulation in memory and the drills on
// PostgreSQL are held to the same rules.
package oracle

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// Require reports a violation of a rule unless it holds, and returns whether it holds. Any number of
// goroutines may call it.
type Require func(holds bool, rule, format string, values ...any) bool

// violationsShown bounds the violations of one rule that a test reports.
const violationsShown = 3

// For returns a Require whose violations fail a test.
func For(t *testing.T) Require {
	var mu sync.Mutex
	broken := map[string]int{}
	return func(holds bool, rule, format string, values ...any) bool {
		t.Helper()
		if !holds {
			mu.Lock()
			defer mu.Unlock()
			if broken[rule]++; broken[rule] <= violationsShown {
				t.Errorf(rule+": "+format, values...)
			}
		}
		return holds
	}
}

// Books are the logs, by partition. Event n is at place n-1.
type Books map[event.PartitionID][]event.Recorded

// Log is what books are read from.
type Log interface {
	ports.HeadReader
	Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error)
}

// pageSize bounds one read of a log.
const pageSize = 5000

// Read reads all logs.
func Read(ctx context.Context, from Log) (Books, error) {
	heads, err := from.PartitionHeads(ctx)
	b := Books{}
	for p := range heads {
		for q := (ports.EventQuery{Partition: p, Limit: pageSize}); err == nil; {
			var page []event.Recorded
			page, err = from.Events(ctx, q)
			b[p] = append(b[p], page...)
			if len(page) < pageSize {
				break
			}
			q.After = page[pageSize-1].Sequence
		}
	}
	return b, err
}

// Event returns the event at a sequence, nil if there is none.
func (b Books) Event(p event.PartitionID, n event.Sequence) *event.Recorded {
	if events := b[p]; n >= 1 && int(n) <= len(events) {
		return &events[n-1]
	}
	return nil
}

// OfIntent are the events of an intent.
type OfIntent struct {
	Made  []event.Recorded // by its execution
	About []event.Recorded // by the pipeline: submitted, approved, rejected
}

// ByIntent returns the events of each intent.
func (b Books) ByIntent() map[event.ID]OfIntent {
	out := map[event.ID]OfIntent{}
	for _, events := range b {
		for _, e := range events {
			if e.IntentID == (event.ID{}) {
				continue
			}
			o := out[e.IntentID]
			if intent.IsAbout(e.Type) {
				o.About = append(o.About, e)
			} else {
				o.Made = append(o.Made, e)
			}
			out[e.IntentID] = o
		}
	}
	return out
}

// Chains requires logs without gaps whose checksums follow from each other.
func (r Require) Chains(logName string, b Books) {
	for p, events := range b {
		previous := event.GenesisChecksum(logName, p)
		versions, ids := map[event.StreamID]event.Version{}, map[event.ID]bool{}
		for i := range events {
			e := &events[i]
			r(e.Sequence == event.Sequence(i+1), "sequences have no gap", "partition %d has sequence %d at place %d", p, e.Sequence, i+1)
			sum, _ := e.ChainChecksum(previous, nil)
			r(sum == e.Checksum, "the chain is sound", "event %d of partition %d has another checksum", e.Sequence, p)
			r(len(e.Redactions) > 0 || event.HashPayload(e.Salt, e.Payload) == e.PayloadHash, "the chain is sound", "event %d of partition %d has another payload", e.Sequence, p)
			versions[e.Stream]++
			r(e.StreamVersion == versions[e.Stream], "versions have no gap", "event %d of partition %d has version %d of %s, not %d", e.Sequence, p, e.StreamVersion, e.Stream, versions[e.Stream])
			r(!ids[e.ID], "an id is of one event", "%s twice", e.ID)
			r(i == 0 || !e.RecordedAt.Before(events[i-1].RecordedAt), "time does not go back", "event %d of partition %d", e.Sequence, p)
			ids[e.ID], previous = true, e.Checksum
		}
	}
}

// IntentRows lists the rows of intents.
type IntentRows interface {
	ListIntents(ctx context.Context, q ports.IntentQuery) ([]intent.Intent, error)
}

// Intents requires that each intent with events has a row that explains them, and each executed one
// the events of its row.
func (r Require) Intents(ctx context.Context, from IntentRows, b Books) {
	made := b.ByIntent()
	for p := range b {
		for q := (ports.IntentQuery{Partition: p, Limit: pageSize}); ; {
			page, err := from.ListIntents(ctx, q)
			if !r(err == nil, "intents are stored with their events", "partition %d: %v", p, err) {
				return
			}
			for i := range page {
				in := &page[i]
				r.intent(in, made[in.ID])
				delete(made, in.ID)
			}
			if len(page) < pageSize {
				break
			}
			q.After = page[pageSize-1].ID
		}
	}
	for id := range made {
		r(false, "intents are stored with their events", "%s has no row", id)
	}
}

func (r Require) intent(in *intent.Intent, o OfIntent) {
	made := in.EventCount // 0 where there was nothing to do
	if in.Status != intent.Executed {
		made = 0
	}
	r(len(o.Made) == made, "executed once", "%s is %s with %d events, not %d", in.ID, in.Status, len(o.Made), made)
	for _, e := range slices.Concat(o.Made, o.About) {
		r(e.Partition == in.Partition, "intents are stored with their events", "%s of partition %d has an event in partition %d", in.ID, in.Partition, e.Partition)
		r(e.Type != intent.RejectedEvent || len(o.Made) == 0, "a rejected intent is not executed", "%s has %d events", in.ID, len(o.Made))
	}
}

// Answers are what a client was told about its requests with one key.
type Answers struct {
	Key       string
	Partition event.PartitionID
	Intents   map[event.ID]bool     // that answers named
	Events    []ports.AppendedEvent // that an answer confirmed
}

// Confirmed requires that what clients were told is in the log, once: a key has one intent, an intent
// one key. Answers over HTTP have no checksum and no version, which are not compared then.
func (r Require) Confirmed(b Books, answers []Answers) {
	byIntent, keys := b.ByIntent(), map[event.ID]string{}
	for _, a := range answers {
		r(len(a.Intents) <= 1, "one key, one intent", "key %s has the intents %v", a.Key, a.Intents)
		for id := range a.Intents {
			other, taken := keys[id]
			r(!taken || other == a.Key, "one intent, one key", "intent %s answers %s and %s", id, a.Key, other)
			keys[id] = a.Key
			r(len(a.Events) == 0 || len(byIntent[id].Made) == len(a.Events), "executed once", "intent %s of key %s has %d events and confirmed %d", id, a.Key, len(byIntent[id].Made), len(a.Events))
		}
		for _, e := range a.Events {
			stored := b.Event(a.Partition, e.Sequence)
			r(stored != nil && stored.ID == e.ID && (e.StreamVersion == 0 || stored.Checksum == e.Checksum && stored.StreamVersion == e.StreamVersion),
				"nothing confirmed is lost", "event %s of key %s is not at %d", e.ID, a.Key, e.Sequence)
		}
	}
}

// Package blindindex finds persons by name, e-mail address or telephone number, although these
// are sealed: by keyed hashes of their normalized terms.
//
// An Index reads the logs in the background, opens the values of searchable members, of events and of
// intents that wait, and stores their hashes. It answers searches with the ids of persons and the places of the values, never with
// values. The erasure of a person deletes their hashes, and a new index cannot have them: their
// values do not open.
package blindindex

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/sharing"
	"github.com/erpbackbone/backbone/domain/blindindex"
	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Log reads the logs: ports.EventReader.
type Log interface {
	Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error)
	Heads(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]ports.Head, error)
}

// Intents reads stored intents: ports.IntentReader.
type Intents interface {
	Intent(ctx context.Context, p event.PartitionID, id event.ID) (intent.Intent, error)
}

// Changes tells when a log has grown: subscriptions.HeadWatcher.
type Changes interface {
	Heads() (map[event.PartitionID]ports.Head, <-chan struct{})
}

// Types lists the registered event types: ports.EventTypes.
type Types interface {
	EventTypes(ctx context.Context, tenantID string) (types []eventtype.Registration, generation int64, err error)
	EventTypeGenerations(ctx context.Context) (map[string]int64, error)
}

// Secrets derives the keys of the hashes: vault.Vault.
type Secrets interface {
	Derive(ctx context.Context, tenantID, purpose, label string) (shredding.Secret, error)
}

// Accesses records searches: disclosure.Service.
type Accesses interface {
	Record(ctx context.Context, p ports.Principal, why disclosure.Purpose, accesses ...disclosure.Access) error
}

// Cursors signs the cursors of lists: query.CursorSealer.
type Cursors interface {
	SealText(tenantID string, digest []byte, text string) string
	OpenText(cursor, tenantID string, digest []byte) (string, error)
}

// Config is what an Index needs; all of it is required.
type Config struct {
	Store     ports.BlindIndex
	Log       Log
	Intents   Intents
	Changes   Changes
	Entities  ports.LegalEntities
	Types     Types
	Manifests module.Manifests // of intents
	Opener    module.Opener
	Secrets   Secrets
	Accesses  Accesses
	Cursors   Cursors
	Leases    ports.Leases
	Node      string // unique among the nodes
	Clock     ports.Clock
	Logger    *slog.Logger
	Limits    Limits
}

// Limits bound an Index; all are required.
type Limits struct {
	Interval time.Duration // between two looks at logs that grow
	Renew    time.Duration // of the lease under which one node reads the logs
	Batch    int           // events that are read at once
	Bytes    int           // of their payloads, and of the sealed values that are opened at once, unless a single event or intent has more
}

// Index builds the index and searches it.
type Index struct {
	Config
	member *sharing.Member

	mu    sync.Mutex
	types map[string]searchedTypes // by tenant; "" are the built-in types
}

// searchedTypes are the types of a registry with searchable values. The manifests are those of its
// generation: a version gets further personal members by an amendment.
type searchedTypes struct {
	generation int64
	names      []string
	manifests  map[typeVersion]*shredding.Manifest
}

type typeVersion struct {
	name    string
	version uint32
}

// searched are the searchedTypes that may be in the logs of a tenant.
//
// Among their names are the types of the events about intents with values that stand in no other event.
// The values of other executed ones are in their events, and refused ones have none.
type searched []searchedTypes

func (s searched) names() []string {
	names := []string{intent.Waiting, intent.ExecutedEmpty}
	for _, types := range s {
		names = append(names, types.names...)
	}
	return names
}

// manifest is nil for a version without searchable values.
func (s searched) manifest(name string, version uint32) *shredding.Manifest {
	for _, types := range s {
		if m := types.manifests[typeVersion{name, version}]; m != nil {
			return m
		}
	}
	return nil
}

// New makes an Index.
func New(c Config) (*Index, error) {
	x := &Index{Config: c, types: map[string]searchedTypes{}}
	x.member = sharing.New(sharing.Config{Leases: c.Leases, Work: "blind-index", Holder: c.Node, TTL: 3 * c.Limits.Renew, Now: c.Clock.Now, Logger: c.Logger})
	return x, fault.RequirePositive("blindindex.Limits", c.Limits)
}

// work is the resource of the lease. It only saves work: the position of each log lets one node through.
var work = ports.LeaseResource{Name: "blind-index"}

// Run reads the logs as they grow until ctx ends, on one of the nodes.
func (x *Index) Run(ctx context.Context) {
	renew := time.NewTicker(x.Limits.Renew)
	defer renew.Stop()
	due := true
	for {
		_, changed := x.Changes.Heads()
		err := error(nil)
		if due {
			_, err = x.member.Renew(ctx, []ports.LeaseResource{work}, nil)
		}
		if _, _, held := x.member.Lease(work); err == nil && held {
			err = x.RunOnce(ctx)
		}
		if err != nil && ctx.Err() == nil {
			x.Logger.WarnContext(ctx, "the index of personal data could not be moved on; it will be tried again", "code", fault.CodeOf(err))
		}
		if due = ports.TryReceive(renew.C); !due { // before logs that have grown, which can wait
			select {
			case <-ctx.Done():
			case <-changed:
				_ = ports.Sleep(ctx, x.Limits.Interval) // ends early only with ctx
			case <-renew.C:
				due = true
			}
		}
		if ctx.Err() != nil {
			x.member.Leave(ctx)
			return
		}
	}
}

// RunOnce reads all logs to their heads. A log that fails does not stop the others.
func (x *Index) RunOnce(ctx context.Context) error {
	logs, err := x.Entities.Partitions(ctx, "")
	if err != nil {
		return err
	}
	positions, heads, err := x.progress(ctx, logs)
	if err != nil {
		return err
	}
	// After the heads, so that the types of all events up to them are known, as they were amended before.
	generations, err := x.Types.EventTypeGenerations(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, log := range logs {
		reached, err := x.follow(ctx, log, positions[log.Partition], heads[log.Partition].Sequence, generations)
		if err != nil && fault.CodeOf(err) != blindindex.CodeMoved && ctx.Err() == nil { // another node has read on
			x.Logger.WarnContext(ctx, "the index of personal data stays behind in a log",
				"tenant", log.TenantID, "partition", uint32(log.Partition), "sequence", uint64(reached), "code", fault.CodeOf(err))
			failed = err
		}
	}
	return cmp.Or(failed, ctx.Err())
}

// follow reads a log from a position to its head, and returns how far it came.
func (x *Index) follow(ctx context.Context, log ports.LegalEntity, at ports.BlindIndexPosition, head event.Sequence, generations map[string]int64) (event.Sequence, error) {
	key, err := x.key(ctx, log.TenantID)
	if err != nil {
		return at.Sequence, err
	}
	if at.Revision == 0 || at.Key != key {
		if at, err = x.Store.BeginBlindIndex(ctx, log.Partition, at, key); err != nil {
			return at.Sequence, err
		}
	}
	if at.Sequence >= head {
		return at.Sequence, nil
	}
	types, err := x.searched(ctx, log.TenantID, generations)
	if err != nil {
		return at.Sequence, err
	}
	names := types.names()
	advance := func(through event.Sequence, entries []blindindex.Entry) error {
		next, err := x.Store.AdvanceBlindIndex(ctx, log.Partition, at, through, entries)
		if err == nil {
			at = next
		}
		return err
	}
	for at.Sequence < head && ctx.Err() == nil {
		found, err := x.Log.Events(ctx, ports.EventQuery{Partition: log.Partition, Types: names, After: at.Sequence, Until: head, Limit: x.Limits.Batch, Bytes: x.Limits.Bytes})
		if err != nil {
			return at.Sequence, err
		}
		through := head
		if len(found) > 0 {
			through = found[len(found)-1].Sequence
		}
		entries, err := x.entries(ctx, log, types, found, advance)
		if err != nil {
			return at.Sequence, err
		}
		if err := advance(through, entries); err != nil {
			return at.Sequence, err
		}
	}
	return at.Sequence, ctx.Err()
}

// progress reads how far the index has read logs, and how far it could.
func (x *Index) progress(ctx context.Context, logs []ports.LegalEntity) (positions map[event.PartitionID]ports.BlindIndexPosition, heads map[event.PartitionID]ports.Head, err error) {
	partitions := make([]event.PartitionID, len(logs))
	for i, log := range logs {
		partitions[i] = log.Partition
	}
	if heads, err = x.Log.Heads(ctx, partitions); err == nil {
		positions, err = x.Store.BlindIndexPositions(ctx, partitions)
	}
	return positions, heads, err
}

// searched lists the types with searchable values that may be in the logs of a tenant, of these
// generations.
func (x *Index) searched(ctx context.Context, tenantID string, generations map[string]int64) (all searched, err error) {
	for _, registry := range []string{"", tenantID} {
		x.mu.Lock()
		known, isKnown := x.types[registry]
		x.mu.Unlock()
		if !isKnown || known.generation != generations[registry] {
			types, _, err := x.Types.EventTypes(ctx, registry)
			if err != nil {
				return nil, err
			}
			if known, err = searchedOf(types); err != nil {
				return nil, err
			}
			known.generation = generations[registry]
			x.mu.Lock()
			x.types[registry] = known
			x.mu.Unlock()
		}
		all = append(all, known)
	}
	return all, nil
}

func searchedOf(types []eventtype.Registration) (searchedTypes, error) {
	s := searchedTypes{manifests: map[typeVersion]*shredding.Manifest{}}
	for i := range types {
		r := &types[i]
		if !slices.ContainsFunc(r.PIIFields, func(f eventtype.PIIField) bool { return blindindex.IsSearched(shredding.Class(f.Class)) }) {
			continue
		}
		manifest, found := eventtype.Manifest(r.PIIFields)
		if len(found) > 0 {
			return s, fmt.Errorf("stored pii_fields of %s version %d: %w", r.Type, r.SchemaVersion, eventtype.Invalid(found))
		}
		s.names = append(s.names, r.Type)
		s.manifests[typeVersion{r.Type, r.SchemaVersion}] = manifest
	}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	return s, nil
}

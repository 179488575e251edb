// Package registry keeps event types, their versions and the chained history of their
// changes.
package registry

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/registrydb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Store keeps the event types and the chained history of their changes.
type Store struct {
	db      *pg.Database
	queries *registrydb.Queries
}

var (
	_ ports.EventTypes    = (*Store)(nil)
	_ ports.RegistryAudit = (*Store)(nil)
)

// New makes the registry of event types over db.
func New(db *pg.Database) *Store { return &Store{db: db, queries: registrydb.New()} }

// acquireForRead acquires a connection for reading the registry, perhaps in the middle of a
// transaction: a projection may read an event of a version that this node does not know.
// Such readers together may hold all connections, so the wait is bounded.
func (s *Store) acquireForRead(ctx context.Context) (*pgxpool.Conn, error) {
	soon, cancel := context.WithTimeout(ctx, s.db.Config.Limits.LockTimeout)
	defer cancel()
	conn, err := s.db.Reads.Acquire(soon)
	return conn, pg.Translate(ctx, err)
}

// EventTypes implements ports.EventTypes: by type name, then by version.
func (s *Store) EventTypes(ctx context.Context, tenantID string) (out []eventtype.Registration, generation int64, err error) {
	conn, err := s.acquireForRead(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer conn.Release()
	err = pgx.BeginTxFunc(ctx, conn, asOfOneMoment, func(tx pgx.Tx) (err error) {
		if generation, err = s.queries.GetEventTypeGeneration(ctx, tx, tenantID); err != nil {
			return err
		}
		states, err := s.states(ctx, tx, tenantID, "")
		if err != nil {
			return err
		}
		rows, err := s.queries.ListEventTypes(ctx, tx, tenantID)
		if err != nil {
			return err
		}
		out = make([]eventtype.Registration, 0, len(rows))
		for i := range rows {
			r, stored := eventtype.Registration{}, &rows[i]
			if err := json.Unmarshal(stored.Document, &r); err != nil {
				return fault.New(fault.Internal, pg.CodeInternal, "a registration cannot be decoded; report this").WithCause(err)
			}
			state := states[version{r.Type, r.SchemaVersion}]
			if state == nil || state.Moved {
				continue
			}
			r.TenantID, r.Number = tenantID, stored.Number
			r.RegisteredAt, r.RegisteredBy = stored.RegisteredAt.UTC(), stored.RegisteredBy
			out = append(out, r.In(*state))
		}
		return nil
	})
	return out, generation, translate(ctx, err)
}

// asOfOneMoment reads the versions of a registry together with their changes.
var asOfOneMoment = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// version is one version of one type of a registry.
type version struct {
	name   string
	number uint32
}

// states are those of all versions that had a change; of one type if it is named.
func (s *Store) states(ctx context.Context, tx pgx.Tx, tenantID, name string) (map[version]*eventtype.State, error) {
	changes, err := s.queries.ListEventTypeHistory(ctx, tx, &registrydb.ListEventTypeHistoryParams{TenantID: tenantID, Type: name})
	if err != nil {
		return nil, err
	}
	out := map[version]*eventtype.State{}
	for i := range changes {
		c := changeOf((*registrydb.ListEventTypeChainsRow)(&changes[i]))
		of := version{c.Type, c.SchemaVersion}
		if out[of] == nil {
			out[of] = &eventtype.State{}
		}
		out[of].Apply(c)
	}
	return out, nil
}

// translate keeps faults and converts what PostgreSQL reports.
func translate(ctx context.Context, err error) error {
	if _, known := fault.As(err); known {
		return err
	}
	return pg.Translate(ctx, err)
}

// EventTypeGenerations implements ports.EventTypes.
func (s *Store) EventTypeGenerations(ctx context.Context) (map[string]int64, error) {
	conn, err := s.acquireForRead(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	rows, err := s.queries.ListEventTypeGenerations(ctx, conn)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make(map[string]int64, len(rows))
	for _, r := range rows {
		out[r.TenantID] = r.LastChange
	}
	return out, nil
}

// RegisterEventType implements ports.EventTypes.
func (s *Store) RegisterEventType(ctx context.Context, r eventtype.Registration) (eventtype.Registration, error) {
	return s.registerEventType(ctx, r, nil)
}

// RegisterEventTypeAt implements ports.EventTypes.
func (s *Store) RegisterEventTypeAt(ctx context.Context, r eventtype.Registration, generation int64) (eventtype.Registration, error) {
	return s.registerEventType(ctx, r, &generation)
}

func (s *Store) registerEventType(ctx context.Context, r eventtype.Registration, at *int64) (eventtype.Registration, error) {
	if r.RegisteredAt.IsZero() {
		r.RegisteredAt = s.db.Now()
	}
	r.RegisteredAt = event.Micros(r.RegisteredAt)
	document, err := r.Document()
	if err != nil {
		return eventtype.Registration{}, err
	}
	change := r.Registered(sha256.Sum256(document))
	err = s.change(ctx, r.TenantID, at, func(tx pgx.Tx, number int64) error {
		elsewhere, err := s.queries.HasTypeElsewhere(ctx, tx, &registrydb.HasTypeElsewhereParams{TenantID: r.TenantID, Type: r.Type})
		if err != nil {
			return err
		}
		if elsewhere {
			return eventtype.NameTaken(r.TenantID, r.Type)
		}
		if err := s.queries.InsertEventType(ctx, tx, r.Type); err != nil {
			return err
		}
		if r.Number, err = s.queries.GetEventTypeNumber(ctx, tx, r.Type); err != nil {
			return err
		}
		if err := s.queries.InsertEventTypeVersion(ctx, tx, &registrydb.InsertEventTypeVersionParams{
			TenantID: r.TenantID, Type: r.Type, SchemaVersion: int32(r.SchemaVersion), Module: r.Module, RetentionClass: string(r.RetentionClass),
			Document: document, RegisteredAt: r.RegisteredAt, RegisteredBy: r.RegisteredBy,
		}); err != nil {
			return err
		}
		change.Number = number
		return s.recordTypeChange(ctx, tx, &change)
	})
	if pg.ViolatesConstraint(err, "event_type_registry_pkey") {
		return eventtype.Registration{}, eventtype.Duplicate(r.Type, r.SchemaVersion)
	}
	if err != nil {
		return eventtype.Registration{}, translate(ctx, err)
	}
	return r.After(change), nil
}

// change runs a change of a registry under the lock of all registries and wakes every node. With
// at it gives fault event_type.registry_moved if the registry is at another generation.
func (s *Store) change(ctx context.Context, tenantID string, at *int64, run func(tx pgx.Tx, number int64) error) error {
	return pgx.BeginFunc(ctx, s.db.Reads, func(tx pgx.Tx) error {
		if err := s.queries.LockEventTypes(ctx, tx); err != nil {
			return err
		}
		number, err := s.queries.AdvanceEventTypeGeneration(ctx, tx, tenantID)
		if err != nil {
			return err
		}
		if at != nil && number != *at+1 {
			return eventtype.RegistryMoved()
		}
		if err := run(tx, number); err != nil {
			return err
		}
		return s.queries.NotifyChannel(ctx, tx, &registrydb.NotifyChannelParams{Channel: channelEventTypes})
	})
}

// recordTypeChange ties a change to the end of its registry's chain. The transaction
// holds the lock of the registries, so no other transaction extends the chain.
func (s *Store) recordTypeChange(ctx context.Context, tx pgx.Tx, c *eventtype.Change) error {
	link := eventtype.ChainStart(c.TenantID)
	end, err := s.queries.GetEventTypeChainEnd(ctx, tx, c.TenantID)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if err == nil {
		copy(link[:], end)
	}
	c.Checksum = c.ChainChecksum(link)
	return s.queries.InsertEventTypeChange(ctx, tx, &registrydb.InsertEventTypeChangeParams{
		TenantID: c.TenantID, Change: c.Number, Type: c.Type, SchemaVersion: int32(c.SchemaVersion), Action: string(c.Action),
		Digest: c.Digest[:], Actor: c.Actor, Reason: c.Reason, ChangedAt: c.At, Checksum: c.Checksum[:],
	})
}

// ChangeEventType implements ports.EventTypes.
func (s *Store) ChangeEventType(ctx context.Context, c eventtype.Change) ([]eventtype.Change, error) {
	return s.changeEventType(ctx, c, nil)
}

// ChangeEventTypeAt implements ports.EventTypes.
func (s *Store) ChangeEventTypeAt(ctx context.Context, c eventtype.Change, generation int64) ([]eventtype.Change, error) {
	return s.changeEventType(ctx, c, &generation)
}

func (s *Store) changeEventType(ctx context.Context, c eventtype.Change, at *int64) (out []eventtype.Change, err error) {
	if c.At.IsZero() {
		c.At = s.db.Now()
	}
	c.At = event.Micros(c.At)
	err = s.change(ctx, c.TenantID, at, func(tx pgx.Tx, number int64) error {
		states, err := s.states(ctx, tx, c.TenantID, c.Type)
		if err != nil {
			return err
		}
		rows, err := s.queries.ListEventTypeVersions(ctx, tx, &registrydb.ListEventTypeVersionsParams{TenantID: c.TenantID, Type: c.Type})
		if err != nil {
			return err
		}
		versions := make([]eventtype.VersionState, 0, len(rows))
		for _, r := range rows {
			if state := states[version{c.Type, uint32(r.SchemaVersion)}]; state != nil {
				versions = append(versions, eventtype.VersionState{SchemaVersion: uint32(r.SchemaVersion), Digest: sha256.Sum256(r.Document), State: *state})
			}
		}
		c.Number = number
		if out, err = eventtype.ChangeVersions(versions, c); err != nil {
			return err
		}
		if len(out) == 0 {
			return errUnchanged
		}
		for i := range out {
			if err := s.recordTypeChange(ctx, tx, &out[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errUnchanged) {
		return []eventtype.Change{}, nil
	}
	if err != nil {
		return nil, translate(ctx, err)
	}
	return out, nil
}

// errUnchanged rolls back a change that changes nothing.
var errUnchanged = errors.New("unchanged")

// EventTypeHistory implements ports.EventTypes.
func (s *Store) EventTypeHistory(ctx context.Context, tenantID, name string) ([]eventtype.Change, error) {
	rows, err := s.queries.ListEventTypeHistory(ctx, s.db.Reads, &registrydb.ListEventTypeHistoryParams{TenantID: tenantID, Type: name})
	return pg.MapRows(ctx, rows, err, func(r *registrydb.ListEventTypeHistoryRow) eventtype.Change {
		return changeOf((*registrydb.ListEventTypeChainsRow)(r))
	})
}

func changeOf(r *registrydb.ListEventTypeChainsRow) eventtype.Change {
	c := eventtype.Change{
		TenantID: r.TenantID, Number: r.Change, Action: eventtype.Action(r.Action), Type: r.Type, SchemaVersion: uint32(r.SchemaVersion),
		Actor: r.Actor, Reason: r.Reason, At: r.ChangedAt.UTC(),
	}
	copy(c.Digest[:], r.Digest)
	copy(c.Checksum[:], r.Checksum)
	return c
}

// RegistryRecords implements ports.RegistryAudit.
func (s *Store) RegistryRecords(ctx context.Context) ([]ports.RegistryRecord, error) {
	records := map[string]*ports.RegistryRecord{}
	of := func(tenantID string) *ports.RegistryRecord {
		if records[tenantID] == nil {
			records[tenantID] = &ports.RegistryRecord{TenantID: tenantID}
		}
		return records[tenantID]
	}
	err := pgx.BeginTxFunc(ctx, s.db.Reads, asOfOneMoment, func(tx pgx.Tx) (err error) {
		generations, err := s.queries.ListEventTypeGenerations(ctx, tx)
		if err != nil {
			return err
		}
		for _, g := range generations {
			of(g.TenantID).Generation = g.LastChange
		}
		changes, err := s.queries.ListEventTypeChains(ctx, tx)
		if err != nil {
			return err
		}
		for i := range changes {
			r := of(changes[i].TenantID)
			r.Changes = append(r.Changes, changeOf(&changes[i]))
		}
		versions, err := s.queries.ListEventTypeDigests(ctx, tx)
		if err != nil {
			return err
		}
		for i := range versions {
			v := &versions[i]
			stored := ports.StoredVersion{
				Type: v.Type, SchemaVersion: uint32(v.SchemaVersion), By: v.RegisteredBy, At: v.RegisteredAt.UTC(), Altered: !v.AsRegistered,
			}
			copy(stored.Digest[:], v.Digest)
			r := of(v.TenantID)
			r.Versions = append(r.Versions, stored)
		}
		return nil
	})
	out := make([]ports.RegistryRecord, 0, len(records))
	for _, tenantID := range slices.Sorted(maps.Keys(records)) {
		out = append(out, *records[tenantID])
	}
	return out, pg.Translate(ctx, err)
}

// channelEventTypes is the channel of NOTIFY that says that the registry changed.
const channelEventTypes = "event_types_changed"

// ListenEventTypes calls changed after each registration of an event type and after every
// reconnection, until ctx ends.
func (s *Store) ListenEventTypes(ctx context.Context, changed func()) error {
	return s.db.ListenTo(ctx, channelEventTypes, func(string) { changed() })
}

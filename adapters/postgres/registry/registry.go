// Package registry keeps the built-in event types, the numbers of all types, and the registries
// of earlier releases with the chained histories of their changes.
package registry

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/registrydb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Store keeps the built-in event types and what earlier releases stored about types.
type Store struct {
	db      *pg.Database
	queries *registrydb.Queries
}

var (
	_ ports.SharedEventTypes = (*Store)(nil)
	_ ports.RegistryAudit    = (*Store)(nil)
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

// SharedEventTypes implements ports.SharedEventTypes.
func (s *Store) SharedEventTypes(ctx context.Context) (out []eventtype.Registration, generation int64, err error) {
	err = s.read(ctx, func(tx pgx.Tx) (err error) {
		if generation, err = s.queries.GetSharedGeneration(ctx, tx); err != nil {
			return err
		}
		rows, err := s.queries.ListSharedEventTypes(ctx, tx)
		if err != nil {
			return err
		}
		out = make([]eventtype.Registration, 0, len(rows))
		for i := range rows {
			stored := &rows[i]
			r, err := eventtype.ParseDocument(stored.Document)
			if err != nil {
				return err
			}
			r.Number, r.Active = stored.Number, true
			r.RegisteredAt, r.RegisteredBy = stored.RegisteredAt.UTC(), stored.RegisteredBy
			out = append(out, r)
		}
		out = eventtype.Amended(out)
		return nil
	})
	return out, generation, err
}

// read reads as of one moment.
func (s *Store) read(ctx context.Context, run func(tx pgx.Tx) error) error {
	conn, err := s.acquireForRead(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return translate(ctx, pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, run))
}

// translate keeps faults and converts what PostgreSQL reports.
func translate(ctx context.Context, err error) error {
	if _, known := fault.As(err); known {
		return err
	}
	return pg.Translate(ctx, err)
}

// SharedGeneration implements ports.SharedEventTypes.
func (s *Store) SharedGeneration(ctx context.Context) (int64, error) {
	conn, err := s.acquireForRead(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	generation, err := s.queries.GetSharedGeneration(ctx, conn)
	return generation, pg.Translate(ctx, err)
}

// RegisterEventType implements ports.SharedEventTypes.
func (s *Store) RegisterEventType(ctx context.Context, r eventtype.Registration) (eventtype.Registration, error) {
	if r.RegisteredAt.IsZero() {
		r.RegisteredAt = s.db.Now()
	}
	r.RegisteredAt, r.Active = event.Micros(r.RegisteredAt), true
	document, err := r.Document()
	if err != nil {
		return eventtype.Registration{}, err
	}
	err = pgx.BeginFunc(ctx, s.db.Reads, func(tx pgx.Tx) error {
		names, err := s.assignNumbers(ctx, tx, []string{r.Type}, true)
		if err != nil {
			return err
		}
		if !names[r.Type].IsShared {
			return eventtype.NameTaken("", r.Type)
		}
		r.Number = names[r.Type].Number
		if err := s.queries.InsertEventTypeVersion(ctx, tx, &registrydb.InsertEventTypeVersionParams{
			Type: r.Type, SchemaVersion: int32(r.SchemaVersion), Amendment: int32(r.AmendmentNumber()), Module: r.Module, RetentionClass: string(r.RetentionClass),
			Document: document, RegisteredAt: r.RegisteredAt, RegisteredBy: r.RegisteredBy,
		}); err != nil {
			return err
		}
		return s.announce(ctx, tx)
	})
	if pg.ViolatesConstraint(err, "event_type_registry_pkey") {
		return eventtype.Registration{}, eventtype.Duplicate(r.Type, r.SchemaVersion)
	}
	if err != nil {
		return eventtype.Registration{}, translate(ctx, err)
	}
	return r, nil
}

// assignNumbers gives the numbers of types, and numbers those that have none.
func (s *Store) assignNumbers(ctx context.Context, tx pgx.Tx, names []string, areShared bool) (map[string]ports.EventTypeName, error) {
	if err := s.queries.LockEventTypes(ctx, tx); err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := s.queries.InsertEventType(ctx, tx, &registrydb.InsertEventTypeParams{Type: name, IsShared: areShared}); err != nil {
			return nil, err
		}
	}
	return s.names(ctx, tx, names)
}

func (s *Store) names(ctx context.Context, db registrydb.DBTX, names []string) (map[string]ports.EventTypeName, error) {
	rows, err := s.queries.ListEventTypeNames(ctx, db, names)
	if err != nil {
		return nil, err
	}
	out := make(map[string]ports.EventTypeName, len(rows))
	for _, r := range rows {
		out[r.Type] = ports.EventTypeName{Number: r.Number, IsShared: r.IsShared}
	}
	return out, nil
}

// ReserveEventTypes implements ports.SharedEventTypes. It writes only if a name has no number.
func (s *Store) ReserveEventTypes(ctx context.Context, names []string) (map[string]ports.EventTypeName, error) {
	conn, err := s.acquireForRead(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	known, err := s.names(ctx, conn, names)
	if err == nil && slices.ContainsFunc(names, func(name string) bool { return known[name].Number == 0 }) {
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
			known, err = s.assignNumbers(ctx, tx, names, false)
			return err
		})
	}
	return known, pg.Translate(ctx, err)
}

// EventTypeNumbers returns the numbers of the types that have one.
func (s *Store) EventTypeNumbers(ctx context.Context, names []string) (map[string]ports.EventTypeName, error) {
	conn, err := s.acquireForRead(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	known, err := s.names(ctx, conn, names)
	return known, pg.Translate(ctx, err)
}

// AnnounceEventTypes implements ports.SharedEventTypes.
func (s *Store) AnnounceEventTypes(ctx context.Context) error {
	return pg.Translate(ctx, s.announce(ctx, s.db.Reads))
}

func (s *Store) announce(ctx context.Context, db registrydb.DBTX) error {
	return s.queries.NotifyChannel(ctx, db, &registrydb.NotifyChannelParams{Channel: channelEventTypes})
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

// RegistryRecord implements ports.SharedEventTypes.
func (s *Store) RegistryRecord(ctx context.Context, tenantID string) (ports.RegistryRecord, error) {
	records, err := s.records(ctx, pgtype.Text{String: tenantID, Valid: true})
	if err != nil || len(records) == 0 {
		return ports.RegistryRecord{TenantID: tenantID}, err
	}
	return records[0], nil
}

// RegistryRecords implements ports.RegistryAudit.
func (s *Store) RegistryRecords(ctx context.Context) ([]ports.RegistryRecord, error) {
	return s.records(ctx, pgtype.Text{})
}

// records reads one registry, or all without a tenant.
func (s *Store) records(ctx context.Context, tenant pgtype.Text) ([]ports.RegistryRecord, error) {
	records := map[string]*ports.RegistryRecord{}
	of := func(tenantID string) *ports.RegistryRecord {
		if records[tenantID] == nil {
			records[tenantID] = &ports.RegistryRecord{TenantID: tenantID}
		}
		return records[tenantID]
	}
	err := s.read(ctx, func(tx pgx.Tx) error {
		generations, err := s.queries.ListEventTypeGenerations(ctx, tx, tenant)
		if err != nil {
			return err
		}
		for _, g := range generations {
			of(g.TenantID).Generation = g.LastChange
		}
		changes, err := s.queries.ListEventTypeChains(ctx, tx, tenant)
		if err != nil {
			return err
		}
		for i := range changes {
			r := of(changes[i].TenantID)
			r.Changes = append(r.Changes, changeOf(&changes[i]))
		}
		versions, err := s.queries.ListEventTypeVersions(ctx, tx, tenant)
		if err != nil {
			return err
		}
		for i := range versions {
			v := &versions[i]
			r := of(v.TenantID)
			r.Versions = append(r.Versions, ports.StoredVersion{
				Type: v.Type, SchemaVersion: uint32(v.SchemaVersion), Amendment: int(v.Amendment), Document: v.Document, Digest: sha256.Sum256(v.Document),
				By: v.RegisteredBy, At: v.RegisteredAt.UTC(), Altered: !v.AsRegistered,
			})
		}
		return nil
	})
	out := make([]ports.RegistryRecord, 0, len(records))
	for _, tenantID := range slices.Sorted(maps.Keys(records)) {
		out = append(out, *records[tenantID])
	}
	return out, err
}

// channelEventTypes is the channel of NOTIFY that says that the registry changed.
const channelEventTypes = "event_types_changed"

// ListenEventTypes calls changed after each registration of an event type and after every
// reconnection, until ctx ends.
func (s *Store) ListenEventTypes(ctx context.Context, changed func()) error {
	return s.db.ListenTo(ctx, channelEventTypes, func(string) { changed() })
}

// Package registry keeps event types, their versions and the chained history of their
// changes.
package registry

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"

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
func (s *Store) EventTypes(ctx context.Context) ([]eventtype.Registration, int64, error) {
	conn, err := s.acquireForRead(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer conn.Release()
	// The generation first: versions that are registered in between are read now and again
	// once the caller finds that the generation has grown.
	generation, err := s.queries.GetEventTypeGeneration(ctx, conn)
	if err != nil {
		return nil, 0, pg.Translate(ctx, err)
	}
	rows, err := s.queries.ListEventTypes(ctx, conn)
	if err != nil {
		return nil, 0, pg.Translate(ctx, err)
	}
	out := make([]eventtype.Registration, len(rows))
	for i := range rows {
		r := &rows[i]
		if err := json.Unmarshal(r.Document, &out[i]); err != nil {
			return nil, 0, fault.New(fault.Internal, pg.CodeInternal, "a registration cannot be decoded; report this").WithCause(err)
		}
		out[i].Number, out[i].Active = r.Number, r.IsActive
		out[i].RegisteredAt, out[i].RegisteredBy = r.RegisteredAt.UTC(), r.RegisteredBy
	}
	return out, generation, nil
}

// EventTypesGeneration implements ports.EventTypes.
func (s *Store) EventTypesGeneration(ctx context.Context) (int64, error) {
	conn, err := s.acquireForRead(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	generation, err := s.queries.GetEventTypeGeneration(ctx, conn)
	return generation, pg.Translate(ctx, err)
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
	err = pgx.BeginFunc(ctx, s.db.Reads, func(tx pgx.Tx) error {
		number, err := s.queries.AdvanceEventTypeGeneration(ctx, tx)
		if err != nil {
			return err
		}
		if at != nil && number != *at+1 {
			return eventtype.RegistryMoved()
		}
		if err := s.queries.InsertEventType(ctx, tx, r.Type); err != nil {
			return err
		}
		if r.Number, err = s.queries.GetEventTypeNumber(ctx, tx, r.Type); err != nil {
			return err
		}
		if err := s.queries.InsertEventTypeVersion(ctx, tx, &registrydb.InsertEventTypeVersionParams{
			Type: r.Type, SchemaVersion: int32(r.SchemaVersion), Module: r.Module, RetentionClass: string(r.RetentionClass),
			IsActive: r.Active, Document: document, RegisteredAt: r.RegisteredAt, RegisteredBy: r.RegisteredBy,
		}); err != nil {
			return err
		}
		if _, err := s.recordTypeChange(ctx, tx, "", eventtype.Change{
			Number: number, Action: eventtype.ActionRegistered, Type: r.Type, SchemaVersion: r.SchemaVersion,
			Digest: sha256.Sum256(document), Actor: r.RegisteredBy, At: r.RegisteredAt,
		}); err != nil {
			return err
		}
		return s.queries.NotifyChannel(ctx, tx, &registrydb.NotifyChannelParams{Channel: channelEventTypes})
	})
	if pg.ViolatesConstraint(err, "event_type_registry_pkey") {
		return eventtype.Registration{}, fault.New(fault.Conflict, "event_type.duplicate",
			"version %d of event type %q is registered already; register the next version", r.SchemaVersion, r.Type)
	}
	if _, known := fault.As(err); known {
		return eventtype.Registration{}, err
	}
	if err != nil {
		return eventtype.Registration{}, pg.Translate(ctx, err)
	}
	return r, nil
}

// recordTypeChange ties a change to the end of the registry's chain. The transaction
// holds the lock of the generation, so no other transaction extends the chain.
func (s *Store) recordTypeChange(ctx context.Context, tx pgx.Tx, tenantID string, c eventtype.Change) (link [sha256.Size]byte, err error) {
	end, err := s.queries.GetEventTypeChainEnd(ctx, tx)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return link, err
	}
	copy(link[:], end) // zero before the first change
	link = c.ChainChecksum(link)
	return link, s.queries.InsertEventTypeChange(ctx, tx, &registrydb.InsertEventTypeChangeParams{
		TenantID: tenantID, Change: c.Number, Type: c.Type, SchemaVersion: int32(c.SchemaVersion), Action: string(c.Action),
		Digest: c.Digest[:], Actor: c.Actor, Reason: c.Reason, ChangedAt: c.At, Checksum: link[:],
	})
}

// ChangeEventType implements ports.EventTypes.
func (s *Store) ChangeEventType(ctx context.Context, c eventtype.Change) ([]eventtype.Change, error) {
	if c.At.IsZero() {
		c.At = s.db.Now()
	}
	c.At = event.Micros(c.At)
	var out []eventtype.Change
	err := pgx.BeginFunc(ctx, s.db.Reads, func(tx pgx.Tx) error {
		number, err := s.queries.AdvanceEventTypeGeneration(ctx, tx)
		if err != nil {
			return err
		}
		versions, err := s.queries.ListEventTypeVersions(ctx, tx, c.Type)
		if err != nil {
			return err
		}
		known := false
		for _, v := range versions {
			if c.SchemaVersion != 0 && uint32(v.SchemaVersion) != c.SchemaVersion {
				continue
			}
			known = true
			if v.IsActive == (c.Action == eventtype.ActionReactivated) {
				continue
			}
			made := c
			made.Number, made.SchemaVersion, made.Digest = number, uint32(v.SchemaVersion), sha256.Sum256(v.Document)
			if made.Checksum, err = s.recordTypeChange(ctx, tx, v.TenantID, made); err != nil {
				return err
			}
			out = append(out, made)
		}
		switch {
		case !known:
			return eventtype.NotRegistered(c.Type)
		case len(out) == 0:
			return errUnchanged
		}
		return s.queries.NotifyChannel(ctx, tx, &registrydb.NotifyChannelParams{Channel: channelEventTypes})
	})
	if errors.Is(err, errUnchanged) {
		return []eventtype.Change{}, nil
	}
	if _, known := fault.As(err); known {
		return nil, err
	}
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	return out, nil
}

// errUnchanged rolls back a change that changes nothing.
var errUnchanged = errors.New("unchanged")

// EventTypeHistory implements ports.EventTypes.
func (s *Store) EventTypeHistory(ctx context.Context, name string) ([]eventtype.Change, error) {
	rows, err := s.queries.ListEventTypeHistory(ctx, s.db.Reads, name)
	return pg.MapRows(ctx, rows, err, func(r *registrydb.ListEventTypeHistoryRow) eventtype.Change {
		return changeOf((*registrydb.ListEventTypeChainRow)(r))
	})
}

func changeOf(r *registrydb.ListEventTypeChainRow) eventtype.Change {
	c := eventtype.Change{
		Number: r.Change, Action: eventtype.Action(r.Action), Type: r.Type, SchemaVersion: uint32(r.SchemaVersion),
		Actor: r.Actor, Reason: r.Reason, At: r.ChangedAt.UTC(),
	}
	copy(c.Digest[:], r.Digest)
	copy(c.Checksum[:], r.Checksum)
	return c
}

// RegistryRecord implements ports.RegistryAudit.
func (s *Store) RegistryRecord(ctx context.Context) (ports.RegistryRecord, error) {
	var out ports.RegistryRecord
	err := pgx.BeginTxFunc(ctx, s.db.Reads, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		if out.Generation, err = s.queries.GetEventTypeGeneration(ctx, tx); err != nil {
			return err
		}
		changes, err := s.queries.ListEventTypeChain(ctx, tx)
		if err != nil {
			return err
		}
		versions, err := s.queries.ListEventTypeDigests(ctx, tx)
		if err != nil {
			return err
		}
		out.Changes, out.Versions = pg.Map(changes, changeOf), make([]ports.StoredVersion, len(versions))
		for i, r := range versions {
			out.Versions[i] = ports.StoredVersion{
				Type: r.Type, SchemaVersion: uint32(r.SchemaVersion), By: r.RegisteredBy, At: r.RegisteredAt.UTC(), Altered: !r.AsRegistered,
			}
			copy(out.Versions[i].Digest[:], r.Digest)
		}
		return nil
	})
	return out, pg.Translate(ctx, err)
}

// channelEventTypes is the channel of NOTIFY that says that the registry changed.
const channelEventTypes = "event_types_changed"

// ListenEventTypes calls changed after each registration of an event type and after every
// reconnection, until ctx ends.
func (s *Store) ListenEventTypes(ctx context.Context, changed func()) error {
	return s.db.ListenTo(ctx, channelEventTypes, func(string) { changed() })
}

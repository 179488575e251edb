// Package keystore stores the wrapped keys of persons in the schema keystore, which may
// be in a database of its own. It reaches the schema only through its SQL functions.
// Package cmd/wire opens the store. No method opens a wrapped key: only the KMS can.
//
// [Store] mints and reads keys as the role backbone_app, with which nodes append and read.
// That role may execute the functions that lease, read and mint keys, read the active KEK,
// read and store the secrets of a tenant, and report a node, and no others. [ErasureRegister]
// fences and destroys keys and [Rotation] rotates and exports them, as the role
// backbone_eraser. A server connects as both roles, because the erasure worker, its gate and
// the nightly rotation run in it; the password of backbone_app alone allows neither.
package keystore

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/keystoredb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Config configures Open. Only DSN and Limits are required.
type Config struct {
	// DSN connects as backbone_app. A transaction pooler must forward start-up parameters.
	DSN string
	// EraserDSN connects as backbone_eraser, for Erasures and Rotation; "" leaves them out.
	EraserDSN string
	// ListenDSN connects to PostgreSQL directly, for LISTEN; "" is DSN.
	ListenDSN string
	Limits
	// Logger gets messages for operators; nil is slog.Default.
	Logger *slog.Logger
}

// Limits bound the sessions of a Store; all are required.
type Limits struct {
	PoolSize int // connections of each of the two roles
	// LockTimeout bounds how long a mint or an erasure waits for a lock, and how long a session
	// may be idle in a transaction. It does not end leases, which appends hold in sessions of
	// eventlog/appender with timeouts of their own.
	LockTimeout time.Duration
}

// Store stores the wrapped keys of persons in PostgreSQL. It is safe for concurrent use.
type Store struct {
	config  Config
	pool    *pgxpool.Pool
	queries *keystoredb.Queries
	eraser  *pgxpool.Pool // as backbone_eraser; nil without an EraserDSN
	closing sync.Once
}

var (
	_ ports.SubjectKeys  = (*Store)(nil)
	_ ports.KeyEvictions = (*Store)(nil)
)

// Open connects to a migrated key store. Faults: store.dsn_invalid,
// keys.unavailable.
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := fault.RequirePositive("keystore.Config", c.Limits); err != nil {
		return nil, err
	}
	c.ListenDSN = cmp.Or(c.ListenDSN, c.DSN)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	k := &Store{config: c, queries: keystoredb.New()}
	var err error
	if k.pool, err = k.open(ctx, c.DSN, "backbone keys"); err != nil {
		return nil, err
	}
	if c.EraserDSN != "" {
		if k.eraser, err = k.open(ctx, c.EraserDSN, "backbone eraser"); err != nil {
			k.pool.Close()
			return nil, err
		}
	}
	return k, nil
}

// open makes a pool and pings the database.
func (k *Store) open(ctx context.Context, dsn, name string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, pg.InvalidDSN("the address of the key store's database")
	}
	config.MaxConns = int32(k.config.PoolSize)
	prepare(config.ConnConfig, name, map[string]string{
		"jit":                                 "off",
		"lock_timeout":                        pg.Milliseconds(k.config.LockTimeout),
		"idle_in_transaction_session_timeout": pg.Milliseconds(k.config.LockTimeout),
	})
	pg.ProbeWithBackoff(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err == nil {
		if err = pool.Ping(ctx); err != nil {
			pool.Close()
		}
	}
	if err != nil {
		return nil, Unavailable(err)
	}
	return pool, nil
}

func prepare(config *pgx.ConnConfig, name string, parameters map[string]string) {
	config.RuntimeParams["application_name"] = name
	for parameter, value := range parameters {
		config.RuntimeParams[parameter] = value
	}
	config.DialFunc = pg.Dial
}

// Close ends all connections, also those of Erasures and Rotation. ListenEvictions ends
// with its context.
func (k *Store) Close() {
	k.closing.Do(func() {
		k.pool.Close()
		if k.eraser != nil {
			k.eraser.Close()
		}
	})
}

// Ping reports whether the database answers.
func (k *Store) Ping(ctx context.Context) error { return translateKeys(ctx, k.pool.Ping(ctx)) }

// Erasures returns the register of erasures. It needs an EraserDSN.
func (k *Store) Erasures() *ErasureRegister {
	return &ErasureRegister{pool: k.eraser, queries: k.queries}
}

// Rotation returns the methods that rotate KEKs. It needs an EraserDSN.
func (k *Store) Rotation() *Rotation { return &Rotation{pool: k.eraser, queries: k.queries} }

// SubjectKeys implements ports.SubjectKeys in one round trip.
func (k *Store) SubjectKeys(ctx context.Context, ids []ports.SubjectKeyID) ([]ports.SubjectKey, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	params := &keystoredb.ReadSubjectKeysParams{
		Ordinals: make([]int32, len(ids)), PartitionIds: make([]int32, len(ids)),
		SubjectIds: make([]string, len(ids)), Classes: make([]int16, len(ids)),
	}
	for i, id := range ids {
		params.Ordinals[i], params.PartitionIds[i] = int32(i), int32(id.Partition)
		params.SubjectIds[i], params.Classes[i] = string(id.Subject), int16(id.Class)
	}
	rows, err := k.queries.ReadSubjectKeys(ctx, k.pool, params)
	if err != nil {
		return nil, translateKeys(ctx, err)
	}
	out := make([]ports.SubjectKey, len(ids))
	for i, id := range ids {
		out[i].SubjectKeyID = id
	}
	for i := range rows {
		addSubjectKey(&out[rows[i].Ordinal], &rows[i])
	}
	return out, nil
}

// addSubjectKey adds a row, which holds at most one version, to a key.
func addSubjectKey(key *ports.SubjectKey, r *keystoredb.ReadSubjectKeysRow) {
	key.Reference, key.State, key.Active = reference(r.KeyRef), shredding.KeyState(r.State), uint32(r.ActiveVersion)
	if r.Version > 0 {
		key.Versions = append(key.Versions, wrappedKey(r.Version, r.KekEpoch, r.KmsKeyID, r.Wrapped, r.Fingerprint))
	}
}

func wrappedKey(version, epoch int32, kek string, wrapped, fingerprint []byte) ports.WrappedKey {
	w := ports.WrappedKey{Version: uint32(version), Epoch: uint32(epoch), KEK: kek, Wrapped: wrapped}
	copy(w.Fingerprint[:], fingerprint)
	return w
}

// MintSubjectKey implements ports.SubjectKeys.
func (k *Store) MintSubjectKey(ctx context.Context, tenantID string, m ports.MintedKey) (ports.SubjectKey, error) {
	ref, err := parseReference(m.Reference)
	if err != nil {
		return ports.SubjectKey{}, keyFault("keys.request_invalid", "")
	}
	rows, err := k.queries.MintSubjectKey(ctx, k.pool, &keystoredb.MintSubjectKeyParams{
		TenantID: tenantID, PartitionID: int32(m.Partition), SubjectID: string(m.Subject), Class: int16(m.Class), KeyRef: ref,
		NewVersion: int32(m.Version), NewKekEpoch: int32(m.Epoch), NewWrapped: m.Wrapped, NewFingerprint: m.Fingerprint[:],
	})
	if err != nil {
		return ports.SubjectKey{}, translateKeys(ctx, err)
	}
	key := ports.SubjectKey{SubjectKeyID: m.SubjectKeyID}
	for i := range rows {
		addSubjectKey(&key, (*keystoredb.ReadSubjectKeysRow)(&rows[i]))
	}
	return key, nil
}

// ActiveKEK implements ports.SubjectKeys.
func (k *Store) ActiveKEK(ctx context.Context, tenantID string) (ports.KEK, error) {
	row, err := k.queries.GetActiveKEK(ctx, k.pool, tenantID)
	if noRows(err) {
		return ports.KEK{}, fault.New(fault.FailedPrecondition, "keys.kek_missing",
			"the tenant has no key yet that wraps the keys of persons; try again, a server makes it while the key service answers")
	}
	if err != nil {
		return ports.KEK{}, translateKeys(ctx, err)
	}
	return ports.KEK{TenantID: tenantID, Epoch: uint32(row.Epoch), KeyID: row.KmsKeyID, State: ports.KEKActive}, nil
}

// TenantSecret implements ports.SubjectKeys.
func (k *Store) TenantSecret(ctx context.Context, tenantID, purpose string) (ports.TenantSecret, error) {
	row, err := k.queries.GetTenantSecret(ctx, k.pool, &keystoredb.GetTenantSecretParams{TenantID: tenantID, Purpose: purpose})
	if noRows(err) {
		return ports.TenantSecret{TenantID: tenantID, Purpose: purpose}, nil
	}
	if err != nil {
		return ports.TenantSecret{}, translateKeys(ctx, err)
	}
	return tenantSecret(tenantID, purpose, &row), nil
}

// SaveTenantSecret implements ports.SubjectKeys.
func (k *Store) SaveTenantSecret(ctx context.Context, s ports.TenantSecret) (ports.TenantSecret, error) {
	ref, err := parseReference(s.Reference)
	if err != nil {
		return ports.TenantSecret{}, keyFault("keys.request_invalid", "")
	}
	row, err := k.queries.SaveTenantSecret(ctx, k.pool, &keystoredb.SaveTenantSecretParams{
		TenantID: s.TenantID, Purpose: s.Purpose, NewSecretRef: ref, NewVersion: int32(s.Version), NewKekEpoch: int32(s.Epoch),
		NewWrapped: s.Wrapped, NewFingerprint: s.Fingerprint[:],
	})
	if err != nil {
		return ports.TenantSecret{}, translateKeys(ctx, err)
	}
	return tenantSecret(s.TenantID, s.Purpose, (*keystoredb.GetTenantSecretRow)(&row)), nil
}

func tenantSecret(tenantID, purpose string, r *keystoredb.GetTenantSecretRow) ports.TenantSecret {
	return ports.TenantSecret{
		TenantID: tenantID, Purpose: purpose, Reference: reference(r.SecretRef),
		WrappedKey: wrappedKey(r.Version, r.KekEpoch, r.KmsKeyID, r.Wrapped, r.Fingerprint),
	}
}

// reference is the text of a key's UUID, "" for none.
func reference(u pgtype.UUID) string {
	if !u.Valid {
		return ""
	}
	return u.String()
}

func parseReference(text string) (pgtype.UUID, error) {
	var u pgtype.UUID
	err := u.Scan(text)
	return u, err
}

package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/erpbackbone/backbone/adapters/exportdir"
	"github.com/erpbackbone/backbone/adapters/postgres/keystore"
	"github.com/erpbackbone/backbone/adapters/prometheus"
	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/keyrotation"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Keyring holds the key service, the key store, the export store and the rotation of keys. It
// needs no module catalog, so that tools can open it too.
type Keyring struct {
	Keys
	service  *keyService // that Close stops; nil: another closes it
	logName  string
	signer   *noteSigner
	Gate     *erasure.Gate
	Rotation *keyrotation.Service
}

// Keys are the stores of keys and the key service, with what each of their roles may do.
type Keys struct {
	Store    KeyStore
	Erasures ports.ErasureRegister
	KEKs     KEKStore
	Exports  ports.ExportStore  // stores receipts, certificates and exports of keys
	DataKeys ports.DataKeys     // makes and opens data keys
	KMS      ports.KeyLifecycle // makes, re-wraps and ends KEKs
	Signer   ports.Signer
	Close    func() // ends the connections to the key store
}

// KeyStore keeps the keys of persons for nodes.
type KeyStore interface {
	ports.SubjectKeys
	ports.KeyEvictions
}

// KEKStore keeps the KEKs of tenants, and exports and restores what they wrap.
type KEKStore interface {
	ports.KeyRotation
	ports.KeyRecovery
}

// keyStoreConfig returns the connections of the key store: those of the log's database, unless
// keystore.dsn is set.
func keyStoreConfig(c configs.Config) keystore.Config {
	k := keystore.Config{
		DSN: c.KeyStore.DSN.Reveal(), EraserDSN: c.KeyStore.EraserDSN.Reveal(), ListenDSN: c.KeyStore.ListenDSN.Reveal(),
		Limits: keystore.Limits{PoolSize: c.KeyStore.Pool, LockTimeout: c.KeyStore.LockTimeout},
	}
	if k.DSN == "" {
		k.DSN = c.Database.DSN.Reveal()
		if k.EraserDSN == "" {
			k.EraserDSN = c.Database.EraserDSN.Reveal()
		}
		if k.ListenDSN == "" {
			k.ListenDSN = c.Database.ListenDSN.Reveal()
		}
	}
	return k
}

// openKeys connects to the key store.
func openKeys(ctx context.Context, c configs.Config, service *keyService, logger *slog.Logger) (*Keys, error) {
	exports, err := exportdir.Open(c.Erasure.ExportDirectory)
	if err != nil {
		return nil, err
	}
	config := keyStoreConfig(c)
	config.Logger = logger
	store, err := keystore.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	return &Keys{
		Store: store, Erasures: store.Erasures(), KEKs: store.Rotation(), Exports: exports, DataKeys: service.app, KMS: service.rotator, Signer: service.signer, Close: store.Close,
	}, nil
}

// newKeyring composes what seals and erases over keys.
func newKeyring(c configs.Config, keys Keys, logName string, clock ports.Clock, logger *slog.Logger, metrics *prometheus.Metrics) (k *Keyring, err error) {
	k = &Keyring{Keys: keys, logName: logName, signer: newReceiptSigner(logName, keys)}
	k.Gate, err = erasure.NewGate(erasure.GateConfig{
		Exports: k.Exports, Receipts: k.Erasures, Keys: k.Store, DataKeys: k.DataKeys, Clock: clock, Interval: c.Erasure.GateInterval, Logger: logger, Closed: metrics.ReceiptsBehind,
	})
	if err != nil {
		return nil, err
	}
	k.Rotation, err = keyrotation.New(keyrotation.Config{
		Keys: k.KEKs, Recovery: k.KEKs, KMS: k.KMS, DataKeys: k.DataKeys, Exports: k.Exports, Receipts: k.Erasures, Notary: k.signer,
		Gate: k.Gate.Check, Clock: clock, AliasPrefix: aliasPrefix(logName), Node: nodeID(c), Logger: logger, Observer: metrics,
		Limits: keyrotation.Limits{DeletionDays: c.Rotation.DeletionDays, Workers: c.Rotation.Workers},
	})
	return k, err
}

// OpenKeyring opens the keys of an installation for a tool, with the configured key service.
// audit receives the calls of an embedded key server, one JSON line each.
// Faults: config.dsn_missing and those of requireKeys.
func OpenKeyring(ctx context.Context, c configs.Config, audit io.Writer) (_ *Keyring, err error) {
	if c.Database.DSN == "" {
		return nil, fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN, or name the folder of a running \"backbone dev\" with --data-dir")
	}
	c.KMS.AllowLocal = true // the operator allowed the local keys when the server was configured
	if err := requireKeys(c); err != nil {
		return nil, err
	}
	store, err := OpenReader(ctx, c.Database.DSN.Reveal(), c.Archive)
	if err != nil {
		return nil, err
	}
	installation, err := store.Directory.Installation(ctx)
	store.Close()
	if err != nil {
		return nil, err
	}
	service, err := openKeyService(ctx, c.KMS, nil, auditLog(audit))
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.DiscardHandler)
	keys, err := openKeys(ctx, c, service, logger)
	if err != nil {
		return nil, errors.Join(err, service.stop())
	}
	k, err := newKeyring(c, *keys, installation.LogName, system.Clock{}, logger, prometheus.New())
	if err != nil {
		keys.Close()
		return nil, errors.Join(err, service.stop())
	}
	k.service = service
	return k, nil
}

// KeyStoreAudit reads what verification compares with the administrative logs, and compares the
// receipts of erasures with the keys.
type KeyStoreAudit struct {
	ports.ErasureRegister
	KEKStore
	DataKeys ports.DataKeys // nil: no key is opened
	store    KeyStore
	close    func()
	service  *keyService // that Close stops; may be nil
	erasures configs.Erasure
	kms      configs.KMS // a server of its own, which CompareErased asks; or not configured
}

// OpenKeyStoreAudit connects to the key store for a verification, and to the key service if openKeys
// is set. It returns nil if the configuration does not name the eraser's address. Fault
// config.kms_missing: there are no keys to open.
func OpenKeyStoreAudit(ctx context.Context, c configs.Config, openKeys bool) (*KeyStoreAudit, error) {
	k := keyStoreConfig(c)
	if k.EraserDSN == "" {
		return nil, nil
	}
	if openKeys && !c.KMS.Configured() {
		return nil, fault.New(fault.Invalid, "config.kms_missing", "there is no key service to open keys with; name the configuration of a server with --config")
	}
	k.Logger = slog.New(slog.DiscardHandler)
	store, err := keystore.Open(ctx, k)
	if err != nil {
		return nil, err
	}
	a := &KeyStoreAudit{ErasureRegister: store.Erasures(), KEKStore: store.Rotation(), store: store, close: store.Close, erasures: c.Erasure}
	if c.KMS.LocalDirectory == "" {
		a.kms = c.KMS
	}
	if openKeys {
		if a.service, err = openKeyService(ctx, c.KMS, nil, auditLog(nil)); err != nil {
			store.Close()
			return nil, err
		}
		a.DataKeys = a.service.app
	}
	return a, nil
}

// SubjectKeys implements verify.KeyStore.
func (a *KeyStoreAudit) SubjectKeys(ctx context.Context, ids []ports.SubjectKeyID) ([]ports.SubjectKey, error) {
	return a.store.SubjectKeys(ctx, ids)
}

// CompareErased compares the receipts of a tenant's erasures, of all tenants for "", with the
// register, and the keys that they name with the key store, from the beginning. compared is false
// if the configuration does not name the export folder.
func (a *KeyStoreAudit) CompareErased(ctx context.Context, tenantID string) (finding string, compared bool, err error) {
	if a.erasures.ExportDirectory == "" {
		return "", false, nil
	}
	exports, err := exportdir.Open(a.erasures.ExportDirectory)
	if err != nil {
		return "", false, err
	}
	dataKeys := a.DataKeys
	if dataKeys == nil && a.kms.Configured() {
		service, openErr := openKeyService(ctx, a.kms, nil, auditLog(nil))
		if openErr != nil {
			return "", false, openErr
		}
		defer func() { err = errors.Join(err, service.stop()) }()
		dataKeys = service.app
	}
	gate, err := erasure.NewGate(erasure.GateConfig{
		Exports: exports, Receipts: a.ErasureRegister, Keys: a.store, DataKeys: dataKeys, Clock: system.Clock{}, Interval: a.erasures.GateInterval, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return "", false, err
	}
	if tenantID == "" {
		finding, err = gate.Compare(ctx)
	} else {
		finding, err = gate.CompareTenant(ctx, tenantID)
	}
	return finding, err == nil, err
}

// Close closes the connections and stops an embedded key server.
func (a *KeyStoreAudit) Close() error {
	a.close()
	return a.service.stop()
}

// Close closes the connections and stops an embedded key server.
func (k *Keyring) Close() error {
	k.Keys.Close()
	return k.service.stop()
}

// Replay repeats the erasures of the receipts that one of the verifier keys checks.
func (k *Keyring) Replay(ctx context.Context, verifierKeys []string, progress func(done, total int, r erasure.Receipt)) (replayed int, err error) {
	return erasure.Replay(ctx, erasure.ReplayConfig{
		Exports: k.Exports, Register: k.Erasures, Keys: k.Store, DataKeys: k.DataKeys, Notes: signednote.Opener{}, VerifierKeys: verifierKeys, Progress: progress,
	})
}

// ForgetReplayed deletes from the index what the persons of replayed receipts are found by.
func ForgetReplayed(ctx context.Context, c configs.Config, receipts []erasure.Receipt) error {
	return withIndex(ctx, c, func(index ports.BlindIndex) error { return erasure.ForgetReplayed(ctx, index, receipts) })
}

// RebuildIndex lets the nodes build the index by which persons are found again, with the values that
// did not open before.
func RebuildIndex(ctx context.Context, c configs.Config) error {
	return withIndex(ctx, c, func(index ports.BlindIndex) error { return index.ClearBlindIndex(ctx) })
}

func withIndex(ctx context.Context, c configs.Config, run func(ports.BlindIndex) error) error {
	store, err := OpenReader(ctx, c.Database.DSN.Reveal(), c.Archive)
	if err != nil {
		return err
	}
	defer store.Close()
	return run(store.BlindIndex)
}

// VerifierKeys reads the public keys of this installation's receipts from the export store.
func (k *Keyring) VerifierKeys(ctx context.Context) ([]string, error) {
	return storedVerifierKeys(ctx, k.Exports)
}

func storedVerifierKeys(ctx context.Context, exports ports.ExportStore) ([]string, error) {
	names, err := exports.List(ctx, verifierKeyFolder)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		content, err := exports.Get(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, strings.TrimSpace(string(content)))
	}
	return out, nil
}

// subjectKeys exists to be embedded: an embedded ports.SubjectKeys would hide its method of the
// same name.
type subjectKeys = ports.SubjectKeys

// kekCreator creates a tenant's first KEK when it is requested and does not exist.
type kekCreator struct {
	subjectKeys
	ensure func(ctx context.Context, tenantID string) error
}

// ActiveKEK implements ports.SubjectKeys.
func (f kekCreator) ActiveKEK(ctx context.Context, tenantID string) (ports.KEK, error) {
	kek, err := f.subjectKeys.ActiveKEK(ctx, tenantID)
	if fault.CodeOf(err) != "keys.kek_missing" {
		return kek, err
	}
	if err := f.ensure(ctx, tenantID); err != nil {
		return ports.KEK{}, err
	}
	return f.subjectKeys.ActiveKEK(ctx, tenantID)
}

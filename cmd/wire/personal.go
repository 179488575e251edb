package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/adapters/exportdir"
	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/keystore"
	"github.com/erpbackbone/backbone/adapters/prometheus"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/keyrotation"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Keyring is everything that keeps keys: the key service, the key store, the export
// store, and what rotates. It needs no catalog, so tools open it too.
type Keyring struct {
	service  *keyService
	store    *keystore.Store
	notes    *receiptSigner
	Eraser   *keystore.Eraser
	Exports  ports.ExportStore // where receipts, certificates and exports of keys are kept
	Gate     *erasure.Gate
	Rotation *keyrotation.Service
}

// keyStoreConfig says where the key store is: in the log's database unless it has an
// address of its own.
func keyStoreConfig(c configs.Config) keystore.Config {
	k := keystore.Config{
		DSN: c.KeyStore.DSN.Reveal(), EraserDSN: c.KeyStore.EraserDSN.Reveal(), ListenDSN: c.KeyStore.ListenDSN.Reveal(),
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

// openKeyring connects to the key store. service stays the caller's to end.
func openKeyring(ctx context.Context, c configs.Config, service *keyService, logName string, clock ports.Clock, logger *slog.Logger, metrics *prometheus.Metrics) (*Keyring, error) {
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
	k := &Keyring{service: service, store: store, Eraser: store.Eraser(), Exports: exports, notes: newReceiptSigner(logName, service, exports)}
	guard := erasure.GateConfig{Exports: exports, Receipts: k.Eraser, Clock: clock, Interval: c.Erasure.GateInterval, Logger: logger}
	var watch keyrotation.Observer
	if metrics != nil {
		guard.Behind, watch = metrics.ReceiptsBehind, metrics
	}
	k.Gate = erasure.NewGate(guard)
	k.Rotation = keyrotation.New(keyrotation.Config{
		Keys: k.Eraser, Recovery: k.Eraser, KMS: service.rotator, DataKeys: service.app, Exports: exports, Receipts: k.Eraser, Notary: k.notes,
		Gate: k.Gate.Check, Clock: clock, AliasPrefix: aliasPrefix(logName), DeletionDays: c.Rotation.DeletionDays, Node: nodeID(c), Logger: logger, Observer: watch,
	})
	return k, nil
}

// OpenKeyring opens the keys of an installation for a tool, with the key service that
// is configured. audit takes the calls of an embedded key server, one JSON line each.
// Faults: config.dsn_missing and those of requireKeys.
func OpenKeyring(ctx context.Context, c configs.Config, audit io.Writer) (_ *Keyring, err error) {
	if c.Database.DSN == "" {
		return nil, fault.New(fault.Invalid, "config.dsn_missing", "no database; set database.dsn or BACKBONE_DATABASE_DSN, or name the folder of a running \"backbone dev\" with --data-dir")
	}
	c.KMS.AllowLocal = true // the operator allowed the local keys when the server was configured
	if err := requireKeys(c); err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, postgres.Config{DSN: c.Database.DSN.Reveal(), MaxClockSkew: -1})
	if err != nil {
		return nil, err
	}
	installation, err := store.Installation(ctx)
	store.Close()
	if err != nil {
		return nil, err
	}
	service, err := openKeyService(ctx, c.KMS, nil, auditLog(audit))
	if err != nil {
		return nil, err
	}
	k, err := openKeyring(ctx, c, service, installation.LogName, system.Clock{}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return nil, errors.Join(err, service.end())
	}
	return k, nil
}

// Close ends the connections and an embedded key server.
func (k *Keyring) Close() error {
	k.store.Close()
	return k.service.end()
}

// VerifierKeys are the public keys of this installation's receipts, from the export store.
func (k *Keyring) VerifierKeys(ctx context.Context) ([]string, error) {
	return storedVerifierKeys(ctx, k.Exports)
}

var notNode = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// nodeID is the configured one, or the host's name and a random part, another one with
// every call: a node that starts again has forgotten everything and is another one.
func nodeID(c configs.Config) string {
	if c.Node.ID != "" {
		return c.Node.ID
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "node"
	}
	host = notNode.ReplaceAllString(host, "-")
	return host[:min(len(host), 40)] + "-" + strings.ToLower(rand.Text()[:8])
}

// personal seals, opens and erases personal data.
type personal struct {
	*Keyring
	node    string
	vault   *vault.Vault
	worker  *erasure.Worker
	service *erasure.Service
	metrics *prometheus.Metrics // nil: nobody watches
	logger  *slog.Logger
	prepare chan struct{} // a tenant may be new
	kms     probe
	keys    probe
}

// openPersonal makes what seals and opens, if there is a key service.
func (a *App) openPersonal(ctx context.Context, o Options, clock ports.Clock) error {
	if o.keys == nil {
		return nil
	}
	installation, err := a.Store.Installation(ctx)
	if err != nil {
		return err
	}
	ring, err := openKeyring(ctx, a.Config, o.keys, installation.LogName, clock, a.Logger, o.Observers.Personal)
	if err != nil {
		return err
	}
	a.personal = newPersonal(ctx, a.Config, ring, a.Registry, a.Logger, o.Observers.Personal)
	return nil
}

// Vault seals and opens personal values. Without a key service it refuses both.
func (a *App) Vault() *vault.Vault {
	if a.personal == nil {
		return vault.New(vault.Config{Manifests: a.Registry})
	}
	return a.personal.vault
}

// tenantMade hears of new legal entities.
func (a *App) tenantMade() {
	if a.personal != nil {
		a.personal.newTenant()
	}
}

// newPersonal makes what the append path needs; addErasures adds the rest.
func newPersonal(ctx context.Context, c configs.Config, ring *Keyring, manifests module.Manifests, logger *slog.Logger, metrics *prometheus.Metrics) *personal {
	p := &personal{Keyring: ring, node: c.Node.ID, metrics: metrics, logger: logger, prepare: make(chan struct{}, 1)}
	_ = p.Gate.Check(ctx) // the verdict is kept: a node starts with a closed gate too
	config := vault.Config{
		Keys:     firstKEKs{subjectKeys: ring.store, ensure: ring.Rotation.EnsureKEK},
		DataKeys: ring.service.app, Manifests: manifests, Gate: p.Gate.Open,
	}
	if metrics != nil {
		config.Observer = metrics
	}
	p.vault = vault.New(config)
	p.kms.ask = func(ctx context.Context) error {
		_, err := ring.service.rotator.Describe(ctx, ring.notes.alias)
		if fault.KindOf(err) == fault.NotFound {
			return nil // it answered
		}
		return err
	}
	p.keys.ask = func(ctx context.Context) error {
		_, err := ring.store.ActiveKEK(ctx, "no tenant")
		if fault.CodeOf(err) == "keys.kek_missing" {
			return nil
		}
		return err
	}
	return p
}

// addErasures makes what erases, from the parts of the App.
func (p *personal) addErasures(a *App, clock ports.Clock, ids ports.IDSource) {
	config := erasure.Config{
		Register: p.Eraser, Records: a.Store, Intents: a.Store, Streams: a.Store, LegalEntities: a.Store, Types: a.Store,
		Copies: a.targets, Announcer: announcer{a.Append}, Opener: p.vault, Chains: chains{a.Store},
		Notes: p.notes, Exports: p.Exports, Gate: p.Gate, Clock: clock, IDs: ids, Logger: a.Logger, Poll: a.Config.Erasure.Poll,
		KeyDeletion: time.Duration(a.Config.Rotation.DeletionDays) * 24 * time.Hour, RotatedByHand: a.Config.Rotation.At == "",
	}
	if p.metrics != nil {
		config.Observer = p.metrics
	}
	p.worker = erasure.NewWorker(config)
	p.service = erasure.NewService(config, p.worker.Wake)
}

// run works until ctx ends.
func (p *personal) run(ctx context.Context, a *App, complain func(error)) {
	var running sync.WaitGroup
	running.Go(func() { p.Gate.Run(ctx) })
	running.Go(func() {
		p.vault.Run(ctx, watchedEvictions{p.store, p.metrics}, p.node)
		p.leave(ctx)
	})
	running.Go(func() { p.worker.Run(ctx) })
	running.Go(func() { p.prepareTenants(ctx, a, complain) })
	if at, err := time.Parse("15:04", a.Config.Rotation.At); err == nil {
		night := keyrotation.Nightly{At: time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, MaximumAge: a.Config.Rotation.MaximumAge}
		running.Go(func() { p.Rotation.RunNightly(ctx, night, complain) })
	}
	running.Wait()
}

// leaveTimeout bounds the last report of a node that ends.
const leaveTimeout = 2 * time.Second

// leave reports that this node holds no keys any more and never will, so that no
// erasure waits for it. Without the report they wait a minute.
func (p *personal) leave(ctx context.Context) {
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if _, err := p.store.ReportNode(leaving, p.node, math.MaxInt64); err != nil {
		p.logger.WarnContext(leaving, "erasures will wait for this node for a minute", "code", fault.CodeOf(err))
	}
}

// prepareAgain is the pause after a failure to prepare the tenants.
const prepareAgain = 5 * time.Second

// prepareTenants makes the key that signs, every tenant's first KEK, and loads what
// appends without personal data need of the key service, so that they go on when it is
// away later.
func (p *personal) prepareTenants(ctx context.Context, a *App, complain func(error)) {
	for {
		err := p.prepareOnce(ctx, a)
		complain(err)
		var again <-chan time.Time
		if err != nil {
			again = time.After(prepareAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.prepare:
		case <-again:
		}
	}
}

func (p *personal) prepareOnce(ctx context.Context, a *App) error {
	entities, err := a.Store.LegalEntities(ctx, "")
	if err != nil {
		return err
	}
	if _, err := p.notes.VerifierKey(ctx); err != nil {
		return err
	}
	var failures []error
	done := map[string]bool{}
	for _, le := range entities {
		if done[le.TenantID] {
			continue
		}
		done[le.TenantID] = true
		if err := p.Rotation.EnsureKEK(ctx, le.TenantID); err != nil {
			failures = append(failures, err)
			continue
		}
		_, err := p.vault.Fingerprint(ctx, le.TenantID, event.Hash{})
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// newTenant asks for a look at the tenants.
func (p *personal) newTenant() {
	select {
	case p.prepare <- struct{}{}:
	default: // asked already
	}
}

// ready says what of personal data does not work. The rest does.
func (p *personal) ready(ctx context.Context, out map[string]error) {
	for name, err := range map[string]error{"kms": p.kms.check(ctx), "key_store": p.keys.check(ctx), "receipts": p.Gate.Open()} {
		if err != nil {
			err = httpapi.Degraded{Err: err}
		}
		out[name] = err
	}
}

// Bounds of a probe: load balancers ask every second or so, and a service that is
// away takes its time to say so.
const (
	probeLife    = 2 * time.Second
	probeTimeout = 2 * time.Second
)

// probe asks for health and keeps the answer for a moment.
type probe struct {
	ask func(context.Context) error

	mu  sync.Mutex
	at  time.Time
	err error
}

func (p *probe) check(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && time.Since(p.at) < probeLife {
		return p.err
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	p.err, p.at = p.ask(asking), time.Now()
	return p.err
}

package wire

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/prometheus"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/blindindex"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/keyrotation"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/redaction"
	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// personal holds the services that erase personal data, the keys, and their workers.
type personal struct {
	*Keyring
	node    string
	worker  *erasure.Worker
	service *erasure.Service
	epochs  *keyrotation.Recorder
	reports *disclosure.Reports
	index   *blindindex.Index

	redactionWorker *redaction.Worker // nil, like redactions, without the eraser's address
	redactions      *redaction.Service

	metrics       *prometheus.Metrics
	logger        *slog.Logger
	tenantChanges chan struct{} // wakes prepareTenants: a tenant may be new
	kmsProbe      probe
	keyStoreProbe probe
}

// composePersonal composes the vault, with its keys if there is a key service. addErasures adds
// the rest once the projections exist.
func (a *App) composePersonal(ctx context.Context, keys *Keys, clock ports.Clock) (err error) {
	if keys == nil {
		a.vault, err = vault.New(vault.Config{Manifests: a.Registry})
		return err
	}
	installation, err := a.Store.Directory.Installation(ctx)
	if err != nil {
		return err
	}
	ring, err := newKeyring(a.config, *keys, installation.LogName, clock, a.logger, a.metrics)
	if err != nil {
		return err
	}
	p := &personal{Keyring: ring, node: a.config.Node.ID, metrics: a.metrics, logger: a.logger, tenantChanges: make(chan struct{}, 1)}
	a.personal = p
	_ = p.Gate.Check(ctx) // the gate stores the verdict; a closed gate does not keep a node from starting
	c := a.config
	a.vault, err = vault.New(vault.Config{
		Keys:     kekCreator{subjectKeys: ring.Store, ensure: ring.Rotation.EnsureKEK},
		DataKeys: ring.DataKeys, Manifests: a.Registry, Gate: p.Gate.LastVerdict, RequireLive: p.Gate.RequireLive, Learn: p.Gate.Learn, Observer: a.metrics,
		Limits: vault.Limits{Entries: c.Vault.CachedKeys, Life: c.Vault.KeyLife, Poll: c.Vault.Poll, MaxCalls: c.KMS.Calls, MaxCallWait: c.KMS.CallWait},
	})
	if err != nil {
		return err
	}
	p.kmsProbe.query = func(ctx context.Context) error {
		_, err := ring.KMS.Describe(ctx, ring.signer.alias)
		if fault.KindOf(err) == fault.NotFound {
			return nil // the service answered
		}
		return err
	}
	p.keyStoreProbe.query = func(ctx context.Context) error {
		_, err := ring.Store.ActiveKEK(ctx, "no tenant")
		if fault.CodeOf(err) == "keys.kek_missing" {
			return nil
		}
		return err
	}
	return nil
}

// prepareNewTenant requests keys for a tenant that may be new.
func (a *App) prepareNewTenant() {
	if a.personal != nil {
		a.personal.requestPreparation()
	}
}

// addErasures composes the erasure worker and its service from the parts of the App.
func (p *personal) addErasures(a *App, journal ports.AdministrativeLog, cursors *query.CursorSealer, clock ports.Clock, ids ports.IDSource) (err error) {
	config := erasure.Config{
		Journal: journal, Register: p.Erasures, Records: a.Store.PersonalRecords, Intents: a.Store.Intents, Streams: a.Store.Events, LegalEntities: a.Store.Directory, Types: a.eventTypes,
		Copies: a.targets, Index: a.Store.BlindIndex, Announcer: announcer{a.appends, eraserActor, "erasure"}, Opener: a.vault, Chains: chains{a.Store.Chains},
		Notes: p.signer, Exports: p.Exports, Gate: p.Gate, Clock: clock, IDs: ids, Logger: a.logger, Observer: a.metrics, Poll: a.config.Erasure.Poll,
		KeyDeletion: time.Duration(a.config.Rotation.DeletionDays) * 24 * time.Hour, RotatedByHand: a.config.Rotation.At == "",
	}
	p.epochs = keyrotation.NewRecorder(p.Rotation, journal)
	if p.worker, err = erasure.NewWorker(config); err != nil {
		return err
	}
	p.reports = disclosure.NewReports(disclosure.ReportsConfig{
		Service: a.disclosures, Records: a.Store.PersonalRecords, Types: a.eventTypes, Copies: a.targets, Erasures: p.Erasures,
	})
	p.index, err = blindindex.New(blindindex.Config{
		Store: a.Store.BlindIndex, Log: a.Store.Events, Intents: a.Store.Intents, Changes: a.heads, Entities: a.Store.Directory,
		Types: a.eventTypes, Manifests: a.Registry, Opener: a.vault, Secrets: a.vault,
		Accesses: a.disclosures, Cursors: cursors, Leases: a.Store.Leases, Node: p.node, Clock: clock, Logger: a.logger, Limits: indexLimits,
	})
	if err != nil {
		return err
	}
	p.service, err = erasure.NewService(config, p.worker.Wake)
	return err
}

// indexLimits bound the reading of logs for the index by which persons are found. Opened values of
// a batch are in memory at once.
var indexLimits = blindindex.Limits{Interval: 500 * time.Millisecond, Renew: 10 * time.Second, Batch: 500, Bytes: 4 << 20}

// run checks the gate, follows evictions of keys, erases, prepares tenants and rotates KEKs until
// ctx ends.
func (p *personal) run(ctx context.Context, a *App, logFailure func(error)) {
	var running sync.WaitGroup
	running.Go(func() { p.Gate.Run(ctx) })
	running.Go(func() {
		a.vault.Run(ctx, meteredEvictions{p.Store, p.metrics}, p.node)
		p.reportStop(ctx)
	})
	running.Go(func() { p.worker.Run(ctx) })
	running.Go(func() { p.index.Run(ctx) })
	if p.redactionWorker != nil {
		running.Go(func() { p.redactionWorker.Run(ctx) })
	}
	running.Go(func() { p.prepareTenants(ctx, a, logFailure) })
	running.Go(func() { p.epochs.Run(ctx, logFailure) })
	if at, err := time.Parse("15:04", a.config.Rotation.At); err == nil {
		night := keyrotation.Nightly{At: time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, MaximumAge: a.config.Rotation.MaximumAge}
		running.Go(func() { p.Rotation.RunNightly(ctx, night, logFailure) })
	}
	running.Wait()
}

// reportStopTimeout bounds the last report of a node that stops.
const reportStopTimeout = 2 * time.Second

// reportStop reports that this node holds no keys any more, so that no erasure waits for it.
// Without the report erasures wait a minute.
func (p *personal) reportStop(ctx context.Context) {
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportStopTimeout)
	defer cancel()
	if _, err := p.Store.ReportNode(leaving, p.node, math.MaxInt64); err != nil {
		p.logger.WarnContext(leaving, "erasures will wait for this node for a minute", "code", fault.CodeOf(err))
	}
}

// prepareRetryDelay is the pause after a failure to prepare the tenants.
const prepareRetryDelay = 5 * time.Second

// prepareTenants creates the signing key and every tenant's first KEK. It also loads the keys
// that fingerprint requests, so that appends without personal data continue while the key
// service is unavailable. It runs again when a tenant may be new, and after a failure.
func (p *personal) prepareTenants(ctx context.Context, a *App, logFailure func(error)) {
	for ctx.Err() == nil {
		err := p.prepareOnce(ctx, a)
		logFailure(err)
		var again <-chan time.Time
		if err != nil {
			again = time.After(prepareRetryDelay)
		}
		select {
		case <-ctx.Done():
		case <-p.tenantChanges:
		case <-again:
		}
	}
}

func (p *personal) prepareOnce(ctx context.Context, a *App) error {
	entities, err := a.Store.Directory.LegalEntities(ctx, "")
	if err != nil {
		return err
	}
	if _, err := p.signer.VerifierKey(ctx); err != nil {
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
		_, err := a.vault.Fingerprint(ctx, le.TenantID, event.Hash{})
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// requestPreparation makes prepareTenants run again.
func (p *personal) requestPreparation() {
	select {
	case p.tenantChanges <- struct{}{}:
	default: // requested already
	}
}

// ready checks the key service, the key store and the gate. A failure is httpapi.Degraded:
// requests without personal data do not need them.
func (p *personal) ready(ctx context.Context, out map[string]error) {
	for name, err := range map[string]error{"kms": p.kmsProbe.check(ctx), "key_store": p.keyStoreProbe.check(ctx), "receipts": p.Gate.LastVerdict()} {
		if err != nil {
			err = httpapi.Degraded{Err: err}
		}
		out[name] = err
	}
}

// Load balancers check readiness about every second, and an unavailable service answers late.
// A probe therefore caches its answer and has a time limit.
const (
	probeCacheTime = 2 * time.Second
	probeTimeout   = 2 * time.Second
)

// probe caches the health of a service for probeCacheTime.
type probe struct {
	query func(context.Context) error

	mu  sync.Mutex
	at  time.Time
	err error
}

func (p *probe) check(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && time.Since(p.at) < probeCacheTime {
		return p.err
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	p.err, p.at = p.query(asking), time.Now()
	return p.err
}

// announcer appends the events of erasures or redactions with the system as the actor.
type announcer struct {
	appends     *eventappend.Service
	actor, name string
}

// The actors of the announcements. Who requested and approved is in the request.
const (
	eraserActor    = "s-backbone-erasure"
	redactionActor = "s-backbone-redaction"
)

// Announce implements erasure.Announcer. The stream of a request has one event per
// log, which prevents a second one after the idempotency key has expired.
func (a announcer) Announce(ctx context.Context, e erasure.Announcement) error {
	_, _, err := a.appends.Append(ctx, eventappend.Request{
		LegalEntity: e.LegalEntity, Actor: event.Actor{Type: event.System, ID: a.actor, Name: a.name}, PersonID: a.actor,
		Drafts: []event.Draft{e.Draft}, Streams: []concurrency.StreamExpectation{{Stream: e.Draft.Stream, Expected: concurrency.NoStream()}},
		IdempotencyKey: e.IdempotencyKey, Digest: e.Fingerprint,
	})
	if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion {
		return nil
	}
	return err
}

// chains verifies logs.
type chains struct{ store verify.Store }

// VerifyChain implements erasure.Chains.
func (c chains) VerifyChain(ctx context.Context, le ports.LegalEntity) (erasure.ChainVerdict, error) {
	reports, err := verify.Run(ctx, c.store, le.TenantID, []string{le.Code}, nil)
	if err != nil {
		return erasure.ChainVerdict{}, err
	}
	var v erasure.ChainVerdict
	for _, r := range reports {
		v = erasure.ChainVerdict{LegalEntity: r.LegalEntity, Events: r.Events, Head: r.Head, Checksum: r.Checksum, Findings: v.Findings + len(r.Findings) + r.Suppressed}
	}
	return v, nil
}

// meteredEvictions measures by how many evictions of keys a node is behind.
type meteredEvictions struct {
	ports.KeyEvictions
	metrics *prometheus.Metrics
}

// ReportNode implements ports.KeyEvictions.
func (w meteredEvictions) ReportNode(ctx context.Context, node string, forgotten int64) (int64, error) {
	newest, err := w.KeyEvictions.ReportNode(ctx, node, forgotten)
	if err == nil {
		w.metrics.GenerationLag(newest - forgotten)
	}
	return newest, err
}
